"""Slots of threads: waiting, giving up, and giving back."""

import threading
import time

import pytest

from inferd.client import DeadlineExceeded
from inferd.client.sync.io import CallSlots


def test_a_slot_that_is_given_back_is_taken_by_who_waits():
    slots, done = CallSlots(1), []
    slots.take(0)

    def take():
        slots.take(time.monotonic() + 60)
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
    slots = CallSlots(1)
    slots.take(0)
    with pytest.raises(DeadlineExceeded):
        slots.take(time.monotonic() - 1)
    slots.give_back()
    slots.take(0)
