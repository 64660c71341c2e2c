import asyncio
from concurrent.futures import Future

import pytest

from inferd.core.interfaces import Opened
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import BackendFailed, Cancelled, InvalidRequest, Overloaded, Unavailable
from inferd.schedulers import concurrent
from inferd.schedulers.concurrent import ConcurrentScheduler


class ByHand:
    """An instance whose requests are finished by the test."""

    def __init__(self):
        self.started = []
        self.flows = []
        self.is_closed = False

    def execute(self, requests):
        raise NotImplementedError

    def submit(self, request):
        self.started.append(Future())
        return self.started[-1]

    def flow(self, request, put):
        self.flows.append(FlowByHand(put))
        return self.flows[-1]

    def close(self):
        self.is_closed = True
        for future in self.started:
            future.cancel()


class FlowByHand:
    def __init__(self, put):
        self.put = put
        self.taken = 0
        self.is_ended = False

    def took_one(self):
        self.taken += 1

    def end(self):
        self.is_ended = True


def answer():
    return InferResponse("m", "1")


async def begun(*coroutines):
    tasks = [asyncio.create_task(one) for one in coroutines]
    await asyncio.sleep(0)
    return tasks


def test_all_requests_are_under_way_at_once_spread_over_the_instances():
    async def go():
        instances = [ByHand(), ByHand()]
        scheduler = ConcurrentScheduler("m", [Opened(one, one) for one in instances])
        requests = [InferRequest("m") for _ in range(4)]
        tasks = await begun(*map(scheduler.run, requests))
        assert [len(one.started) for one in instances] == [2, 2]
        assert scheduler.pending_count == 0
        for one in instances:
            for future in one.started:
                future.set_result(answer())
        assert await asyncio.gather(*tasks) == [answer()] * 4
        assert all(0 < request.started_ns <= request.ended_ns for request in requests)

    asyncio.run(go())


@pytest.mark.parametrize(
    ("error", "kind"),
    [(InvalidRequest("x"), InvalidRequest), (ValueError("x"), BackendFailed)],
)
def test_what_fails_is_told_in_our_words(error, kind):
    async def go():
        instance = ByHand()
        scheduler = ConcurrentScheduler("m", [Opened(instance, instance)])
        [task] = await begun(scheduler.run(InferRequest("m")))
        instance.started[0].set_exception(error)
        with pytest.raises(kind, match="x"):
            await task

    asyncio.run(go())


def test_what_nobody_waits_for_is_cancelled():
    async def go():
        instance = ByHand()
        [task] = await begun(
            ConcurrentScheduler("m", [Opened(instance, instance)]).run(InferRequest("m"))
        )
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert instance.started[0].cancelled()

    asyncio.run(go())


def test_a_request_that_its_model_cancelled_fails_and_its_caller_goes_on():
    async def go():
        instance = ByHand()
        [task] = await begun(
            ConcurrentScheduler("m", [Opened(instance, instance)]).run(InferRequest("m"))
        )
        instance.started[0].cancel()
        with pytest.raises(Cancelled, match="model 'm' cancelled the request"):
            await task

    asyncio.run(go())


def test_too_many_under_way_are_refused(monkeypatch):
    monkeypatch.setattr(concurrent, "MAX_WAITING", 2)

    async def go():
        instance = ByHand()
        scheduler = ConcurrentScheduler("m", [Opened(instance, instance)])
        tasks = await begun(*(scheduler.run(InferRequest("m")) for _ in range(2)))
        with pytest.raises(Overloaded, match="model 'm' has 2 requests under way"):
            await scheduler.run(InferRequest("m"))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        [task] = await begun(scheduler.run(InferRequest("m")))
        task.cancel()

    asyncio.run(go())


