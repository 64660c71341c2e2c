"""Going on with a coroutine that was started without a task.

A handler that never waits costs no task: its connection starts it with `send(None)`, and only when
it really waits a task takes over.
"""

from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


@coroutine
def resume(running: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Go on with a coroutine that has been started by hand and now waits for `waits_for`."""
    while True:
        try:
            try:
                got = yield waits_for
            except BaseException as error:  # noqa: BLE001  a cancellation is passed on as well
                waits_for = None  # it holds the error, whose traceback holds this frame
                waits_for = running.throw(error)
            else:
                waits_for = running.send(got)
        except StopIteration as done:
            return cast("T", done.value)
