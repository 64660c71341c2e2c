"""Instances that work elsewhere: who gets which request, and what happens when they go."""

import asyncio

import pytest
from fields import with_fields

from inferd.core.interfaces import Opened
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import Unavailable
from inferd.schedulers.execution.execution import Execution


class Gone(Unavailable):
    is_lost = True


class Untaken(Gone):
    is_untaken = True


class Elsewhere:
    """An instance that answers when the test says so."""

    def __init__(self, *, retries=False, room=1):
        self.is_free = True
        self.room = room
        self.running_count = 0
        self.unavailable_reason = ""
        self.retries = retries
        self.on_change = lambda: None
        self.running = []
        self.cancelled = []
        self.credits = []
        self.is_attached = self.is_closed = False

    def attach(self, loop):
        self.is_attached = True

    def begin(self, requests, finish):
        self.running_count += 1
        self.is_free = self.running_count < self.room
        self.running.append((requests, finish))

    def answer(self, error=None):
        requests, finish = self.running.pop(0)
        self.is_free = True
        self.running_count -= 1
        finish(error or [InferResponse(r.model, "1", r.id) for r in requests])
        self.on_change()

    def begin_stream(self, request, deliver):
        self.running.append((request, deliver))
        return len(self.running)

    def cancel(self, requests):
        self.cancelled += [request.id for request in requests]

    def cancel_stream(self, number):
        self.cancelled.append(number)

    def credit(self, number, share):
        self.credits.append((number, share))

    def execute(self, requests):
        raise NotImplementedError

    async def says_ready(self):
        return True

    def close(self):
        self.is_closed = True

    async def closed(self, timeout_s):
        del timeout_s


def request(id, callers=()):
    return with_fields(InferRequest("m", id=id), callers=callers)


def run(test):
    asyncio.run(asyncio.wait_for(test(), 30))


def started(execution, one):
    return asyncio.ensure_future(execution.run((one,)))


def test_requests_wait_for_a_free_instance_in_their_order():
    async def test():
        one = Elsewhere()
        execution = Execution("m", [Opened(one, one)], may_run_inline=False)
        tasks = [started(execution, request(str(number))) for number in range(3)]
        await asyncio.sleep(0)
        assert one.is_attached
        assert len(one.running) == 1
        assert execution.pending_count == 2
        for number, task in enumerate(tasks):
            one.answer()
            [answer] = await task
            assert answer.id == str(number)

    run(test)


def test_a_request_given_up_while_it_waits_never_runs_and_one_that_runs_is_cancelled():
    async def test():
        one = Elsewhere()
        execution = Execution("m", [Opened(one, one)], may_run_inline=False)
        runs, waits = started(execution, request("runs")), started(execution, request("waits"))
        await asyncio.sleep(0)
        for task in (waits, runs):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert one.cancelled == ["runs"]
        one.answer()
        assert one.running == []
        assert execution.pending_count == 0

    run(test)


def test_what_was_lost_fails_unless_the_instance_lets_it_run_again_once():
    async def test():
        for retries in (False, True):
            one = Elsewhere(retries=retries)
            execution = Execution("m", [Opened(one, one)], may_run_inline=False)
            task = started(execution, request("r"))
            await asyncio.sleep(0)
            one.answer(Gone("gone"))
            if retries:
                assert len(one.running) == 1
                one.answer(Gone("gone again"))
            with pytest.raises(Gone, match="gone again" if retries else "gone"):
                await task

    run(test)


def test_what_no_instance_has_taken_waits_for_the_next():
    async def test():
        one = Elsewhere()
        execution = Execution("m", [Opened(one, one)], may_run_inline=False)
        task = started(execution, request("r"))
        await asyncio.sleep(0)
        for _ in range(3):
            one.answer(Untaken("it had ended"))
        one.answer()
        [answer] = await task
        assert answer.id == "r"

    run(test)