def test_answers_are_taken_one_by_one_until_the_end():
    async def go():
        instance = ByHand()
        answers = ConcurrentScheduler("m", [Opened(instance, instance)]).stream(InferRequest("m"))
        [first] = await begun(anext(answers))
        [flow] = instance.flows
        flow.put(answer())
        await first
        assert flow.taken == 1
        flow.put(answer())
        flow.put(None)
        assert len([one async for one in answers]) == 1
        assert flow.is_ended

    asyncio.run(go())


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ValueError("x"), BackendFailed), (asyncio.CancelledError(), Cancelled)],
)
def test_a_stream_fails_in_our_words(error, kind):
    async def go():
        instance = ByHand()
        answers = ConcurrentScheduler("m", [Opened(instance, instance)]).stream(InferRequest("m"))
        [first] = await begun(anext(answers))
        instance.flows[0].put(error)
        with pytest.raises(kind):
            await first

    asyncio.run(go())


def test_a_stream_nobody_reads_is_ended():
    async def go():
        instance = ByHand()
        answers = ConcurrentScheduler("m", [Opened(instance, instance)]).stream(InferRequest("m"))
        [first] = await begun(anext(answers))
        instance.flows[0].put(answer())
        await first
        await answers.aclose()
        assert instance.flows[0].is_ended

    asyncio.run(go())


def test_closing_waits_for_what_is_under_way_and_refuses_what_comes():
    async def go():
        instance = ByHand()
        scheduler = ConcurrentScheduler("m", [Opened(instance, instance)])
        [task] = await begun(scheduler.run(InferRequest("m")))
        [closing] = await begun(scheduler.close(60))
        with pytest.raises(Unavailable, match="model 'm' is being unloaded"):
            await scheduler.run(InferRequest("m"))
        assert not instance.is_closed
        instance.started[0].set_result(answer())
        assert await task == answer()
        await closing
        assert instance.is_closed

    asyncio.run(go())


def test_closing_gives_up_what_does_not_end():
    async def go():
        instance = ByHand()
        scheduler = ConcurrentScheduler("m", [Opened(instance, instance)])
        [task] = await begun(scheduler.run(InferRequest("m")))
        await scheduler.close(0)
        with pytest.raises(Unavailable, match="model 'm' is being unloaded"):
            await task

    asyncio.run(go())


def test_an_instance_that_comes_gets_requests():
    async def go():
        one, other = ByHand(), ByHand()
        scheduler = ConcurrentScheduler("m", [Opened(one, one)])
        tasks = await begun(scheduler.run(InferRequest("m")))
        scheduler.grow(Opened(other, other))
        tasks += await begun(scheduler.run(InferRequest("m")))
        assert [len(one.started), len(other.started)] == [1, 1]
        for instance in (one, other):
            instance.started[0].set_result(answer())
        await asyncio.gather(*tasks)
        await scheduler.close(5)
        assert one.is_closed and other.is_closed
        late = ByHand()
        scheduler.grow(Opened(late, late))
        await asyncio.gather(*scheduler._closing)
        assert late.is_closed

    asyncio.run(go())


def test_an_instance_of_one_kind_goes_though_another_has_less_to_do():
    async def go():
        one, other = ByHand(), ByHand()
        pairs = [Opened(one, one, kind="a"), Opened(other, other, kind="b")]
        scheduler = ConcurrentScheduler("m", pairs)
        tasks = await begun(scheduler.run(InferRequest("m")))
        scheduler.shrink("c")  # there is none
        scheduler.shrink("a")
        assert not one.is_closed
        one.started[0].set_result(answer())
        await asyncio.gather(*tasks)
        await asyncio.gather(*scheduler._closing)
        assert one.is_closed and not other.is_closed
        await scheduler.close(5)

    asyncio.run(go())


def test_an_instance_goes_when_its_requests_have_ended_and_the_last_one_stays():
    async def go():
        one, other = ByHand(), ByHand()
        scheduler = ConcurrentScheduler("m", [Opened(one, one), Opened(other, other)])
        tasks = await begun(*(scheduler.run(InferRequest("m")) for _ in range(2)))
        scheduler.shrink()
        scheduler.shrink()
        tasks += await begun(scheduler.run(InferRequest("m")))
        assert [len(one.started), len(other.started)] == [1, 2]
        assert not one.is_closed
        for future in one.started + other.started:
            future.set_result(answer())
        await asyncio.gather(*tasks)
        await asyncio.gather(*scheduler._closing)
        assert one.is_closed and not other.is_closed
        await scheduler.close(5)
        assert other.is_closed

    asyncio.run(go())
