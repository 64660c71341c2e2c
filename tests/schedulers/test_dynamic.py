import asyncio
import gc
import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest
from fields import with_fields
from simulation import MS, SimulatedExecution, SimulatedTimer, now_ms, passes, simulate

from inferd.config.model import DynamicBatching, ModelConfig, ModelInput, QueuePolicy
from inferd.core.interfaces import Opened
from inferd.core.request import InferRequest, InferResponse
from inferd.core.traits import InstanceTraits
from inferd.errors import (
    BackendFailed,
    Cancelled,
    Code,
    InferdError,
    InvalidRequest,
    Overloaded,
    Unavailable,
)
from inferd.observe.stats import Counts
from inferd.schedulers.dynamic import DynamicScheduler
from inferd.schedulers.execution.batch import BatchPlan
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.execution.promotion import FIRST_RUNS, Gauges, Usage
from inferd.schedulers.queueing.policy import MAX_WAITING
from inferd.schedulers.queueing.queue import RequestQueue
from inferd.schedulers.queueing.timing import DelayedTiming, FixedTiming
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

PATIENCE_S = 30
FIXED = ModelInput("A", DataType.INT8, (1,))
VARIABLE = replace(FIXED, dims=(-1,))
RAGGED = replace(VARIABLE, allow_ragged_batch=True)


def parts_of(batching, given=FIXED, max_batch_size=8):
    """Return what a scheduler is made of, beside an execution."""
    preferred = batching.preferred_batch_size or (max_batch_size,)
    timing = FixedTiming(max_batch_size, preferred, batching.max_queue_delay_microseconds)
    plan = BatchPlan(ModelConfig("m", max_batch_size=max_batch_size, input=(given,)))
    return RequestQueue("m", batching), timing, plan


def scheduler_of(execution, given=FIXED, max_batch_size=8, **batching):
    configured = DynamicBatching(**batching)
    return DynamicScheduler(
        execution,
        *parts_of(configured, given, max_batch_size),
        keeps_order=configured.preserve_ordering,
        timer=SimulatedTimer,
    )


def request_of(id="", size=1, length=1, **fields):
    tensor = Tensor("A", DataType.INT8, (size, length), bytes(size * length))
    return with_fields(InferRequest("m", id=id, inputs=[tensor], batch_size=size), **fields)


class Sent:
    """A request that was sent; `at_ms` is when it ended, `error` None if it was answered."""

    def __init__(self, scheduler, request):
        self.request = request
        self.at_ms = self.error = None
        self.task = asyncio.create_task(self._wait(scheduler))

    async def _wait(self, scheduler):
        try:
            answer = await scheduler.run(self.request)
            assert answer.id == self.request.id
        except InferdError as error:
            self.error = error
        finally:
            self.at_ms = now_ms()


def send(scheduler, *requests):
    return [Sent(scheduler, request) for request in requests]


async def ended(sent):
    await asyncio.gather(*(one.task for one in sent), return_exceptions=True)
    return [round(one.at_ms, 3) for one in sent]


def requests_of(ids, **fields):
    return [request_of(id, **fields) for id in ids]


# --- when a batch is sent ---


def test_requests_that_come_while_the_instance_is_busy_make_the_next_batch():
    async def serve():
        execution = SimulatedExecution(takes_ms=200)
        scheduler = scheduler_of(execution)
        assert await ended(send(scheduler, *requests_of("abcdef"))) == [200] + [400] * 5
        assert execution.batches() == ["a", "bcdef"]

    simulate(serve)


def test_a_delay_gathers_requests_until_the_oldest_has_waited_so_long():
    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(execution, max_queue_delay_microseconds=300_000)
        sent = []
        for id in "abc":
            sent += send(scheduler, request_of(id))
            await passes(20)
        assert await ended(sent) == [310] * 3
        assert execution.started == [(300, ["a", "b", "c"])]

    simulate(serve)


