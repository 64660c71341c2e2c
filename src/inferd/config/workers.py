"""How many processes the server is to be, and which part of each limit one of them has."""

import math
import os
from dataclasses import replace
from pathlib import Path

from inferd.config.options.backends import settings_of
from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig

AUTO = "auto"
# Above the processors of any machine, and a slip of the keyboard does not fill the process table.
MOST = 512

_CGROUP = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_THREADS = "intra_op_thread_count"
# Totals of the server; limits of one connection or request are not shared.
_LIMITS = ("max_inflight_requests", "max_inflight_bytes")
_CONNECTIONS = ("http_max_connections", "grpc_max_connections")


def worker_count(
    config: ServerConfig, cgroup: Path = _CGROUP, membership: Path = _MEMBERSHIP
) -> int:
    """Return the number of processes that --workers asks for. Raises InvalidConfig.

    `cgroup` is where control groups show their limits, `membership` the file that says which one
    this process is in.
    """
    text = config.workers.strip().lower()
    if text == AUTO:
        processors = processor_count(cgroup, membership)
        # Each process's executions take that many threads, so more processes would compete for the
        # same processors. With 0, ONNX Runtime takes all.
        return max(1, processors // (thread_count(config) or processors))
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        msg = f"--workers is '{config.workers}', expected a number from 1 to {MOST}, or {AUTO}"
        raise InvalidConfig(msg)
    return int(text)


def processor_count(cgroup: Path = _CGROUP, membership: Path = _MEMBERSHIP) -> int:
    """Return how many processors this process may use: those it is bound to, and its quota."""
    # cpu_count() counts those of the machine, also where taskset or Docker's --cpuset-cpus allows a
    # few. macOS and Windows have no such call.
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quotas = [_quota(group) for group in _groups(cgroup, membership)]
    # A quota of 1.5 processors keeps two processes busier than one.
    return max(1, math.ceil(min(bound or 1, *quotas)))


def thread_count(config: ServerConfig) -> int:
    """Return the threads that an execution in the server's own process has, 0: all there are.

    It is what --backend-config gives to ONNX models; what a model says itself is read later.
    """
    text = settings_of("onnxruntime", config.backend_config).get(_THREADS, "1")
    return int(text) if text.isascii() and text.isdigit() else 1  # its backend refuses it


def _groups(cgroup: Path, membership: Path) -> list[Path]:
    """Return the folders of this process's control group and of all above it.

    Those of version 2 lie in `cgroup`, those of version 1 in its folder "cpu". In a container the
    name of the group may be that outside, where the container's own is the root.
    """
    found = [cgroup, cgroup / "cpu"]
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _, controllers, path = line.split(":", 2)
        # Version 2 has one line without controllers; version 1 one for each, of which only cpu has
        # quotas.
        if controllers and "cpu" not in controllers.split(","):
            continue
        group = cgroup / "cpu" if controllers else cgroup
        for name in Path(path).parts[1:]:
            # A group outside of what the container sees.
            if name != "..":
                group /= name
                found.append(group)
    return found


def _quota(group: Path) -> float:
    """Return the processors that a control group has the time of, without a limit infinity."""
    try:
        quota, period = (group / "cpu.max").read_text().split()  # version 2
    except (OSError, ValueError):
        try:
            quota = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
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
    # Rounded up, so that a limit below the number of processes leaves each something.
    shares = {name: math.ceil(getattr(config, name) / count) for name in _LIMITS}
    shares |= {name: math.ceil(getattr(config, name) / count) + 1 for name in _CONNECTIONS}
    return replace(config, **shares)


def check_workers(config: ServerConfig) -> None:
    """Raise InvalidConfig for options that several processes cannot have."""
    if config.allow_grpc and config.grpc_transport != "own":
        raise InvalidConfig(
            f"--grpc-transport={config.grpc_transport} cannot take connections from another "
            f"process, as --workers={config.workers} needs; leave it out"
        )
