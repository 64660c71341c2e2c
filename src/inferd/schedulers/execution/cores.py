"""Cores: which processors a thread runs on, where the system allows a choice."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inferd import system
from inferd.config.options.backends import HostPolicy, read_cores
from inferd.errors import InvalidConfig

log = logging.getLogger("inferd.engine")

NODES = Path("/sys/devices/system/node")


def cores_of(policy: HostPolicy, place: str, nodes: Path = NODES) -> frozenset[int]:
    """Return the processors of `policy` that this process may use; an empty set means any.

    A policy that cannot be met is logged. `place` is the instance it is for, `nodes` the folder
    where Linux describes the NUMA nodes.
    """
    wanted = policy.cores
    # Processors that are named win over a node.
    if not wanted and policy.node is not None:
        with suppress(OSError, InvalidConfig):
            wanted = read_cores((nodes / f"node{policy.node}" / "cpulist").read_text(), "")
        if not wanted:
            log.warning("%s: this machine tells of no NUMA node %d", place, policy.node)
            return frozenset()
    if not system.AFFINITY:
        log.warning("%s: this system does not let threads choose their processors", place)
        return frozenset()
    # Those outside a container's cpuset make the call fail.
    cores = wanted & os.sched_getaffinity(0)
    if wanted and not cores:
        log.warning("%s: none of the processors of its host policy is there to be used", place)
    return cores


def pin(cores: frozenset[int]) -> None:
    """Pin the calling thread, and those it starts, to `cores`, if there are any."""
    if cores:
        with suppress(OSError):  # they were taken from this process meanwhile
            os.sched_setaffinity(0, cores)


@contextmanager
def pinned(cores: frozenset[int]) -> Iterator[None]:
    """Pin the calling thread to `cores` for the block; threads started in it stay there."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    pin(cores)
    try:
        yield
    finally:
        pin(frozenset(before))
