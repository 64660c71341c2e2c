"""One call of a kind at a time in a thread, or a few, whoever waits or leaves."""

import asyncio
import gc
import threading
import weakref

import pytest

from inferd.aio import offload as offload_module
from inferd.aio.offload import Offload, Work
from inferd.errors import Unavailable


class Gate:
    """A function that ends when it is let; it counts how many run it at once."""

    def __init__(self):
        self.open = threading.Event()
        self.started = threading.Semaphore(0)
        self.running = self.most = 0

    def __call__(self, value):
        self.running += 1
        self.most = max(self.most, self.running)
        self.started.release()
        assert self.open.wait(20)
        self.running -= 1
        return value


class Big:
    """Stands for a request of some size."""


async def turns(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_a_function_returns_or_raises_is_passed_on():
    offload = Offload()
    assert await offload.run(Work.DECODE, int, "7") == 7
    with pytest.raises(ValueError, match="invalid literal"):
        await offload.run(Work.DECODE, int, "seven")
    assert (
        await offload.run(Work.DECODE, lambda: threading.current_thread().name) == "inferd-decode"
    )
    assert await offload.run(Work.DECODE, lambda: threading.current_thread().daemon)


async def test_calls_run_one_at_a_time_in_order():
    offload, gate = Offload(), Gate()
    calls = [asyncio.ensure_future(offload.run(Work.DECODE, gate, number)) for number in range(5)]
    await turns()
    gate.open.set()
    assert await asyncio.gather(*calls) == list(range(5))
    assert gate.most == 1


async def test_a_wider_kind_runs_a_few_at_a_time():
    offload, gate = Offload({Work.DECODE: 3}), Gate()
    calls = [asyncio.ensure_future(offload.run(Work.DECODE, gate, number)) for number in range(9)]
    await turns()
    for _ in range(3):
        assert gate.started.acquire(timeout=20)
    gate.open.set()
    assert await asyncio.gather(*calls) == list(range(9))
    assert gate.most == 3


async def test_calls_of_other_kinds_need_not_wait():
    offload, gate = Offload(), Gate()
    first = asyncio.ensure_future(offload.run(Work.DECODE, gate, 1))
    assert await offload.run(Work.ENCODE, int, "7") == 7
    assert not first.done()
    gate.open.set()
    assert await first == 1


async def test_a_thread_whose_caller_has_gone_still_counts():
    offload, gate = Offload(), Gate()
    first = asyncio.ensure_future(offload.run(Work.DECODE, gate, 1))
    await turns()
    assert gate.started.acquire(timeout=20)
    first.cancel()
    second = asyncio.ensure_future(offload.run(Work.DECODE, gate, 2))
    await turns()
    assert first.cancelled()
    assert gate.running == 1
    gate.open.set()
    assert await second == 2
    assert gate.most == 1


@pytest.mark.slow
async def test_who_leaves_while_waiting_leaves_nothing_behind():
    offload, gate, big = Offload(), Gate(), Big()
    first = asyncio.ensure_future(offload.run(Work.DECODE, gate, 1))
    second = asyncio.ensure_future(offload.run(Work.DECODE, gate, big))
    await turns()
    second.cancel()
    await turns()
    found = weakref.ref(big)
    del big, second
    gc.collect()
    assert found() is None
    gate.open.set()
    assert await first == 1


async def test_a_failure_leaves_nothing_for_the_garbage_collector():
    def fail(_big):
        msg = "on purpose"
        raise ValueError(msg)

    big = Big()
    found = weakref.ref(big)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ValueError, match="on purpose"):
            await Offload().run(Work.DECODE, fail, big)
        del big
        for thread in threading.enumerate():  # it may still have to come to its end
            if thread.name == "inferd-decode":
                thread.join()
        await turns()
        assert found() is None
    finally:
        gc.enable()


async def test_only_so_many_wait(monkeypatch):
    monkeypatch.setattr(offload_module, "MAX_WAITING", 2)
    offload, gate = Offload(), Gate()
    calls = [asyncio.ensure_future(offload.run(Work.DECODE, gate, number)) for number in range(2)]
    await turns()
    with pytest.raises(Unavailable, match="2 large requests are waiting"):
        await offload.run(Work.ENCODE, gate, 3)
    assert await offload.run(Work.PROCESS_METRICS, int, "3") == 3
    calls[1].cancel()
    await turns()
    calls.append(asyncio.ensure_future(offload.run(Work.DECODE, gate, 4)))
    await turns()
    gate.open.set()
    assert await calls[0] == 0
    assert await calls[2] == 4


async def test_a_system_without_threads_costs_one_call(monkeypatch):
    offload = Offload()
    with monkeypatch.context() as patch:
        # The limit of the system, which a test cannot reach without harm to others.
        def fail(_thread):
            msg = "can't start new thread"
            raise RuntimeError(msg)

        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError):
            await offload.run(Work.DECODE, int, "1")
    assert await offload.run(Work.DECODE, int, "2") == 2


def test_a_call_that_never_ends_does_not_keep_the_loop_from_closing():
    gate = Gate()

    async def leave():
        call = asyncio.ensure_future(Offload().run(Work.DECODE, gate, 1))
        await turns()
        call.cancel()

    asyncio.run(leave())
    gate.open.set()  # what it has to tell is told to nobody