def test_in_a_hurry_what_waits_for_others_runs_at_once_and_so_does_all_that_comes():
    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(execution, max_queue_delay_microseconds=300_000)
        sent = send(scheduler, *requests_of("ab"))
        await passes(20)
        scheduler.hurry()
        scheduler.hurry()
        await passes(20)
        sent += send(scheduler, request_of("c"))
        await ended(sent)
        assert execution.started == [(20, ["a", "b"]), (40, ["c"])]

    simulate(serve)


def test_a_request_of_another_shape_ends_the_batch_at_once():
    async def serve():
        execution = SimulatedExecution(3)
        scheduler = scheduler_of(execution, VARIABLE, max_queue_delay_microseconds=300_000)
        await ended(send(scheduler, *(request_of(id, length=ord(id)) for id in "abc")))
        assert execution.started == [(0, ["a"]), (0, ["b"]), (300, ["c"])]

    simulate(serve)


def test_a_request_of_another_shape_is_not_overtaken():
    async def serve():
        execution = SimulatedExecution(takes_ms=10)
        scheduler = scheduler_of(execution, VARIABLE)
        [first] = send(scheduler, request_of("-"))
        await passes(1)
        lengths = {"a": 1, "b": 1, "c": 2, "d": 1}
        sent = send(scheduler, *(request_of(id, length=lengths[id]) for id in "abcd"))
        await ended([first, *sent])
        assert execution.batches() == ["-", "ab", "c", "d"]

    simulate(serve)


def test_ragged_requests_of_any_shape_share_a_batch():
    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(execution, RAGGED, max_queue_delay_microseconds=300_000)
        await ended(send(scheduler, *(request_of(id, length=ord(id)) for id in "abc")))
        assert execution.started == [(300, ["a", "b", "c"])]

    simulate(serve)


def test_a_preferred_size_is_sent_at_once_and_the_rest_after_the_delay():
    async def serve():
        execution = SimulatedExecution(2)
        scheduler = scheduler_of(
            execution, preferred_batch_size=(4,), max_queue_delay_microseconds=300_000
        )
        await ended(send(scheduler, *requests_of("abcdef")))
        assert execution.started == [(0, ["a", "b", "c", "d"]), (300, ["e", "f"])]

    simulate(serve)


def test_the_largest_preferred_size_that_waits_is_taken():
    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(execution, preferred_batch_size=(2, 4, 6))
        [first] = send(scheduler, request_of("-"))
        await passes(1)
        await ended([first, *send(scheduler, *requests_of("abcdefg"))])
        assert execution.batches() == ["-", "abcdef", "g"]

    simulate(serve)


def test_requests_that_fill_no_preferred_size_go_together_when_nothing_delays_them():
    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(execution, preferred_batch_size=(4,))
        [first] = send(scheduler, request_of("-"))
        await passes(1)
        await ended([first, *send(scheduler, *requests_of("abc"))])
        assert execution.batches() == ["-", "abc"]

    simulate(serve)


def test_no_request_is_split_to_fill_a_batch():
    async def serve():
        execution = SimulatedExecution(2)
        scheduler = scheduler_of(execution, max_queue_delay_microseconds=300_000)
        await ended(send(scheduler, *requests_of("abc", size=3)))
        assert execution.started == [(0, ["a", "b"]), (300, ["c"])]

    simulate(serve)


def test_a_request_as_large_as_a_batch_does_not_wait():
    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(execution, max_queue_delay_microseconds=300_000)
        assert await ended(send(scheduler, request_of(size=8))) == [10]

    simulate(serve)


def test_instances_share_one_queue():
    async def serve():
        execution = SimulatedExecution(2)
        scheduler = scheduler_of(execution)
        await ended(send(scheduler, *requests_of("abcde")))
        assert execution.batches() == ["a", "b", "cde"]

    simulate(serve)


