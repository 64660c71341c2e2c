"""A Promise to a task, and to who drives a coroutine without one."""

import asyncio
import functools

import pytest

from inferd.aio.driver import fulfil, reject
from inferd.aio.promise import Promise
from inferd.errors import Unavailable


def on_loop(test):
    """Run a test on an event loop."""

    @functools.wraps(test)
    def run():
        asyncio.run(asyncio.wait_for(test(), 10))

    return run


async def wait_for(later):
    return await later


@on_loop
async def test_to_a_task_it_is_a_future():
    later = Promise()
    task = asyncio.create_task(wait_for(later))
    await asyncio.sleep(0)
    fulfil(later, "it")
    assert await task == "it"


@on_loop
async def test_a_task_that_waits_for_it_can_be_cancelled():
    later = Promise()
    task = asyncio.create_task(wait_for(later))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert later.cancelled()


@on_loop
async def test_who_drives_a_coroutine_is_told_at_once():
    later, told = Promise(), []
    driven = wait_for(later)
    assert driven.send(None) is later
    later.then = lambda: told.append("then")
    fulfil(later, "it")
    assert told == ["then"]
    with pytest.raises(StopIteration) as done:
        driven.send(None)
    assert done.value.value == "it"


@on_loop
async def test_an_error_is_raised_where_it_is_waited_for():
    later, told = Promise(), []
    driven = wait_for(later)
    driven.send(None)
    later.then = lambda: told.append("then")
    reject(later, Unavailable("not now"))
    assert told == ["then"]
    with pytest.raises(Unavailable, match="not now"):
        driven.send(None)