def test_all_are_refused_when_no_instance_will_come_up_soon():
    async def test():
        one, two = Elsewhere(), Elsewhere()
        execution = Execution("m", [Opened(one, one), Opened(two, two)], may_run_inline=False)
        one.is_free = two.is_free = False
        task = started(execution, request("r"))
        await asyncio.sleep(0)
        one.unavailable_reason = "it dies"
        one.on_change()
        assert not task.done()
        two.unavailable_reason = "it dies, too"
        two.on_change()
        with pytest.raises(Unavailable, match="model 'm' cannot run: it dies"):
            await task
        with pytest.raises(Unavailable, match="cannot run"):
            await execution.run((request("s"),))

    run(test)


def test_a_model_that_would_wait_for_itself_is_told():
    async def test():
        one = Elsewhere()
        execution = Execution("m", [Opened(one, one)], may_run_inline=False)
        first = started(execution, request("outer"))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="a -> m -> b -> m"):
            await execution.run((request("inner", ("a", "m", "b")),))
        other = started(execution, request("other", ("a", "b")))
        await asyncio.sleep(0)
        one.answer()
        one.answer()
        await asyncio.gather(first, other)

    run(test)


def test_a_stream_gives_room_for_what_was_taken_and_ends_when_it_is_closed():
    async def test():
        one = Elsewhere()
        execution = Execution("m", [Opened(one, one)], may_run_inline=False)
        answers = execution.stream(request("s"))
        first = asyncio.ensure_future(anext(answers))
        await asyncio.sleep(0)
        _, deliver = one.running[0]
        deliver(InferResponse("m", "1", "s", final=False), 3)
        assert (await first).id == "s"
        assert one.credits == [(1, 3)]
        await answers.aclose()
        assert one.cancelled == [1]

    run(test)


def test_close_ends_with_the_last_answer():
    async def test():
        one = Elsewhere()
        execution = Execution("m", [Opened(one, one)], may_run_inline=False)
        task = started(execution, request("r"))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(execution.close(1000))
        await asyncio.sleep(0)
        assert not one.is_closed
        requests, finish = one.running.pop()
        finish([InferResponse(r.model, "1", r.id) for r in requests])  # and nothing changes
        await closing
        await task
        assert one.is_closed

    run(test)


def test_close_waits_for_what_runs_and_refuses_the_rest_in_the_end():
    async def test():
        one = Elsewhere()
        execution = Execution("m", [Opened(one, one)], may_run_inline=False)
        runs, waits = started(execution, request("runs")), started(execution, request("waits"))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(execution.close(0.01))
        with pytest.raises(Unavailable, match="is being unloaded"):
            await waits
        await closing
        assert one.is_closed
        one.answer()
        await runs
        with pytest.raises(Unavailable, match="is being unloaded"):
            await execution.run((request("late"),))

    run(test)


def test_of_requests_that_run_together_one_can_be_cancelled():
    async def test():
        one, other = Elsewhere(), Elsewhere()
        execution = Execution("m", [Opened(one, one), Opened(other, other)], may_run_inline=False)
        batches = [[request("a"), request("b")], [request("c")]]
        outcomes = []
        for batch in batches:
            execution.begin(batch, outcomes.append)
        execution.cancel(batches[0][1])
        execution.cancel(request("unknown"))
        assert (one.cancelled, other.cancelled) == (["b"], [])
        one.answer()
        assert [answer.id for answer in outcomes[0]] == ["a", "b"]
        execution.cancel(batches[0][1])  # it is too late
        assert one.cancelled == ["b"]

    run(test)


def test_of_those_that_take_several_the_one_with_the_least_gets_the_next():
    async def test():
        one, two = Roomy(), Roomy()
        execution = Execution("m", [Opened(one, one), Opened(two, two)], may_run_inline=False)
        tasks = [started(execution, request(str(n))) for n in range(4)]
        await asyncio.sleep(0)
        ids = [[requests[0].id for requests, _ in each.running] for each in (one, two)]
        assert ids == [["0", "2"], ["1", "3"]]
        for each in (one, one, two, two):
            each.answer()
        await asyncio.gather(*tasks)

    run(test)


class Roomy(Elsewhere):
    """One that always takes one more."""

    def begin(self, requests, finish):
        super().begin(requests, finish)
        self.is_free = True