def test_the_instance_that_is_done_first_takes_the_next_batch():
    async def serve():
        execution = SimulatedExecution(2, lambda requests: 100 if requests[0].id == "a" else 10)
        scheduler = scheduler_of(execution, max_batch_size=1)
        assert await ended(send(scheduler, *requests_of("abcd"))) == [100, 10, 20, 30]

    simulate(serve)


def test_a_model_that_does_not_batch_runs_each_request_alone():
    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(execution, max_batch_size=0)
        await ended(send(scheduler, *requests_of("abc")))
        assert execution.batches() == ["a", "b", "c"]

    simulate(serve)


def test_those_in_the_queue_are_pending_and_know_since_when():
    async def serve():
        scheduler = scheduler_of(SimulatedExecution())
        send(scheduler, request_of("a"))
        await passes(1)
        sent = send(scheduler, *requests_of("bc"))
        await passes(1)
        assert scheduler.pending_count == 2
        assert {one.request.queued_ns for one in sent} == {2 * MS}
        await ended(sent)
        assert scheduler.pending_count == 0

    simulate(serve)


def test_a_stream_has_one_answer():
    async def serve():
        scheduler = scheduler_of(SimulatedExecution())
        return [answer.id async for answer in scheduler.stream(request_of("a"))]

    assert simulate(serve) == ["a"]


class Noting(FixedTiming):
    """Notes what it is told."""

    def __init__(self):
        super().__init__(8, (8,), 0)
        self.told = []

    def arrived(self, waiting_count):
        self.told.append(("came", waiting_count))

    def started(self, count):
        self.told.append(("started", count))

    def ended(self, count, size, took_ns):
        self.told.append(("ended", count, size, took_ns))

    def ran(self, count, size, took_ns):
        self.told.append(("ran", count, size, took_ns))


def noted(*requests, outcome=None, quick=False, **execution_is):
    """What the pace is told of `requests`, sent at once."""
    timing = Noting()

    async def serve():
        execution = SimulatedExecution(is_quick=quick)
        execution.outcome = outcome
        for name, value in execution_is.items():
            setattr(execution, name, value)
        queue, _, plan = parts_of(DynamicBatching())
        scheduler = DynamicScheduler(execution, queue, timing, plan, timer=SimulatedTimer)
        await ended(send(scheduler, *requests))

    simulate(serve)
    return timing.told


def test_the_pace_is_told_of_all_that_happens():
    took_ns = 10 * MS
    assert noted(request_of(size=2), request_of(), request_of(size=3)) == [
        ("came", 1),
        ("started", 1),
        ("came", 1),
        ("came", 2),
        ("ended", 1, 2, took_ns),
        ("started", 2),
        ("ended", 2, 4, took_ns),
    ]


@pytest.mark.parametrize("outcome", [BackendFailed("no"), [InvalidRequest("no")]])
def test_the_pace_is_told_what_failed(outcome):
    told = noted(request_of(), outcome=lambda _requests: outcome)
    assert told == [("came", 1), ("started", 1), ("ended", 1, 1, 0)]


def test_a_backend_that_does_not_tell_its_own_work_is_measured_too():
    assert noted(request_of(), tells_little=True)[-1] == ("ended", 1, 1, 10 * MS)


def test_what_a_model_computes_is_measured_in_cpu_time():
    assert noted(request_of(), cpu_share=0.9)[-1] == ("ended", 1, 1, 9 * MS)


# --- on the event loop ---


@pytest.mark.parametrize("kept", [False, True])
def test_a_quick_model_answers_without_waiting(kept):
    async def serve():
        scheduler = scheduler_of(SimulatedExecution(is_quick=True), preserve_ordering=kept)
        answering = scheduler.run(request_of("a"))
        with pytest.raises(StopIteration) as done:
            answering.send(None)
        return done.value.value.id

    assert simulate(serve) == "a"


