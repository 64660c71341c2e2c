"""Coroutines that are driven by hand."""

import asyncio
import contextlib
import functools
import gc
import weakref

import pytest

from inferd.aio.driver import Driver, cancel_soon, fulfil, reject
from inferd.aio.promise import Promise


def on_loop(test):
    """Run a test on an event loop."""

    @functools.wraps(test)
    def run():
        asyncio.run(asyncio.wait_for(test(), 10))

    return run


class Handler:
    """Waits for `promise`, and notes what happens; its driver goes on when the test says so."""

    def __init__(self, after=()):
        self.promise = Promise()
        self.log = []
        self._after = after
        self.driver = Driver(self.run(), lambda: self.log.append("woken"), self.note_end)
        self.driver.step()

    async def run(self):
        try:
            self.log.append(await self.promise)
        except asyncio.CancelledError:
            self.log.append("cancelled")
            for other in self._after:
                self.log.append(await other)
            raise
        for other in self._after:
            self.log.append(await other)
        return "answer"

    def note_end(self, result, error):
        self.log.append(("ended", result, error))


async def soon():
    """Let what was started run."""
    for _ in range(3):
        await asyncio.sleep(0)


ANSWERED = ("ended", "answer", None)


@on_loop
async def test_one_that_never_waits_ends_at_once():
    async def run():
        return "at once"

    ends = []
    driver = Driver(run(), ends.clear, lambda *end: ends.append(end))
    driver.step()
    assert ends == [("at once", None)]


@on_loop
async def test_one_that_waits_is_woken_and_goes_on_when_its_owner_says_so():
    handler = Handler()
    driver = handler.driver
    driver.go_on()  # too early
    assert not driver.is_due() and handler.log == []
    fulfil(handler.promise, "it")
    assert driver.is_due() and not driver.has_task
    assert handler.log == ["woken"]
    driver.go_on()
    driver.go_on()
    assert handler.log == ["woken", "it", ANSWERED]


@on_loop
async def test_a_task_takes_over_what_waits_for_something_else():
    other = asyncio.get_running_loop().create_future()
    handler = Handler(after=(other,))
    fulfil(handler.promise, "it")
    handler.driver.go_on()
    assert handler.driver.has_task and not handler.driver.is_due()
    other.set_result("other")
    await soon()
    assert handler.log == ["woken", "it", "other", ANSWERED]


@pytest.mark.parametrize("in_task", [False, True])
def test_its_error_is_its_owners(in_task):
    async def check():
        other = asyncio.get_running_loop().create_future()
        handler = Handler(after=(other,) if in_task else ())
        error = ValueError("no")
        if in_task:
            fulfil(handler.promise, "it")
            other.set_exception(error)
        else:
            reject(handler.promise, error)
        handler.driver.go_on()
        await soon()
        assert handler.log[-1] == ("ended", None, error)

    asyncio.run(check())


@on_loop
async def test_a_cancelled_one_ends_and_is_not_gone_on_with():
    handler = Handler()
    handler.driver.cancel()
    handler.driver.cancel()
    handler.driver.go_on()
    assert handler.log == ["cancelled"]


@on_loop
async def test_one_that_is_cancelled_when_it_is_due_ends_as_cancelled():
    handler = Handler()
    fulfil(handler.promise, "it")
    handler.driver.cancel()
    assert handler.log == ["woken", "cancelled"]


@on_loop
async def test_one_that_has_ended_is_not_cancelled():
    handler = Handler()
    fulfil(handler.promise, "it")
    handler.driver.go_on()
    handler.driver.cancel()
    assert handler.log == ["woken", "it", ANSWERED]


@on_loop
async def test_a_task_that_has_never_run_passes_its_cancellation_on():
    handler = Handler(after=(asyncio.get_running_loop().create_future(),))
    fulfil(handler.promise, "it")
    handler.driver.go_on()
    cancel_soon(handler.driver)
    await soon()
    [*_, (_, _, error)] = handler.log
    assert isinstance(error, asyncio.CancelledError)


@on_loop
async def test_an_error_of_a_cancelled_one_is_nobodys():
    failing = asyncio.get_running_loop().create_future()
    failing.set_exception(ValueError("while it ended"))
    handler = Handler(after=(failing,))
    handler.driver.cancel()
    assert handler.log == ["cancelled"]


@on_loop
async def test_what_a_cancelled_one_still_waits_for_is_waited_for():
    last = asyncio.get_running_loop().create_future()
    handler = Handler(after=(last,))
    handler.driver.cancel()
    last.set_result("closed")
    await soon()
    assert handler.log == ["cancelled", "closed"]


class Caller:
    """Has a coroutine driven, as connections and calls do."""

    def __init__(self, promise):
        promises = [promise]

        async def run():
            await promises.pop()  # so that its frame does not keep it

        self.driver = Driver(run(), self.wake, self.ended)
        self.driver.step()

    def wake(self):
        pass

    def ended(self, _result, error):
        self.driver = None
        if error is not None:
            raise error


@on_loop
async def test_a_cancelled_one_is_gone_at_once_and_not_when_garbage_is_collected():
    gc.disable()
    try:
        caller = Caller(Promise())
        seen = weakref.ref(caller)
        driver, caller.driver = caller.driver, None
        driver.cancel()
        del caller, driver
        assert seen() is None
    finally:
        gc.enable()


@on_loop
async def test_an_error_is_gone_once_it_has_been_raised():
    gc.disable()
    try:
        promise = Promise()
        seen = weakref.ref(promise)
        caller = Caller(promise)
        reject(promise, ValueError("no"))
        del promise
        with contextlib.suppress(ValueError):
            caller.driver.go_on()
        assert seen() is None
    finally:
        gc.enable()
