"""How many processes the server is to be, and which part of each limit one of them has."""

import math
import os
from dataclasses import replace
from pathlib import Path

from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig

AUTO = "auto"
MOST = 512

_CGROUP = Path("/sys/fs/cgroup")
_LIMITS = ("max_inflight_requests", "max_inflight_bytes")
_CONNECTIONS = ("http_max_connections", "grpc_max_connections")


def worker_count(config: ServerConfig, cgroup: Path = _CGROUP) -> int:
    """Return the number of processes that --workers asks for. Raises InvalidConfig.

    `cgroup` is where this process's control group shows its limits.
    """
    text = config.workers.strip().lower()
    if text == AUTO:
        return processor_count(cgroup)
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        msg = f"--workers is '{config.workers}', expected a number from 1 to {MOST}, or {AUTO}"
        raise InvalidConfig(msg)
    return int(text)


def processor_count(cgroup: Path = _CGROUP) -> int:
    """Return how many processors this process may use: those it is bound to, and its quota."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, math.ceil(min(bound or 1, _quota(cgroup))))


def _quota(cgroup: Path) -> float:
    """Return the processors that the control group has the time of, without a limit infinity."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()  # version 2
    except (OSError, ValueError):
        try:
            quota = (cgroup / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return math.inf
    try:
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except (ValueError, ZeroDivisionError):  # "max"
        return math.inf


def share_of(config: ServerConfig, count: int) -> ServerConfig:
    """Return the configuration of one of `count` processes: limits are the server's.

    Connections are spread evenly, so that a share is enough; it is a little larger, because a
    process that is replaced has its connections beside those of the new one.
    """
    shares = {name: math.ceil(getattr(config, name) / count) for name in _LIMITS}
    shares |= {name: math.ceil(getattr(config, name) / count) + 1 for name in _CONNECTIONS}
    return replace(config, **shares)


def check_workers(config: ServerConfig) -> None:
    """Raise InvalidConfig for options that several processes cannot have."""
    if config.allow_grpc and config.grpc_transport != "own":
        msg = (
            f"--grpc-transport={config.grpc_transport} cannot take connections from another "
            f"process, as --workers={config.workers} needs; leave it out"
        )
        raise InvalidConfig(msg)
