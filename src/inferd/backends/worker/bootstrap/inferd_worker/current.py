"""The worker of this process, for module-level functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pb_utils.error import TritonModelException

if TYPE_CHECKING:
    from .worker import Worker

_workers: list[Worker] = []


def worker() -> Worker:
    """Return the worker. Raises TritonModelException outside of a process that runs a model."""
    if not _workers:
        raise TritonModelException("this works only where a server runs the model")
    return _workers[0]


def set_worker(one: Worker) -> None:
    """Make `one` the worker of this process."""
    _workers[:] = [one]
