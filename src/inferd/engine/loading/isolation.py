"""Isolation: a version that crashed the server runs in a worker. Loads in the server are marked."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from inferd.config.model import ModelConfig
from inferd.config.parameter_names import PROCESS
from inferd.core.interfaces import Backend, WorkerBackend, is_in_worker
from inferd.observe.crash.mark import ModelMarks

log = logging.getLogger("inferd.engine")

WHY_ISOLATED = "it runs in a worker, because the server crashed twice while it ran"


def isolated(config: ModelConfig, version: int, backend: Backend) -> ModelConfig | None:
    """Return the configuration of a version that is to run in a worker, None if it cannot."""
    name = config.name
    if not isinstance(backend, WorkerBackend):
        why = f"backend '{config.backend}' has no workers"
    # Who has said where it runs has a reason.
    elif PROCESS in config.parameters:
        why = f"its configuration says {PROCESS} {config.parameters[PROCESS]}"
    else:
        log.warning("model '%s' version %d: %s", name, version, WHY_ISOLATED)
        return replace(config, parameters=config.parameters | {PROCESS: "worker"})
    text = (
        "model '%s' version %d: the server crashed twice while it ran; it stays there, because %s"
    )
    log.warning(text, name, version, why)
    return None


@contextmanager
def marked_load(config: ModelConfig, backend: Backend, marks: ModelMarks) -> Iterator[None]:
    """Mark that this thread loads a version, unless that happens in a worker."""
    if is_in_worker(backend, config):
        yield
        return
    mark = marks.claim(threading.get_ident(), is_load=True)
    mark.note.value = ""
    try:
        yield
    finally:
        marks.release(mark)
