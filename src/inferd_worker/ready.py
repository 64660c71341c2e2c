"""A model's answer when the server asks whether it is ready: its is_ready, if any."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from .model import full
from .pb_utils.error import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 1.0
"""How long requests wait while the model is asked; then they run alongside its is_ready."""


@contextlib.contextmanager
def deputed(work: Callable[[Callable[[], bool]], None]) -> Iterator[None]:
    """Have another thread do `work` if this one does not leave within PATIENCE_S.

    `work` is called with a function that returns whether this thread has come back. It should then
    end; leaving waits until it has.
    """
    is_back = threading.Event()

    def wait_then_work() -> None:
        if not is_back.wait(PATIENCE_S):
            work(is_back.is_set)

    # A daemon, as a model that hangs must not keep its process alive.
    deputy = threading.Thread(target=wait_then_work, daemon=True)
    deputy.start()
    try:
        yield
    finally:
        is_back.set()
        # Two threads must not run the model at once, unless is_ready itself takes that long.
        deputy.join()


def ask(model: Any) -> tuple[bool, str]:
    """Return whether `model` is ready, and a text to log if it gave no proper answer."""
    try:
        said = model.is_ready()
        if inspect.isawaitable(said):
            # Wrapped, as asyncio.run() takes coroutines only, not every awaitable.
            said = asyncio.run(_result(said))
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a model raises
        return _failed(error)
    return _as_reply(said)


async def ask_async(model: Any) -> tuple[bool, str]:
    """Return the same as `ask`, on the event loop where the model executes."""
    try:
        said = model.is_ready()
        if inspect.isawaitable(said):
            said = await said
    # What a model raises here says that it is not ready; the process goes on.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return _failed(error)
    return _as_reply(said)


async def _result(said: Any) -> Any:
    return await said


def _failed(error: BaseException) -> tuple[bool, str]:
    return False, "is_ready failed: " + full(error)


def _as_reply(said: Any) -> tuple[bool, str]:
    if isinstance(said, (bool, np.bool_)):
        return bool(said), ""
    return False, f"is_ready returned {kind_of(said)}, expected True or False"
