"""What blocks, run in one step; slots of threads: waiting, giving up, and giving back."""

import threading
import time

import pytest

from inferd.client import DeadlineExceeded
from inferd.client.sync.io import ThreadCallSlots, run


async def doubled(awaited):
    return 2 * await awaited


async def three():
    return 3


def test_a_coroutine_that_never_suspends_is_run_in_one_step():
    assert run(doubled(three())) == 6


def test_a_coroutine_that_waits_for_an_event_loop_is_an_error(loop):
    with pytest.raises(RuntimeError, match="event loop"):
        run(doubled(loop.create_future()))


def test_a_slot_that_is_given_back_is_taken_by_who_waits():
    slots, done = ThreadCallSlots(1), []
    run(slots.take(0))

    def take():
        run(slots.take(time.monotonic() + 60))
        done.append(1)

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in threads:
        slots.give_back()
    for thread in threads:
        thread.join()
    assert len(done) == 3


def test_the_deadline_ends_the_wait():
    slots = ThreadCallSlots(1)
    run(slots.take(0))
    with pytest.raises(DeadlineExceeded):
        run(slots.take(time.monotonic() - 1))
    slots.give_back()
    run(slots.take(0))