def test_a_batch_on_the_loop_lets_others_have_their_turn_before_the_next():
    seen = []

    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(execution, max_batch_size=2)
        sent = send(scheduler, *requests_of("abcde"))
        await passes(1)
        execution.is_quick = True
        execution.outcome = lambda requests: (
            asyncio.get_running_loop().call_soon(seen.append, "turn"),
            seen.append("batch"),
            [request_answer(request) for request in requests],
        )[-1]
        await ended(sent)

    simulate(serve)
    assert seen == ["batch", "turn"] * 2


def request_answer(request):
    return InferResponse("m", "1", request.id)


# --- queue policies ---


def test_a_full_queue_refuses_at_once_and_counts_only_who_waits():
    async def serve():
        execution = SimulatedExecution(takes_ms=100)
        policy = QueuePolicy(max_queue_size=2)
        sent = send(scheduler_of(execution, default_queue_policy=policy), *requests_of("abcdefg"))
        assert await ended(sent) == [100, 200, 200, 0, 0, 0, 0]
        assert [type(one.error) for one in sent[3:]] == [Overloaded] * 4
        assert execution.batches() == ["a", "bc"]

    simulate(serve)


def test_a_timeout_is_answered_when_it_comes_though_all_instances_are_busy():
    async def serve():
        execution = SimulatedExecution(takes_ms=100)
        policy = QueuePolicy(default_timeout_microseconds=30_500)
        scheduler = scheduler_of(execution, default_queue_policy=policy)
        sent = send(scheduler, *requests_of("ab"))
        assert await ended(sent) == [100, 30.5]
        assert sent[1].error.code is Code.UNAVAILABLE
        assert execution.batches() == ["a"]

    simulate(serve)


def test_a_request_whose_time_is_over_when_the_instance_gets_free_does_not_run():
    async def serve():
        execution = SimulatedExecution(takes_ms=30)
        policy = QueuePolicy(default_timeout_microseconds=30_000)
        scheduler = scheduler_of(execution, default_queue_policy=policy)
        sent = send(scheduler, *requests_of("ab"))
        assert await ended(sent) == [30, 30]
        assert sent[1].error is not None
        assert execution.batches() == ["a"]

    simulate(serve)


def test_delayed_requests_run_when_nobody_else_waits():
    async def serve():
        execution = SimulatedExecution(takes_ms=100)
        policy = QueuePolicy("DELAY", default_timeout_microseconds=30_000)
        scheduler = scheduler_of(execution, max_batch_size=1, default_queue_policy=policy)
        sent = send(scheduler, *requests_of("ab"))
        await passes(90)
        sent += send(scheduler, request_of("c"))
        await passes(20)
        assert await ended(sent) == [100, 300, 200]

    simulate(serve)


def test_higher_priority_overtakes_who_waits():
    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(
            execution, max_batch_size=2, priority_levels=2, default_priority_level=2
        )
        sent = send(scheduler, *requests_of("abc"))
        await passes(1)
        sent += send(scheduler, *requests_of("de", priority=1))
        await ended(sent)
        assert execution.batches() == ["a", "de", "bc"]

    simulate(serve)


# --- who gives up ---


def test_a_cancelled_request_leaves_the_queue_and_never_runs():
    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(execution, default_queue_policy=QueuePolicy(max_queue_size=2))
        sent = send(scheduler, *requests_of("abc"))
        await passes(1)
        sent[1].task.cancel()
        await passes(1)
        sent += send(scheduler, request_of("d"))  # there is room again
        assert await ended(sent) == [10, 1, 20, 20]
        assert execution.batches() == ["a", "cd"]
        assert execution.cancelled == []

    simulate(serve)


def test_what_a_cancelled_request_leaves_at_a_preferred_size_waits_no_longer():
    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(
            execution, preferred_batch_size=(2, 8), max_queue_delay_microseconds=300_000
        )
        sent = send(scheduler, request_of("a", 3), request_of("b"), request_of("c"))
        await passes(20)
        sent[0].task.cancel()
        assert await ended(sent) == [20, 30, 30]
        assert execution.started == [(20, ["b", "c"])]

    simulate(serve)