def test_of_one_kind_an_instance_goes_when_it_is_done_though_another_kind_is_free():
    async def go():
        busy, free = Elsewhere(), Elsewhere()
        pairs = [Opened(busy, busy, kind="a"), Opened(free, free, kind="b")]
        execution = Execution("m", pairs, may_run_inline=False)
        waits = asyncio.create_task(execution.run((request("x"),)))
        await asyncio.sleep(0)
        execution.shrink("c")  # there is none
        execution.shrink("a")
        assert not busy.is_closed
        busy.answer()
        await waits
        assert busy.is_closed and not free.is_closed
        await execution.close(5)

    asyncio.run(go())


def test_of_free_instances_the_newest_goes():
    async def go():
        one, two, three = Elsewhere(), Elsewhere(), Elsewhere()
        pairs = [Opened(one, one), Opened(two, two), Opened(three, three)]
        execution = Execution("m", pairs, may_run_inline=False)
        execution.shrink()
        assert three.is_closed and not (one.is_closed or two.is_closed)
        assert execution.instances == [one, two]
        await execution.close(5)

    asyncio.run(go())


def test_what_may_not_wait_long_or_what_others_wait_for_is_not_given_ahead():
    async def test():
        one = Elsewhere(room=3)
        execution = Execution("m", [Opened(one, one)], may_run_inline=False)
        timed = with_fields(InferRequest("m", id="timed"), timeout_us=60_000_000)
        plain, called = request("plain"), request("called", callers=("a",))
        tasks = [
            started(execution, each)
            for each in (request("first"), request("ahead"), timed, plain, called)
        ]
        await asyncio.sleep(0)
        ids = lambda: [requests[0].id for requests, _ in one.running]  # noqa: E731
        assert ids() == ["first", "ahead"]
        assert execution.pending_count == 4  # all but the first
        one.answer()
        assert ids() == ["ahead"]
        one.answer()
        assert ids() == ["timed", "plain"]  # in their order
        one.answer()
        one.answer()
        assert ids() == ["called"]
        one.answer()
        await asyncio.gather(*tasks)

    run(test)


def test_a_model_that_calls_itself_is_told_though_it_could_be_given_more():
    async def test():
        one = Elsewhere(room=3)
        execution = Execution("m", [Opened(one, one)], may_run_inline=False)
        outer = started(execution, request("outer"))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="while all its instances wait for that call"):
            await execution.run((request("inner", callers=("m",)),))
        one.answer()
        await outer

    run(test)


def test_what_was_given_ahead_and_not_begun_runs_before_those_that_wait_and_may_be_lost_later():
    async def test():
        one = Elsewhere(retries=True, room=3)
        execution = Execution("m", [Opened(one, one)], may_run_inline=False)
        tasks = [started(execution, request(id)) for id in "abcd"]
        await asyncio.sleep(0)
        assert len(one.running) == 3
        running, one.running = one.running, []
        one.running_count, one.is_free = 0, False
        finishes = [finish for _, finish in running]
        finishes[0](Gone("lost"))  # it may run once more, behind the others
        finishes[2](Untaken("not begun"))
        finishes[1](Untaken("not begun"))
        one.is_free = True
        one.on_change()
        assert [requests[0].id for requests, _ in one.running] == ["b", "c", "d"]
        one.answer(Gone("lost"))
        while one.running:
            one.answer()
        answers = await asyncio.gather(*tasks)
        assert [answer.id for [answer] in answers] == list("abcd")

    run(test)


def test_there_is_room_beside_streams_that_go_on_when_their_instance_is_free():
    async def test():
        one, heard = Elsewhere(), []
        execution = Execution("m", [Opened(one, one)], may_run_inline=False)
        execution.on_room = lambda: heard.append(len(one.running))
        assert execution.has_room
        one.is_free = False
        one.on_change()
        assert not execution.has_room
        assert heard == []
        one.is_free = True
        one.on_change()
        assert heard == [0]
        one.is_free = False
        waits = started(execution, request("waits"))
        await asyncio.sleep(0)
        one.is_free = True
        assert not execution.has_room  # who waits is first
        one.on_change()
        assert heard == [0]
        one.answer()
        await waits

    run(test)
