"""Work in threads that nobody has to wait for."""

import asyncio
import threading

import pytest

from inferd.aio.thread import in_daemon_thread

PATIENCE_S = 30


def test_the_result_comes_back_from_a_daemon():
    def work():
        thread = threading.current_thread()
        return thread.name, thread.daemon

    assert asyncio.run(in_daemon_thread(work, name="a name")) == ("a name", True)


def test_what_is_raised_is_raised():
    def work():
        raise SystemExit

    async def go():
        with pytest.raises(SystemExit):
            await in_daemon_thread(work)

    asyncio.run(go())


def test_a_result_nobody_waits_for_is_handed_over():
    may_end = threading.Event()

    def work():
        assert may_end.wait(PATIENCE_S)
        return 7

    async def go():
        given = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(in_daemon_thread(work, given_up=given.set_result))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        may_end.set()
        return await asyncio.wait_for(given, PATIENCE_S)

    assert asyncio.run(go()) == 7


@pytest.mark.parametrize("end", [None, ArithmeticError("nobody hears this")])
def test_a_thread_that_outlives_the_loop_tells_nobody(end):
    may_end, has_ended = threading.Event(), threading.Event()

    def work():
        assert may_end.wait(PATIENCE_S)
        has_ended.set()
        if end:
            raise end

    async def go():
        waiting = asyncio.create_task(in_daemon_thread(work))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(go())
    may_end.set()
    assert has_ended.wait(PATIENCE_S)