def test_a_request_that_is_cancelled_while_it_runs_hurts_no_other():
    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(execution, max_queue_delay_microseconds=1000)
        sent = send(scheduler, *requests_of("ab"))
        await passes(2)
        sent[0].task.cancel()
        assert await ended(sent) == [2, 11]
        assert execution.cancelled == ["a"]
        assert await ended(send(scheduler, request_of("c"))) == [22]

    simulate(serve)


def test_a_coroutine_that_is_closed_leaves_the_queue_too():
    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(execution, default_queue_policy=QueuePolicy(max_queue_size=1))
        [first] = send(scheduler, request_of("a"))
        await passes(1)
        second = scheduler.run(request_of("b"))
        second.send(None)
        second.close()
        await ended([first, *send(scheduler, request_of("c"))])
        assert execution.batches() == ["a", "c"]

    simulate(serve)


def test_an_error_that_comes_with_the_cancellation_is_no_complaint():
    complaints = []

    async def serve():
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        execution = SimulatedExecution()
        execution.outcome = lambda _requests: BackendFailed("nobody hears this")
        scheduler = scheduler_of(execution)
        [sent] = send(scheduler, request_of())
        await passes(1)
        asyncio.get_running_loop().call_later(0.009, sent.task.cancel)
        await ended([sent])
        assert sent.at_ms == 10

    simulate(serve)
    gc.collect()
    assert complaints == []


# --- preserve_ordering ---


def test_answers_leave_in_the_order_of_their_requests_when_asked():
    async def serve():
        execution = SimulatedExecution(2, lambda requests: 100 if requests[0].id == "a" else 5)
        scheduler = scheduler_of(execution, max_batch_size=1, preserve_ordering=True)
        assert await ended(send(scheduler, *requests_of("abc"))) == [100] * 3

    simulate(serve)


def test_nobody_waits_for_the_answer_of_who_gave_up():
    async def serve():
        execution = SimulatedExecution(
            3, lambda requests: {"a": 100, "b": 50, "c": 5}[requests[0].id]
        )
        scheduler = scheduler_of(execution, max_batch_size=1, preserve_ordering=True)
        sent = send(scheduler, *requests_of("abc"))
        await passes(20)
        sent[0].task.cancel()
        assert await ended(sent) == [20, 50, 50]

    simulate(serve)


def test_errors_keep_the_order_too():
    async def serve():
        execution = SimulatedExecution(2, lambda requests: 100 if requests[0].id == "a" else 5)
        execution.outcome = lambda requests: BackendFailed(requests[0].id)
        scheduler = scheduler_of(execution, max_batch_size=1, preserve_ordering=True)
        sent = send(scheduler, *requests_of("ab"))
        assert await ended(sent) == [100, 100]
        assert [one.error.message for one in sent] == ["a", "b"]

    simulate(serve)


@pytest.mark.slow
def test_answers_that_are_held_back_have_a_limit():
    async def serve():
        execution = SimulatedExecution(2, lambda requests: 1000 if requests[0].id == "a" else 0)
        scheduler = scheduler_of(execution, max_batch_size=1, preserve_ordering=True)
        sent = send(scheduler, request_of("a"), *(request_of() for _ in range(MAX_WAITING - 1)))
        await passes(900)
        with pytest.raises(Unavailable, match="wait for the answers of those before"):
            await scheduler.run(request_of())
        assert set(await ended(sent)) == {1000}

    simulate(serve)


# --- what goes wrong ---


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("delay_us", [0, 1000])
def test_an_error_of_the_whole_batch_is_everybodys_own(quick, delay_us):
    cause = ValueError()

    def fail(_requests):
        error = BackendFailed("broken")
        error.code = Code.UNKNOWN
        error.__cause__ = cause
        return error

    async def serve():
        execution = SimulatedExecution(is_quick=quick)
        execution.outcome = fail
        scheduler = scheduler_of(execution, max_queue_delay_microseconds=delay_us)
        sent = send(scheduler, *requests_of("ab"))
        await ended(sent)
        first, second = (one.error for one in sent)
        assert first is not second
        for error in (first, second):
            assert (type(error), error.message) == (BackendFailed, "broken")
            assert (error.code, error.__cause__) == (Code.UNKNOWN, cause)

    simulate(serve)


