"""Opens several instances of a version at once: that is where most of the time of a load goes."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from inferd.core.interfaces import Instance


def open_side_by_side(
    openers: Sequence[Callable[[], Instance]], thread_count: int
) -> list[Instance]:
    """Return what `openers` open, run by at most `thread_count` threads, this one included.

    When one fails no other is begun, and those that are open are closed once all have ended; its
    error is raised. The threads are daemons: one that hangs cannot keep the process from ending.
    """
    found: dict[int, Instance] = {}
    failures: dict[int, BaseException] = {}
    numbers = iter(range(len(openers)))
    # An iterator is not for several threads, and a failure must be seen before the next is begun.
    taking = threading.Lock()

    def work() -> None:
        while True:
            with taking:
                # Not begun after a failure: each would be closed again.
                number = -1 if failures else next(numbers, -1)
            if number < 0:
                return
            try:
                found[number] = openers[number]()
            except BaseException as error:  # noqa: BLE001  it is raised in the caller's thread
                failures[number] = error

    count = min(thread_count, len(openers))
    threads = [
        # This thread is the last one, so that one instance needs no thread at all.
        threading.Thread(target=work, name="inferd-load", daemon=True)
        for _ in range(count - 1)
    ]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if failures:
        with ExitStack() as undo:
            for instance in found.values():
                undo.callback(instance.close)
            # The error of the first instance, which does not depend on which thread was faster.
            raise failures[min(failures)]
    return [found[number] for number in range(len(openers))]
