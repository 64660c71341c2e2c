"""Coroutines that wait without a task of their own."""

import asyncio
import contextlib
import functools
import gc
import weakref

import pytest

from inferd.aio.driver import Driven, fulfil, reject
from inferd.aio.promise import Promise


def on_loop(test):
    """Run a test on an event loop."""

    @functools.wraps(test)
    def run():
        asyncio.run(asyncio.wait_for(test(), 10))

    return run


class Handler:
    """Waits for `later`, and notes what it saw."""

    def __init__(self, after=()):
        self.later = Promise()
        self.seen = []
        self._after = after

    async def run(self):
        try:
            self.seen.append(await self.later)
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            for other in self._after:
                self.seen.append(await other)
            raise
        return "answer"

    def pause(self):
        running = self.run()
        return Driven(running, running.send(None), lambda: self.seen.append("woken"))


@on_loop
async def test_a_paused_coroutine_is_woken_and_goes_on():
    handler = Handler()
    paused = handler.pause()
    assert not paused.is_due()
    fulfil(handler.later, "it")
    assert paused.is_due()
    assert handler.seen == ["woken"]
    with pytest.raises(StopIteration) as done:
        paused.go_on()
    assert done.value.value == "answer"
    assert handler.seen == ["woken", "it"]


@on_loop
async def test_a_cancelled_one_ends_and_is_not_gone_on_with():
    handler = Handler()
    paused = handler.pause()
    paused.cancel()
    paused.cancel()
    assert handler.seen == ["cancelled"]


@on_loop
async def test_one_that_is_cancelled_when_it_is_due_ends_as_cancelled():
    handler = Handler()
    paused = handler.pause()
    fulfil(handler.later, "it")
    paused.cancel()
    assert handler.seen == ["woken", "cancelled"]


@on_loop
async def test_one_that_has_gone_on_is_not_cancelled():
    handler = Handler()
    paused = handler.pause()
    fulfil(handler.later, "it")
    with pytest.raises(StopIteration):
        paused.go_on()
    paused.cancel()
    assert handler.seen == ["woken", "it"]


@on_loop
async def test_an_error_of_a_cancelled_one_is_nobodys():
    failing = asyncio.get_running_loop().create_future()
    failing.set_exception(ValueError("while it ended"))
    handler = Handler(after=(failing,))
    handler.pause().cancel()
    assert handler.seen == ["cancelled"]


@on_loop
async def test_what_a_cancelled_one_still_waits_for_is_waited_for():
    last = asyncio.get_running_loop().create_future()
    handler = Handler(after=(last,))
    handler.pause().cancel()
    last.set_result("closed")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert handler.seen == ["cancelled", "closed"]


class Caller:
    """Pauses a coroutine, as connections and calls do."""

    def __init__(self, later):
        laters = [later]

        async def run():
            await laters.pop()  # so that its frame does not keep it

        running = run()
        self.paused = Driven(running, running.send(None), self.wake)

    def wake(self):
        pass


@on_loop
async def test_a_cancelled_one_is_gone_at_once_and_not_when_garbage_is_collected():
    gc.disable()
    try:
        caller = Caller(Promise())
        seen = weakref.ref(caller)
        caller.paused.cancel()
        del caller
        assert seen() is None
    finally:
        gc.enable()


@on_loop
async def test_an_error_is_gone_once_it_has_been_raised():
    gc.disable()
    try:
        later = Promise()
        seen = weakref.ref(later)
        caller = Caller(later)
        reject(later, ValueError("no"))
        del later
        with contextlib.suppress(ValueError):
            caller.paused.go_on()
        assert seen() is None
    finally:
        gc.enable()