@pytest.mark.parametrize("quick", [False, True])
def test_an_error_of_one_request_is_its_own(quick):
    async def serve():
        execution = SimulatedExecution(is_quick=quick)
        execution.outcome = lambda requests: [
            InvalidRequest("b") if request.id == "b" else request_answer(request)
            for request in requests
        ]
        scheduler = scheduler_of(execution, max_queue_delay_microseconds=1000)
        sent = send(scheduler, *requests_of("abc"))
        await ended(sent)
        assert execution.batches() == ["abc"]
        assert [one.error and one.error.message for one in sent] == [None, "b", None]

    simulate(serve)


def test_a_batch_the_model_cancels_is_cancelled_for_all():
    async def serve():
        execution = SimulatedExecution()
        execution.outcome = lambda _requests: Cancelled("by the model")
        scheduler = scheduler_of(execution, max_queue_delay_microseconds=1000)
        sent = send(scheduler, *requests_of("ab"))
        await ended(sent)
        assert {type(one.error) for one in sent} == {Cancelled}

    simulate(serve)


# --- closing ---


def test_closing_runs_who_waits_without_delay_and_takes_no_more():
    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(execution, max_queue_delay_microseconds=10**9)
        sent = send(scheduler, *requests_of("ab"))
        await passes(1)
        closing = asyncio.create_task(scheduler.close(1))
        await passes(1)
        with pytest.raises(Unavailable, match="is being unloaded"):
            await scheduler.run(request_of())
        assert not closing.done()
        await closing
        assert await ended(sent) == [11, 11]
        assert now_ms() == 11
        assert execution.is_closed

    simulate(serve)


def test_who_still_waits_when_the_time_is_over_is_refused():
    async def serve():
        execution = SimulatedExecution(takes_ms=1000)
        scheduler = scheduler_of(execution)
        sent = send(scheduler, *requests_of("ab"))
        await passes(1)
        await scheduler.close(0.1)
        assert (now_ms(), execution.is_closed, execution.close_timeout_s) == (101, True, 0)
        assert await ended(sent) == [1000, 101]
        assert sent[1].error.message == "model 'm' is being unloaded"

    simulate(serve)


def test_closing_does_not_wait_for_a_delay_nobody_waits_in():
    async def serve():
        scheduler = scheduler_of(SimulatedExecution())
        await scheduler.close(100)
        assert now_ms() == 0

    simulate(serve)


def test_a_request_given_up_while_closing_is_not_waited_for():
    async def serve():
        execution = SimulatedExecution(takes_ms=50)
        scheduler = scheduler_of(execution, max_batch_size=1)
        sent = send(scheduler, *requests_of("ab"))
        await passes(1)
        closing = asyncio.create_task(scheduler.close(100))
        await passes(1)
        sent[1].task.cancel()
        await closing
        assert now_ms() == 50

    simulate(serve)


# --- with real threads and instances ---


class Echoes:
    """An instance that notes what it executes together."""

    def __init__(self):
        self.batches = []
        self.outcome = None

    def execute(self, requests):
        self.batches.append("".join(request.id for request in requests))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return [request_answer(request) for request in requests]

    def close(self):
        pass


def real(instance, *, quick=False, keeps_order=False, **batching):
    clock = lambda: 0  # noqa: E731
    execution = Execution(
        "m",
        [Opened(instance, instance)],
        may_run_inline=quick,
        counts=Counts(clock),
        gauges=Gauges(clock, lambda: Usage(0, 0, 0)),
    )
    parts = parts_of(DynamicBatching(**batching))
    return DynamicScheduler(execution, *parts, keeps_order=keeps_order)


