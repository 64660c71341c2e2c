import asyncio
import gc
import os
import time

import pytest
import uvloop

from inferd.aio import timer as timer
from inferd.aio.timer import PreciseTimer

PATIENCE_S = 30
MS = 1_000_000


@pytest.fixture(params=["file", "loop"])
def kind(request, monkeypatch):
    """The timer that is a file, and what a system without it has."""
    if request.param == "loop":
        monkeypatch.setattr(timer.ctypes, "CDLL", lambda *_args, **_kwargs: object())
    return request.param


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop])
def alarms(request, kind):
    """alarms(serve) awaits serve(alarm, woken): woken gets the time of each wake-up, in ns."""

    def go(serve):
        async def whole():
            woken = asyncio.Queue()
            one = PreciseTimer(lambda: woken.put_nowait(time.perf_counter_ns()))
            try:
                return await serve(one, woken)
            finally:
                one.close()
                one.close()

        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(whole())

    return go


async def wakes(woken):
    return await asyncio.wait_for(woken.get(), PATIENCE_S)


def test_an_alarm_goes_off_when_its_time_has_come(alarms, kind):
    async def serve(one, woken):
        for wait_ns in (300_000, 5 * MS):
            due_ns = one.clock() + wait_ns
            one.set(due_ns)
            if kind == "file":  # the loop's own timer may be early, and is asked again
                assert await wakes(woken) >= due_ns
            else:
                await wakes(woken)

    alarms(serve)


def test_an_alarm_for_the_past_goes_off_at_once(alarms):
    async def serve(one, woken):
        one.set(one.clock() - MS)
        await wakes(woken)
        one.set(1)
        await wakes(woken)

    alarms(serve)


def test_an_earlier_time_counts(alarms):
    async def serve(one, woken):
        far_ns = one.clock() + 3600 * 1000 * MS
        one.set(far_ns)
        one.set(one.clock() + 2 * MS)
        one.set(far_ns)  # a later one does not put it off
        assert await wakes(woken) < far_ns
        one.set(10**30)  # longer than any system counts
        one.set(one.clock() + MS)
        await wakes(woken)

    alarms(serve)


def test_soon_is_after_everybody_elses_turn_and_once(alarms):
    async def serve(one, woken):
        one.set_soon()
        one.set_soon()
        asyncio.get_running_loop().call_soon(woken.put_nowait, "after")
        assert await wakes(woken) != "after"
        assert await wakes(woken) == "after"
        one.set_soon()
        await wakes(woken)

    alarms(serve)


def test_a_closed_alarm_is_silent_and_its_file_is_gone(alarms):
    gc.collect()  # what earlier tests left
    before = len(os.listdir("/proc/self/fd"))

    async def serve(one, woken):
        one.set(one.clock() + MS)
        one.close()
        other = PreciseTimer(lambda: woken.put_nowait("other"))
        other.set(other.clock() + 3 * MS)
        assert await wakes(woken) == "other"
        other.close()

    alarms(serve)
    assert len(os.listdir("/proc/self/fd")) == before
