"""Slots of asyncio: waiting in order, giving up, and giving back."""

import asyncio
import time

import pytest

from inferd.client import DeadlineExceeded
from inferd.client.aio.io import AsyncCallSlots


async def later(slots, names, name, deadline):
    await slots.take(deadline)
    names.append(name)


def test_those_that_wait_are_served_in_their_order():
    asyncio.run(_test_those_that_wait_are_served_in_their_order())


async def _test_those_that_wait_are_served_in_their_order():
    slots, names = AsyncCallSlots(1), []
    far = time.monotonic() + 60
    await slots.take(far)
    tasks = [asyncio.create_task(later(slots, names, name, far)) for name in "abc"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    for expected in ("a", "ac"):
        slots.give_back()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert "".join(names) == expected
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_slot_given_to_who_is_cancelled_goes_to_the_next():
    asyncio.run(_test_a_slot_given_to_who_is_cancelled_goes_to_the_next())


async def _test_a_slot_given_to_who_is_cancelled_goes_to_the_next():
    slots, names = AsyncCallSlots(1), []
    far = time.monotonic() + 60
    await slots.take(far)
    first, second = (asyncio.create_task(later(slots, names, name, far)) for name in "ab")
    await asyncio.sleep(0)
    slots.give_back()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert names == ["b"]


def test_the_deadline_ends_the_wait():
    asyncio.run(_test_the_deadline_ends_the_wait())


async def _test_the_deadline_ends_the_wait():
    slots = AsyncCallSlots(1)
    await slots.take(0)
    with pytest.raises(DeadlineExceeded):
        await slots.take(time.monotonic() - 1)
    slots.give_back()
    await slots.take(0)