def test_batches_run_in_the_instances_thread_and_the_real_alarm_sends_them():
    async def serve():
        echoes = Echoes()
        scheduler = real(echoes, max_queue_delay_microseconds=2000)
        answers = await asyncio.gather(*(scheduler.run(request_of(id)) for id in "abc"))
        await scheduler.close(PATIENCE_S)
        assert [answer.id for answer in answers] == list("abc")
        assert echoes.batches == ["abc"]

    asyncio.run(serve())


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("delay_us", [0, 500])
@pytest.mark.parametrize("outcome", [InvalidRequest, ValueError])
def test_a_failed_request_leaves_no_tensors_for_the_garbage_collector(quick, delay_us, outcome):
    async def serve():
        echoes = Echoes()
        scheduler = real(echoes, quick=quick, max_queue_delay_microseconds=delay_us)
        for _ in range(FIRST_RUNS):
            await scheduler.run(request_of())
        array = np.zeros((1, 1), np.int8)
        data = weakref.ref(array)
        request = request_of()
        request.inputs[0].data = array
        del array
        echoes.outcome = outcome("raised")
        results = await asyncio.gather(
            scheduler.run(request), scheduler.run(request_of()), return_exceptions=True
        )
        assert all(isinstance(result, InferdError) for result in results)
        del request, results
        echoes.outcome = None
        await scheduler.run(request_of())  # a thread that takes the next has let go of the last
        await scheduler.close(PATIENCE_S)
        return data()

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(serve()) is None
    finally:
        gc.enable()


class Turn:
    """What an instance enters before it takes what is next; see Claim."""

    def __init__(self):
        self._lock = threading.Lock()

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()

    def renew(self):
        self._lock.release()
        self._lock.acquire()


@pytest.mark.parametrize("keeps_order", [False, True])
@pytest.mark.parametrize("delay_us", [0, 1000])
def test_who_is_late_while_a_batch_waits_for_its_turn_is_told_and_the_others_go_on(
    delay_us, keeps_order
):
    async def serve():
        echoes = Echoes()
        echoes.traits = InstanceTraits(turn=Turn())
        policy = QueuePolicy(default_timeout_microseconds=60_000_000, allow_timeout_override=True)
        batching = {"max_queue_delay_microseconds": delay_us, "default_queue_policy": policy}
        scheduler = real(echoes, keeps_order=keeps_order, **batching)
        asked = [request_of("late", timeout_us=20_000), request_of("patient")]
        with echoes.traits.turn:
            late, patient = [asyncio.create_task(scheduler.run(one)) for one in asked]
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(Unavailable, match="20000 microseconds"):
                    await late
            assert not patient.done()
        assert (await patient).id == "patient"
        await scheduler.close(PATIENCE_S)

    asyncio.run(serve())


class Walking(FixedTiming):
    """Counts how often it looks at the queue."""

    looks = 0

    def choose(self, queue, now_ns):
        self.looks += 1
        return super().choose(queue, now_ns)


def test_while_a_batch_gathers_the_queue_is_not_walked_for_each_request():
    async def serve():
        execution = SimulatedExecution()
        queue, _, plan = parts_of(DynamicBatching())
        timing = Walking(8, (4,), 5000)
        scheduler = DynamicScheduler(execution, queue, timing, plan, timer=SimulatedTimer)
        sent = send(scheduler, *requests_of("abcd"))
        await ended(sent)
        assert (timing.looks, execution.started[0]) == (2, (0, ["a", "b", "c", "d"]))
        late = send(scheduler, *requests_of("ef"))
        await passes(1)
        late[0].task.cancel()
        assert await ended(late) == [11, 25]

    simulate(serve)


# --- held, for tests ---


def held(count, execution, **batching):
    configured = DynamicBatching(**batching)
    queue, _, plan = parts_of(configured)
    timing = DelayedTiming(8, (8,), configured.max_queue_delay_microseconds, count)
    return DynamicScheduler(execution, queue, timing, plan, timer=SimulatedTimer)


@pytest.mark.parametrize("is_quick", [True, False])
def test_what_is_held_runs_together_when_enough_wait_and_what_comes_then_as_ever(is_quick):
    async def serve():
        execution = SimulatedExecution(is_quick=is_quick)
        scheduler = held(3, execution)
        sent = send(scheduler, *requests_of("ab"))
        await passes(1000)
        assert execution.batches() == []
        sent += send(scheduler, *requests_of("c"))
        await ended(sent)
        await ended(send(scheduler, *requests_of("d")))
        assert execution.batches() == ["abc", "d"]
        assert execution.started[0][0] == 1000

    simulate(serve)


def test_what_is_held_may_wait_too_long_or_be_given_up():
    async def serve():
        execution = SimulatedExecution()
        policy = QueuePolicy(default_timeout_microseconds=5000)
        scheduler = held(2, execution, default_queue_policy=policy)
        [late] = send(scheduler, *requests_of("a"))
        assert await ended([late]) == [5]
        assert isinstance(late.error, Unavailable)
        [given_up] = send(scheduler, *requests_of("b"))
        await passes(1)
        given_up.task.cancel()
        await ended([given_up])
        await ended(send(scheduler, *requests_of("cd")))
        assert execution.batches() == ["cd"]

    simulate(serve)


def test_the_end_lets_go_of_what_is_held():
    async def serve():
        execution = SimulatedExecution()
        scheduler = held(9, execution)
        sent = send(scheduler, *requests_of("ab"))
        await passes(1)
        await scheduler.close(PATIENCE_S)
        await ended(sent)
        assert execution.batches() == ["ab"]

    simulate(serve)


# --- more instances, and fewer ---


def test_an_instance_that_comes_takes_what_waits():
    async def serve():
        execution = SimulatedExecution()
        scheduler = scheduler_of(execution)
        sent = send(scheduler, *requests_of("abc"))
        await passes(1)
        scheduler.grow(Opened(None, None))
        await ended(sent)
        assert execution.started == [(0, ["a"]), (1, ["b", "c"])]

    simulate(serve)


def test_when_instances_go_nobody_starts_before_enough_have_ended():
    async def serve():
        execution = SimulatedExecution(3)
        scheduler = scheduler_of(execution, max_batch_size=1)
        sent = send(scheduler, *requests_of("abcdef"))
        await passes(1)
        scheduler.shrink()
        scheduler.shrink()
        assert await ended(sent) == [10, 10, 10, 20, 30, 40]
        scheduler.shrink()  # the last one stays
        assert await ended(send(scheduler, *requests_of("g"))) == [50]
        await scheduler.close(PATIENCE_S)

    simulate(serve)


def test_a_request_that_waits_for_nobody_has_its_answer_at_once():
    async def serve():
        execution = SimulatedExecution(is_quick=True)
        scheduler = scheduler_of(execution)
        assert scheduler.may_be_prompt
        assert scheduler.run_now(request_of("a")).id == "a"
        assert execution.batches() == ["a"]

    simulate(serve)


def test_a_request_that_has_to_wait_has_no_answer_at_once():
    async def serve():
        slow = scheduler_of(SimulatedExecution())
        assert slow.run_now(request_of()) is None
        gathering = scheduler_of(
            SimulatedExecution(is_quick=True), max_queue_delay_microseconds=5000
        )
        assert gathering.run_now(request_of()) is None

    simulate(serve)


def test_what_fails_at_once_is_raised():
    async def serve():
        execution = SimulatedExecution(is_quick=True)
        execution.outcome = lambda requests: [BackendFailed("broke") for _ in requests]
        scheduler = scheduler_of(execution)
        with pytest.raises(BackendFailed, match="broke"):
            scheduler.run_now(request_of())

    simulate(serve)
