import asyncio
import gc
import os
import threading
import weakref
from contextlib import aclosing
from itertools import zip_longest

import numpy as np
import pytest
from patience import PATIENCE_S, until

from inferd.config.model import QueuePolicy
from inferd.core.interfaces import Opened
from inferd.core.request import InferRequest, InferResponse
from inferd.core.traits import InstanceTraits
from inferd.errors import (
    BackendFailed,
    Cancelled,
    InferdError,
    InvalidRequest,
    Overloaded,
    Unavailable,
)
from inferd.observe.crash.mark import ID_CHARS, ModelMarks
from inferd.observe.crash.record import MARK_COUNT, CrashRecord, open_private, read_record
from inferd.observe.stats import Counts
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.execution.job import STREAM_AHEAD, STREAM_AHEAD_BYTES
from inferd.schedulers.execution.promotion import (
    CALM_NS,
    FIRST_RUNS,
    MOST_RUNS,
    OVERRUN_NS,
    PROMOTE_NS,
    Gauges,
    Usage,
)
from inferd.schedulers.queueing.policy import MAX_WAITING
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor


def execution_of(*instances, may_run_inline=False, kinds=()):
    clock = instances[0].clock
    counts = Counts(clock)
    pairs = zip_longest(instances, kinds)
    return Execution(
        "m",
        [Opened(one, one, kind=kind) for one, kind in pairs],
        may_run_inline=may_run_inline,
        counts=counts,
        gauges=Gauges(clock, lambda: Usage(0, 0, 0)),
    )


async def run(execution, *requests):
    """What a scheduler does."""
    answers = execution.run_now(requests)
    return await execution.run(requests) if answers is None else answers


async def wait_for(event):
    assert await asyncio.to_thread(event.wait, PATIENCE_S)


async def turns(count=5):
    """Let everything run that is ready to."""
    for _ in range(count):
        await asyncio.sleep(0)


# --- where a request runs ---


class Marking:
    """An instance that notes what the crash record says while it runs."""

    def __init__(self, echo, descriptor):
        self.clock = echo.clock
        self._echo = echo
        self._descriptor = descriptor
        self.seen = []

    def execute(self, requests):
        here = threading.get_ident()
        [run] = [one for one in read_record(self._descriptor).runs if one.thread == here]
        self.seen.append((run.model, run.version, run.ids))
        return self._echo.execute(requests)

    def close(self):
        self._echo.close()


def test_what_runs_is_marked_in_threads_and_on_the_loop(echo, request_of, tmp_path):
    descriptor = open_private(tmp_path / "a.record")
    marks = ModelMarks(CrashRecord(descriptor), "m", "3")
    marking = Marking(echo, descriptor)
    execution = Execution(
        "m",
        [Opened(marking, marking)],
        may_run_inline=True,
        counts=Counts(echo.clock),
        gauges=Gauges(echo.clock, lambda: Usage(0, 0, 0)),
        marks=marks,
    )

    async def serve():
        for number in range(FIRST_RUNS + 2):
            request = request_of()
            request.id = f"id-{number}"
            await run(execution, request)
        for id_ in ("", "x" * 1000):
            inline = request_of()
            inline.id = id_
            assert execution.run_now((inline,)) is not None
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    expected = [("m", "3", f"id-{number}") for number in range(FIRST_RUNS + 2)]
    assert marking.seen[: len(expected)] == expected
    assert marking.seen[len(expected) :] == [("m", "3", ""), ("m", "3", "x" * ID_CHARS)]
    assert not read_record(descriptor).runs
    assert len(marks._marks._free) == MARK_COUNT - 1
    os.close(descriptor)


def test_the_first_runs_are_in_threads_then_short_ones_move_onto_the_loop(echo, request_of):
    async def serve():
        execution = execution_of(echo, may_run_inline=True)
        echo.takes_ns = PROMOTE_NS
        for _ in range(FIRST_RUNS + 2):
            await run(execution, request_of())
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert echo.on_loop == [False] * FIRST_RUNS + [True, True]


def test_a_model_that_may_not_run_inline_stays_in_threads(echo, request_of):
    async def serve():
        execution = execution_of(echo)
        for _ in range(2 * FIRST_RUNS):
            await run(execution, request_of())
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert not any(echo.on_loop)


@pytest.mark.parametrize(
    ("takes_ns", "more_runs"), [(PROMOTE_NS + 1, 2), (OVERRUN_NS + 1, FIRST_RUNS)]
)
def test_a_long_run_among_the_first_outweighs_short_ones(echo, request_of, takes_ns, more_runs):
    async def serve():
        execution = execution_of(echo, may_run_inline=True)
        for number in range(FIRST_RUNS + more_runs + 1):
            echo.takes_ns = takes_ns if number == FIRST_RUNS - 1 else 0
            await run(execution, request_of())
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert echo.on_loop == [False] * (FIRST_RUNS + more_runs) + [True]


def test_a_model_that_is_mostly_long_stays_in_threads_and_no_debt_grows(echo, request_of):
    async def serve():
        execution = execution_of(echo, may_run_inline=True)
        for number in range(10 * FIRST_RUNS):
            echo.takes_ns = 0 if number % 3 == 0 else PROMOTE_NS + 1
            await run(execution, request_of())
        echo.takes_ns = 0
        for _ in range(FIRST_RUNS + 1):
            await run(execution, request_of())
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert echo.on_loop == [False] * (11 * FIRST_RUNS) + [True]


def test_failures_do_not_count_as_short_runs(echo, request_of):
    async def serve():
        execution = execution_of(echo, may_run_inline=True)
        echo.outcome = [InvalidRequest("no")]
        for _ in range(FIRST_RUNS):
            await run(execution, request_of())
        echo.outcome = None
        await run(execution, request_of())
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert not any(echo.on_loop)


@pytest.mark.parametrize("error", [None, ValueError("late")])
def test_one_overrun_on_the_loop_moves_back_to_threads_at_once(echo, request_of, error):
    async def serve():
        execution = execution_of(echo, may_run_inline=True)
        for _ in range(FIRST_RUNS):
            await run(execution, request_of())
        echo.takes_ns = OVERRUN_NS
        await run(execution, request_of())
        echo.takes_ns, echo.outcome = OVERRUN_NS + 1, error
        if error is None:
            await run(execution, request_of())
        else:
            with pytest.raises(BackendFailed):
                await run(execution, request_of())
        echo.takes_ns, echo.outcome = 0, None
        await run(execution, request_of())
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert echo.on_loop[FIRST_RUNS:] == [True, True, False]


def thread_runs_before_each_overrun(echo, request_of, overruns, calm_ns=0):
    async def serve():
        execution = execution_of(echo, may_run_inline=True)
        counts = []
        for _ in range(overruns):
            echo.on_loop.clear()
            echo.takes_ns = 0
            while not echo.on_loop or not echo.on_loop[-1]:
                await run(execution, request_of())
            counts.append(len(echo.on_loop) - 1)
            echo.clock.now_ns += calm_ns
            echo.takes_ns = OVERRUN_NS + 1
            await run(execution, request_of())
        await execution.close(PATIENCE_S)
        return counts

    return asyncio.run(serve())


def test_each_overrun_doubles_the_short_runs_needed_up_to_a_limit(echo, request_of):
    counts = thread_runs_before_each_overrun(echo, request_of, 8)
    assert counts == [8, 16, 32, 64, 128, 256, 256, 256]
    assert (counts[0], counts[-1]) == (FIRST_RUNS, MOST_RUNS)


def test_an_overrun_after_a_calm_time_is_not_held_against_it(echo, request_of):
    assert thread_runs_before_each_overrun(echo, request_of, 3, CALM_NS) == [8, 8, 8]


def test_size_classes_are_judged_apart(echo, request_of):
    async def serve():
        execution = execution_of(echo, may_run_inline=True)
        for _ in range(FIRST_RUNS):
            await run(execution, request_of(elements=4))
        for elements in (7, (2, 3), 3, 8, 0):
            await run(execution, request_of(elements=elements))
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert echo.on_loop[FIRST_RUNS:] == [True, True, False, False, False]


def test_an_overrun_moves_its_own_size_class_only(echo, request_of):
    async def serve():
        execution = execution_of(echo, may_run_inline=True)
        for elements in [4] * FIRST_RUNS + [64] * FIRST_RUNS:
            await run(execution, request_of(elements=elements))
        echo.takes_ns = OVERRUN_NS + 1
        await run(execution, request_of(elements=64))
        echo.takes_ns = 0
        echo.on_loop.clear()
        for elements in (64, 4):
            await run(execution, request_of(elements=elements))
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert echo.on_loop == [False, True]


def test_all_inputs_of_all_requests_make_the_size_class(echo, request_of):
    two_inputs = InferRequest(
        "m", inputs=[Tensor(name, DataType.INT8, (2,), b"\0\0") for name in "AB"]
    )

    async def serve():
        execution = execution_of(echo, may_run_inline=True)
        for _ in range(FIRST_RUNS):
            await run(execution, two_inputs)
        await run(execution, request_of(elements=4))
        await run(execution, request_of(elements=2))
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert echo.on_loop[FIRST_RUNS:] == [True, False]


@pytest.mark.parametrize("elements", [0, 2**64 - 1, (2**40, 0, 2**40)])
def test_the_smallest_and_largest_sizes_have_a_class_too(echo, request_of, elements):
    async def serve():
        execution = execution_of(echo, may_run_inline=True)
        for _ in range(FIRST_RUNS + 1):
            await run(execution, request_of(elements=elements))
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert echo.on_loop[-1]


# --- what comes back ---


@pytest.fixture(params=["loop", "thread"])
def place(request, echo, request_of):
    """place(serve) awaits serve(execution), where one or two requests run on the loop, or not."""

    def go(serve):
        async def whole():
            execution = execution_of(echo, may_run_inline=request.param == "loop")
            for _ in range(FIRST_RUNS):
                await run(execution, request_of())
                await run(execution, request_of(), request_of())
            echo.seen.clear()
            try:
                return await serve(execution)
            finally:
                await execution.close(PATIENCE_S)

        result = asyncio.run(whole())
        assert echo.on_loop[-1] is (request.param == "loop")
        return result

    return go


def test_each_request_gets_its_own_answer_in_order(place, echo, request_of):
    answers = place(lambda execution: run(execution, request_of("1"), request_of("2")))
    assert [answer.id for answer in answers] == echo.seen == ["1", "2"]


def test_an_error_among_the_answers_is_handed_on(place, echo, request_of):
    error = InvalidRequest("second")

    async def serve(execution):
        echo.outcome = [InferResponse("m", "1"), error]
        return await run(execution, request_of(), request_of())

    assert place(serve) == [InferResponse("m", "1"), error]


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (InvalidRequest("not so"), InvalidRequest, "not so"),
        (ValueError("what?"), BackendFailed, "model 'm' failed: ValueError: what?"),
        (SystemExit(3), BackendFailed, "model 'm' failed: SystemExit: 3"),
        (StopIteration(), BackendFailed, "model 'm' failed: StopIteration"),
        (asyncio.CancelledError(), Cancelled, "model 'm' cancelled the request"),
    ],
)
def test_what_a_model_raises_becomes_an_error_of_ours(place, echo, request_of, raised, kind, text):
    async def serve(execution):
        echo.outcome = raised
        with pytest.raises(InferdError) as caught:
            await run(execution, request_of())
        return caught.value

    error = place(serve)
    assert (type(error), error.message) == (kind, text)
    assert raised in (error, error.__cause__) or kind is Cancelled


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_wrong_number_of_answers_fails_the_model(place, echo, request_of, count):
    async def serve(execution):
        echo.outcome = [InferResponse("m", "1")] * count
        with pytest.raises(BackendFailed, match=f"^model 'm' gave {count} answers to 2 requests$"):
            await run(execution, request_of(), request_of())

    place(serve)


def test_no_list_of_answers_fails_the_model(place, echo, request_of):
    async def serve(execution):
        echo.outcome = 7
        with pytest.raises(BackendFailed, match=r"^model 'm' failed: TypeError: "):
            await run(execution, request_of())

    place(serve)


def test_several_requests_go_to_the_instance_that_takes_them_joined(echo, request_of):
    joined = type(echo)(echo.clock)

    async def serve():
        execution = Execution(
            "m",
            [Opened(echo, joined)],
            may_run_inline=True,
            counts=Counts(echo.clock),
            gauges=Gauges(echo.clock, lambda: Usage(0, 0, 0)),
        )
        for _ in range(FIRST_RUNS + 1):
            await run(execution, request_of("1"))
            await run(execution, request_of("2"), request_of("3"))
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert (set(echo.seen), set(joined.seen)) == ({"1"}, {"2", "3"})
    assert echo.on_loop == joined.on_loop == [False] * FIRST_RUNS + [True]
    assert (echo.is_closed, joined.is_closed) == (True, False)


@pytest.mark.parametrize("place", ["loop", "thread"])
@pytest.mark.parametrize("failed", [False, True])
def test_an_execution_of_several_requests_is_counted_and_its_times_are_all_theirs(
    echo, request_of, place, failed
):
    requests = [request_of(), request_of()]
    echo.clock.now_ns = 1  # 0 would be no time at all

    async def serve():
        counts = Counts(echo.clock)
        execution = Execution(
            "m",
            [Opened(echo, echo)],
            may_run_inline=place == "loop",
            counts=counts,
            gauges=Gauges(lambda: 0, lambda: Usage(0, 0, 0)),
        )
        for _ in range(FIRST_RUNS):
            await outcome_of(execution, request_of(), request_of())
        echo.clock.now_ns = 100
        echo.takes_ns = 40
        echo.outcome = BackendFailed("no") if failed else None
        if place == "thread":
            await outcome_of(execution, *requests)
        elif failed:
            with pytest.raises(BackendFailed):
                execution.run_now(requests)
        else:
            execution.run_now(requests)
        await execution.close(PATIENCE_S)
        return counts.statistics("m", "1")

    statistics = asyncio.run(serve())
    assert statistics.execution_count == FIRST_RUNS + 1
    [row] = statistics.batch_stats
    assert (row.batch_size, row.compute_infer.count) == (2, FIRST_RUNS + 1)
    assert [(one.started_ns, one.ended_ns, one.shared) for one in requests] == [
        (100, 140, True)
    ] * 2


# --- started, and heard of later ---


async def outcome_of(execution, *requests):
    done = asyncio.get_running_loop().create_future()
    execution.begin(requests, done.set_result)
    return await done


def test_who_starts_requests_is_told_their_outcome(echo, request_of):
    async def serve():
        execution = execution_of(echo)
        outcome = await outcome_of(execution, request_of("1"), request_of("2"))
        await execution.close(PATIENCE_S)
        return [answer.id for answer in outcome]

    assert asyncio.run(serve()) == ["1", "2"]


def test_an_error_of_all_is_told_too(echo, request_of):
    async def serve():
        execution = execution_of(echo)
        echo.outcome = ValueError("what?")
        outcome = await outcome_of(execution, request_of())
        await execution.close(PATIENCE_S)
        return outcome.message

    assert asyncio.run(serve()) == "model 'm' failed: ValueError: what?"


def test_started_requests_count_towards_running_on_the_loop(echo, request_of):
    async def serve():
        execution = execution_of(echo, may_run_inline=True)
        echo.outcome = [InvalidRequest("no")]
        for _ in range(FIRST_RUNS):
            await outcome_of(execution, request_of())
        assert execution.run_now([request_of()]) is None
        echo.outcome = None
        for _ in range(FIRST_RUNS):
            await outcome_of(execution, request_of())
        assert execution.run_now([request_of()]) is not None
        await execution.close(PATIENCE_S)

    asyncio.run(serve())


def test_started_requests_that_never_ran_are_told_of_when_the_time_is_over(gate, request_of):
    async def serve():
        gate.is_deaf = True
        execution = execution_of(gate)
        first = asyncio.ensure_future(outcome_of(execution, request_of("1")))
        await wait_for(gate.started)
        second = asyncio.ensure_future(outcome_of(execution, request_of("2")))
        await turns()
        await execution.close(0.0)
        outcome = await second
        assert outcome.message == "model 'm' is being unloaded"
        with pytest.raises(Unavailable):
            await outcome_of(execution, request_of("3"))
        gate.opened.set()
        await first

    asyncio.run(serve())
    assert gate.seen == ["1"]


# --- threads ---


def test_each_instance_runs_in_a_thread_of_its_own(gate, request_of):
    other = type(gate)()

    async def serve():
        execution = execution_of(gate, other)
        runs = [asyncio.create_task(run(execution, request_of(id))) for id in "12"]
        await wait_for(gate.started)
        await wait_for(other.started)
        gate.opened.set()
        other.opened.set()
        await asyncio.gather(*runs)
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert sorted(gate.seen + other.seen) == ["1", "2"]


def test_a_model_that_hangs_leaves_the_loop_and_other_instances_free(gate, echo, request_of):
    async def serve():
        execution = execution_of(gate, echo)
        hanging = asyncio.create_task(run(execution, request_of("1")))
        await wait_for(gate.started)
        for id in "234":
            await run(execution, request_of(id))
        gate.opened.set()
        await hanging
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert (gate.seen, echo.seen) == (["1"], ["2", "3", "4"])


def test_there_is_room_while_fewer_requests_run_than_there_are_instances(gate, request_of):
    async def serve():
        execution = execution_of(gate)
        assert execution.has_room
        task = asyncio.create_task(execution.run([request_of()]))
        await wait_for(gate.started)
        assert not execution.has_room
        gate.opened.set()
        await task
        assert execution.has_room
        await execution.close(PATIENCE_S)

    asyncio.run(serve())


def test_threads_cannot_keep_the_process_from_ending(gate, request_of):
    async def serve():
        execution = execution_of(gate)
        hanging = asyncio.create_task(run(execution, request_of()))
        await wait_for(gate.started)
        gate.opened.set()
        await hanging
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert gate.thread.daemon
    gate.thread.join(PATIENCE_S)
    assert not gate.thread.is_alive()


def test_a_request_given_up_while_it_waits_never_runs(gate, request_of):
    async def serve():
        execution = execution_of(gate)
        first = asyncio.create_task(run(execution, request_of("1")))
        await wait_for(gate.started)
        second = asyncio.create_task(run(execution, request_of("2")))
        await turns()
        second.cancel()
        await turns()
        gate.opened.set()
        await first
        await run(execution, request_of("3"))
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert gate.seen == ["1", "3"]


def test_an_instance_that_hears_of_it_is_told_when_nobody_waits_for_what_runs(gate, request_of):
    told = []
    gate.cancel = lambda requests: told.extend(request.id for request in requests)

    async def serve():
        execution = execution_of(gate)
        finished = []
        gate.opened.set()
        await run(execution, request_of("answered"))
        gate.opened.clear()
        gate.started.clear()
        task = asyncio.create_task(run(execution, request_of("left")))
        await wait_for(gate.started)
        assert told == []
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert told == ["left"]
        gate.opened.set()
        execution.begin((started := request_of("started"),), finished.append)
        execution.cancel(started)
        assert told == ["left", "started"]
        await execution.close(PATIENCE_S)

    asyncio.run(serve())


def test_an_execution_for_several_counts_once_though_the_first_of_them_has_left(gate, request_of):
    async def serve():
        counts = Counts()
        execution = Execution("m", [Opened(gate, gate)], may_run_inline=False, counts=counts)
        requests = [request_of("left"), request_of("stays")]
        execution.begin(requests, lambda _: None)
        await wait_for(gate.started)
        counts.add_failure(requests[0], asyncio.CancelledError())
        gate.opened.set()
        await execution.close(PATIENCE_S)
        await turns()
        return counts.statistics("m", "1")

    found = asyncio.run(serve())
    assert found.execution_count == 1
    assert [(row.batch_size, row.compute_infer.count) for row in found.batch_stats] == [(2, 1)]


def test_those_given_up_leave_nothing_behind_a_model_that_hangs(gate, request_of):
    async def serve():
        execution = execution_of(gate)
        first = asyncio.create_task(run(execution, request_of("1")))
        await wait_for(gate.started)
        arrays = []
        for _ in range(10):
            array = np.zeros(1, np.int8)
            arrays.append(weakref.ref(array))
            request = InferRequest("m", inputs=[Tensor("A", DataType.INT8, (1,), array)])
            task = asyncio.create_task(run(execution, request))
            await turns()
            task.cancel()
            await turns()
            del array, request, task
        assert execution.pending_count == 0
        assert not any(array() is not None for array in arrays)
        gate.opened.set()
        await first
        await execution.close(PATIENCE_S)

    asyncio.run(serve())


# --- how long, and how many ---


def late(caught):
    return "has waited for 1000 microseconds" in caught.value.message


def test_a_request_waits_no_longer_than_its_timeout(gate, request_of):
    async def serve():
        execution = execution_of(gate)
        first = asyncio.create_task(run(execution, request_of("1")))
        await wait_for(gate.started)
        second = request_of("2")
        second.timeout_us = 1000
        with pytest.raises(Unavailable) as caught:
            await run(execution, second)
        assert late(caught)
        with pytest.raises(Unavailable) as caught:
            await anext(execution.stream(second))
        assert late(caught)
        assert execution.pending_count == 0
        gate.opened.set()
        await first
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert gate.seen == ["1"]


@pytest.mark.parametrize("timeout_us", [1, 2**64 - 1])
def test_what_runs_at_once_waits_for_nothing_whatever_its_timeout(gate, request_of, timeout_us):
    async def serve():
        execution = execution_of(gate)
        request = request_of("1")
        request.timeout_us = timeout_us
        running = asyncio.create_task(run(execution, request))
        await wait_for(gate.started)
        await asyncio.sleep(0.001)
        gate.opened.set()
        [answer] = await running
        assert answer.id == "1"
        await execution.close(PATIENCE_S)

    asyncio.run(serve())


def test_the_queue_policy_of_a_model_without_batches_holds(gate, request_of):
    patient, hasty = (
        QueuePolicy("REJECT", timeout_us, False, max_queue_size=2) for timeout_us in (10**9, 1000)
    )

    async def serve():
        execution = execution_of(gate)
        first = asyncio.create_task(run(execution, request_of("1")))
        await wait_for(gate.started)
        streams = [execution.stream(request_of(name), patient) for name in "23"]
        waiting = [asyncio.create_task(anext(stream)) for stream in streams]
        await turns()
        with pytest.raises(Overloaded, match="max_queue_size is 2"):
            await anext(execution.stream(request_of("4"), hasty))
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        with pytest.raises(Unavailable) as caught:
            await anext(execution.stream(request_of("5"), hasty))
        assert late(caught)
        gate.opened.set()
        await first
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert gate.seen == ["1"]


def test_who_is_delayed_runs_after_the_others(gate, request_of):
    policy = QueuePolicy("DELAY", 1000)

    async def serve():
        execution = execution_of(gate)
        first = asyncio.create_task(run(execution, request_of("1")))
        await wait_for(gate.started)
        second = asyncio.create_task(execution.run((request_of("2"),), policy))
        async with asyncio.timeout(PATIENCE_S):
            while not execution._jobs.lines._lines(0)[1]:  # noqa: ASYNC110  nobody tells when
                await asyncio.sleep(0.001)
        third = asyncio.create_task(run(execution, request_of("3")))
        await turns()
        gate.opened.set()
        await asyncio.gather(first, second, third)
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert gate.seen == ["1", "3", "2"]


class Taken:
    """An instance's turn that comes when `free` is set."""

    def __init__(self):
        self.free = threading.Event()
        self.waited_for = threading.Event()

    def __enter__(self):
        self.waited_for.set()
        assert self.free.wait(PATIENCE_S)

    def __exit__(self, *_):
        pass

    def renew(self):
        self.__enter__()


def test_a_request_leaves_while_its_instance_waits_for_its_turn(echo, request_of):
    echo.traits = InstanceTraits(turn=Taken())

    async def serve():
        execution = execution_of(echo)
        given_up = asyncio.create_task(run(execution, request_of("1")))
        await wait_for(echo.traits.turn.waited_for)
        given_up.cancel()
        await turns()
        late_one = request_of("2")
        late_one.timeout_us = 1000
        with pytest.raises(Unavailable) as caught:
            await run(execution, late_one)
        assert late(caught)
        last = asyncio.create_task(run(execution, request_of("3")))
        await turns()
        echo.traits.turn.free.set()
        await last
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert echo.seen == ["3"]


def test_a_batch_that_nobody_wants_any_more_does_not_run(echo, request_of):
    echo.traits = InstanceTraits(turn=Taken())
    told = []

    async def serve():
        execution = execution_of(echo)
        execution.begin([request_of("1")], told.append, lambda: False)
        execution.begin([request_of("2")], told.append, lambda: True)
        echo.traits.turn.free.set()
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert echo.seen == ["2"]
    assert isinstance(told[0], Cancelled)


@pytest.mark.parametrize("error", [None, ValueError("nobody hears this")])
def test_the_answer_to_a_request_given_up_while_it_runs_is_dropped(gate, request_of, error):
    complaints = []

    async def serve():
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        execution = execution_of(gate)
        given_up = asyncio.create_task(run(execution, request_of("1")))
        await wait_for(gate.started)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        gate.outcome = error
        gate.opened.set()
        await execution.close(PATIENCE_S)  # its thread has told everything then
        await turns()

    asyncio.run(serve())
    gc.collect()
    assert gate.seen == ["1"]
    assert complaints == []


@pytest.mark.slow
def test_no_more_requests_wait_than_the_limit(gate, request_of):
    async def serve():
        execution = execution_of(gate)
        request = request_of()
        waiting = [asyncio.create_task(execution.run((request,))) for _ in range(MAX_WAITING + 1)]
        await turns()
        with pytest.raises(Overloaded, match=f"queue of model 'm' is full: {MAX_WAITING} requests"):
            await run(execution, request)
        with pytest.raises(Unavailable):
            await anext(execution.stream(request))
        waiting.pop().cancel()
        await turns()
        last = asyncio.create_task(run(execution, request))
        gate.opened.set()
        await asyncio.gather(*waiting, last)
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert len(gate.seen) == MAX_WAITING + 1


def test_an_idle_thread_keeps_no_tensor_alive(echo):
    async def serve():
        execution = execution_of(echo)
        freed = threading.Event()
        array = np.zeros(1, np.int8)
        weakref.finalize(array, freed.set)
        request = InferRequest("m", inputs=[Tensor.from_numpy("A", array, DataType.INT8)])
        await run(execution, request)
        del array, request
        await wait_for(freed)
        await execution.close(PATIENCE_S)

    asyncio.run(serve())


def test_a_loop_that_closes_while_a_request_runs_leaves_its_thread_usable(gate, request_of):
    execution = execution_of(gate)

    async def leave():
        asyncio.create_task(run(execution, request_of("1")))  # noqa: RUF006  nobody waits for it
        await wait_for(gate.started)

    async def come_back():
        [answer] = await asyncio.wait_for(run(execution, request_of("2")), PATIENCE_S)
        await execution.close(0.0)
        return answer.id

    asyncio.run(leave())
    gate.opened.set()
    assert asyncio.run(come_back()) == "2"


# --- closing ---


def test_a_closed_execution_takes_no_requests(echo, counter, request_of):
    async def serve():
        execution = execution_of(echo, may_run_inline=True)
        for _ in range(FIRST_RUNS):
            await run(execution, request_of())
        await execution.close(PATIENCE_S)
        with pytest.raises(Unavailable, match=r"^model 'm' is being unloaded$"):
            await run(execution, request_of())
        with pytest.raises(Unavailable, match=r"^model 'm' is being unloaded$"):
            await anext(execution.stream(request_of()))

    asyncio.run(serve())
    assert echo.is_closed
    assert len(echo.seen) == FIRST_RUNS


def test_an_execution_that_never_ran_closes_at_once(echo):
    asyncio.run(execution_of(echo).close(PATIENCE_S))
    assert echo.is_closed


def test_closing_lets_what_runs_and_waits_finish_first(gate, request_of):
    async def serve():
        execution = execution_of(gate)
        runs = [asyncio.create_task(run(execution, request_of(id))) for id in "12"]
        await wait_for(gate.started)
        closing = asyncio.create_task(execution.close(PATIENCE_S))
        await turns()
        was_closed = gate.is_closed
        gate.opened.set()
        await closing
        await asyncio.gather(*runs)
        return was_closed

    assert asyncio.run(serve()) is False
    assert gate.is_closed
    assert gate.seen == ["1", "2"]


def test_closing_wakes_a_model_that_hangs_when_its_time_is_over(gate, counter, request_of):
    gate.stream = counter(1).stream

    async def serve():
        execution = execution_of(gate)
        hanging = asyncio.create_task(run(execution, request_of("1")))
        await wait_for(gate.started)
        thread = gate.thread
        waiting = asyncio.create_task(run(execution, request_of("2")))
        streaming = asyncio.create_task(anext(execution.stream(request_of("3"))))
        given_up = asyncio.create_task(run(execution, request_of("4")))
        await turns()
        given_up.cancel()
        await turns()
        await execution.close(0.0)
        for refused in (waiting, streaming):
            with pytest.raises(Unavailable, match=r"^model 'm' is being unloaded$"):
                await refused
        [answer] = await hanging
        await asyncio.to_thread(thread.join, PATIENCE_S)
        assert not thread.is_alive()
        return answer.id

    assert asyncio.run(serve()) == "1"
    assert gate.seen == ["1"]


def test_closing_does_not_wait_for_a_model_that_cannot_be_woken(gate, request_of):
    gate.is_deaf = True

    async def serve():
        execution = execution_of(gate)
        hanging = asyncio.create_task(run(execution, request_of()))
        await wait_for(gate.started)
        await execution.close(0.0)
        assert gate.is_closed
        assert not hanging.done()
        gate.opened.set()
        await hanging

    asyncio.run(serve())


def test_an_instance_that_fails_to_close_does_not_keep_others_open(echo):
    class Stuck(type(echo)):
        def close(self):
            msg = "stuck"
            raise OSError(msg)

    async def serve():
        with pytest.raises(OSError, match="stuck"):
            await execution_of(Stuck(), echo, Stuck()).close(PATIENCE_S)

    asyncio.run(serve())
    assert echo.is_closed


# --- streams ---


def numbers(answers):
    return [int(answer.outputs[0].numpy()[0]) for answer in answers]


@pytest.mark.parametrize("count", [0, 1, 3 * STREAM_AHEAD])
def test_a_decoupled_model_answers_any_number_of_times(counter, request_of, count):
    async def serve():
        execution = execution_of(counter(count))
        answers = [answer async for answer in execution.stream(request_of("7"))]
        await execution.close(PATIENCE_S)
        return answers

    answers = asyncio.run(serve())
    assert numbers(answers) == list(range(count))
    assert {answer.id for answer in answers} <= {"7"}


def test_a_model_that_is_not_decoupled_streams_one_answer(echo, request_of):
    async def serve():
        execution = execution_of(echo)
        answers = [answer.id async for answer in execution.stream(request_of("7"))]
        await execution.close(PATIENCE_S)
        return answers

    assert asyncio.run(serve()) == ["7"]


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        ([], "model 'm' gave 0 answers to 1 requests"),
        ([InvalidRequest("no")], "no"),
        (ValueError("bad"), "model 'm' failed: ValueError: bad"),
    ],
)
def test_a_stream_of_a_model_that_fails_raises(echo, request_of, outcome, text):
    async def serve():
        execution = execution_of(echo)
        echo.outcome = outcome
        with pytest.raises(InferdError) as caught:
            await anext(execution.stream(request_of()))
        await execution.close(PATIENCE_S)
        return caught.value.message

    assert asyncio.run(serve()) == text


@pytest.mark.parametrize("error", [InvalidRequest("enough"), ValueError("enough")])
def test_an_error_in_mid_stream_comes_after_the_answers_before_it(counter, request_of, error):
    async def serve():
        execution = execution_of(counter(2, error))
        stream = execution.stream(request_of())
        answers = [await anext(stream), await anext(stream)]
        with pytest.raises(InferdError, match=r"enough$"):
            await anext(stream)
        await execution.close(PATIENCE_S)
        return answers

    assert numbers(asyncio.run(serve())) == [0, 1]


def test_a_model_is_never_far_ahead_of_its_reader(counter, request_of):
    model = counter(20 * STREAM_AHEAD)

    async def serve():
        execution = execution_of(model)
        read = 0
        async for _ in execution.stream(request_of()):
            await wait_for(model.is_ahead)
            read += 1
            assert model.given <= read + STREAM_AHEAD + 1
        await execution.close(PATIENCE_S)
        return read

    assert asyncio.run(serve()) == 20 * STREAM_AHEAD


class Large:
    """Decoupled: answers of `size_bytes`, `count` times; `made` is how many it has made."""

    def __init__(self, size_bytes, count):
        self.data = bytes(size_bytes)
        self.count = count
        self.made = 0
        self.is_closed = False
        self.clock = lambda: 0

    def execute(self, requests):
        raise NotImplementedError

    def stream(self, request):
        try:
            for _ in range(self.count):
                self.made += 1
                output = Tensor("Y", DataType.UINT8, (len(self.data),), self.data)
                yield InferResponse("m", "1", outputs=[output], final=False)
        finally:
            self.is_closed = True

    def close(self):
        pass


@pytest.mark.parametrize(
    ("size_bytes", "ahead"),
    [
        (STREAM_AHEAD_BYTES // 4, 3),
        (STREAM_AHEAD_BYTES, 1),
        (3 * STREAM_AHEAD_BYTES, 1),
    ],
)
def test_a_model_of_large_answers_is_less_far_ahead(request_of, size_bytes, ahead):
    model = Large(size_bytes, 40)

    async def serve():
        execution = execution_of(model)
        read = 0
        async for answer in execution.stream(request_of()):
            assert answer.outputs[0].size_bytes == size_bytes
            read += 1
            # One more has been made, and waits for room.
            made = min(40, read + ahead + 1)
            await until(lambda made=made: model.made == made)
            await asyncio.sleep(0)
            assert model.made <= read + ahead + 1
        await execution.close(PATIENCE_S)
        return read

    assert asyncio.run(serve()) == 40


def test_a_reader_of_large_answers_that_leaves_closes_the_models_generator(request_of):
    model = Large(2 * STREAM_AHEAD_BYTES, 10**9)

    async def serve():
        execution = execution_of(model)
        async with aclosing(execution.stream(request_of())) as answers:
            await anext(answers)
            await until(lambda: model.made == 3)
        await until(lambda: model.is_closed)
        await execution.close(PATIENCE_S)

    asyncio.run(serve())


@pytest.mark.parametrize("read", [1, STREAM_AHEAD + 3])
def test_a_reader_that_leaves_closes_the_models_generator(counter, request_of, read):
    model = counter(10**9)

    async def serve():
        execution = execution_of(model)
        async with aclosing(execution.stream(request_of())) as stream:
            for _ in range(read):
                await anext(stream)
        await wait_for(model.has_left)
        assert [one.id for one in await run(execution, request_of("next"))] == ["next"]
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert model.given <= read + STREAM_AHEAD + 1


def test_a_stream_given_up_while_it_waits_never_runs(gate, counter, request_of):
    model = counter(1)
    gate.stream = model.stream

    async def serve():
        execution = execution_of(gate)
        first = asyncio.create_task(run(execution, request_of()))
        await wait_for(gate.started)
        waiting = asyncio.create_task(anext(execution.stream(request_of())))
        await turns()
        waiting.cancel()
        await turns()
        gate.opened.set()
        await first
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert model.given == 0


# --- the times of a request ---


def times_of(request):
    return (request.queued_ns, request.started_ns, request.ended_ns, request.answered_ns)


def test_a_run_on_the_loop_notes_when_it_started_and_ended(echo, request_of):
    request = request_of()

    async def serve():
        execution = execution_of(echo, may_run_inline=True)
        for _ in range(FIRST_RUNS):
            await run(execution, request_of())
        echo.clock.now_ns, echo.takes_ns = 100, 40
        await run(execution, request)
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert echo.on_loop[-1]
    assert times_of(request) == (0, 100, 140, 0)


def test_a_run_in_a_thread_notes_its_wait_and_when_the_model_was_done(gate, request_of):
    first, second = request_of(), request_of()

    async def serve():
        execution = execution_of(gate)
        gate.clock.now_ns = 100
        gate.takes_ns = 40
        one = asyncio.create_task(run(execution, first))
        await wait_for(gate.started)
        two = asyncio.create_task(run(execution, second))
        await turns()
        assert execution.pending_count == 1
        gate.opened.set()
        await asyncio.gather(one, two)
        assert execution.pending_count == 0
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert times_of(first)[:3] == (100, 100, 140)
    assert times_of(second) == (100, 140, 180, 180)


def test_a_request_that_was_queued_before_keeps_that_time(echo, request_of):
    request = request_of()
    request.queued_ns = 7

    async def serve():
        execution = execution_of(echo)
        echo.clock.now_ns = 100
        await run(execution, request)
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert times_of(request)[:2] == (7, 100)


def test_a_stream_notes_its_times(counter, request_of):
    model = counter(3)
    request = request_of()

    async def serve():
        model.clock.now_ns = 100
        execution = execution_of(model)
        assert len([answer async for answer in execution.stream(request)]) == 3
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert times_of(request) == (100, 100, 100, 100)


# --- more instances, and fewer ---


def pair(instance):
    return Opened(instance, instance)


async def closed(*instances, count=1):
    """Wait until so many of `instances` are closed."""
    async with asyncio.timeout(PATIENCE_S):
        while sum(one.is_closed for one in instances) < count:  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.001)


def test_what_waits_runs_on_an_instance_that_comes(gate, echo, request_of):
    async def serve():
        execution = execution_of(gate)
        first = asyncio.create_task(run(execution, request_of("a")))
        await wait_for(gate.started)
        second = asyncio.create_task(run(execution, request_of("b")))
        await turns()
        execution.grow(pair(echo))
        assert execution.instance_count == 2
        await second
        gate.opened.set()
        await first
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert (echo.seen, gate.seen) == (["b"], ["a"])
    assert echo.is_closed and gate.is_closed


def test_an_instance_that_goes_ends_what_it_runs(gate, request_of):
    gates = [gate, type(gate)()]

    async def serve():
        execution = execution_of(*gates)
        tasks = [asyncio.create_task(run(execution, request_of(id))) for id in "ab"]
        for one in gates:
            await wait_for(one.started)
        execution.shrink()
        assert execution.instance_count == 1
        await turns()
        assert not any(one.is_closed for one in gates)
        gates[0].opened.set()
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await closed(gates[0])
        third = asyncio.create_task(run(execution, request_of("c")))
        gates[1].opened.set()
        await asyncio.gather(*tasks, third)
        assert not gates[1].is_closed
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert len(gates[0].seen) == 1
    assert gates[1].seen[1:] == ["c"]


def test_an_instance_that_never_ran_goes_at_once_and_the_last_one_stays(echo):
    other = type(echo)()

    async def serve():
        execution = execution_of(echo, other)
        execution.shrink()
        await closed(other)
        execution.shrink()
        assert execution.instance_count == 1
        await turns()
        assert not echo.is_closed
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert echo.is_closed


def test_an_idle_instance_goes_and_requests_find_the_others(echo, request_of):
    others = [type(echo)() for _ in range(2)]

    async def serve():
        execution = execution_of(echo, *others)
        for _ in range(3):  # so that each has a thread
            await run(execution, request_of())
        execution.shrink()
        execution.shrink()
        await closed(echo, *others, count=2)
        await run(execution, request_of("last"))
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert all(one.is_closed for one in (echo, *others))


def of_kinds(*instances):
    """An execution whose first instance is of kind "a", the others of kind "b"."""
    return execution_of(*instances, kinds=["a", *"b" * (len(instances) - 1)])


def test_an_idle_instance_of_one_kind_goes_and_those_of_others_stay(echo, request_of):
    others = [type(echo)() for _ in range(2)]

    async def serve():
        execution = of_kinds(echo, *others)
        for _ in range(3):  # so that each has a thread
            await run(execution, request_of())
        execution.shrink("a")
        await closed(echo)
        execution.shrink("a")  # there is none any more
        assert execution.instance_count == 2
        await asyncio.gather(*(run(execution, request_of()) for _ in range(9)))
        assert not any(one.is_closed for one in others)
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert all(one.is_closed for one in (echo, *others))


def test_a_busy_instance_of_one_kind_goes_when_it_is_done_and_takes_no_more(gate, request_of):
    gates = [gate, type(gate)()]

    async def serve():
        execution = of_kinds(*gates)
        tasks = [asyncio.create_task(run(execution, request_of(id))) for id in "ab"]
        for one in gates:
            await wait_for(one.started)
        execution.shrink("a")
        execution.shrink("a")  # it is about to go
        tasks.append(asyncio.create_task(run(execution, request_of("c"))))
        await turns()
        assert not any(one.is_closed for one in gates)
        gate.opened.set()
        await closed(gate)
        gates[1].opened.set()
        await asyncio.gather(*tasks)
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert len(gate.seen) == 1
    assert gates[1].seen[-1] == "c"


def test_an_instance_of_one_kind_that_never_ran_goes_at_once(echo):
    other = type(echo)()

    async def serve():
        execution = of_kinds(echo, other)
        execution.shrink("a")
        await closed(echo)
        assert not other.is_closed
        await execution.close(PATIENCE_S)

    asyncio.run(serve())


def test_instances_that_come_and_go_leave_the_right_number(echo, request_of):
    made = [echo]

    async def serve():
        execution = execution_of(echo)
        for count in (5, 2, 3, 1, 4):
            while execution.instance_count < count:
                made.append(type(echo)())
                execution.grow(pair(made[-1]))
            while execution.instance_count > count:
                execution.shrink()
            await asyncio.gather(*(run(execution, request_of()) for _ in range(20)))
        await closed(*made, count=len(made) - 4)
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert all(one.is_closed for one in made)


def test_an_instance_that_comes_too_late_is_closed(echo):
    late = type(echo)()

    async def serve():
        execution = execution_of(echo)
        await execution.close(PATIENCE_S)
        execution.grow(pair(late))
        await closed(late)

    asyncio.run(serve())


def test_an_instance_that_cannot_even_close_is_told_of(echo, request_of, caplog):
    class Stuck(type(echo)):
        def close(self):
            super().close()
            msg = "stuck"
            raise RuntimeError(msg)

    stuck = Stuck()

    async def serve():
        execution = execution_of(echo, stuck)
        execution.shrink()
        await closed(stuck)
        await run(execution, request_of())
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
    assert "an instance of model 'm' does not close" in caplog.text


# --- what backends of other packages tell ---


class TheirTensor(Tensor):
    """A tensor with something more."""


class TheirResponse(InferResponse):
    """A response with something more."""


def output(shape=(1,), kind=Tensor):
    return kind("Y", DataType.FP32, shape, bytes(4))


def with_time(name):
    def answer(request):
        setattr(request, name, np.int64(5))
        return InferResponse("m", "1")

    return answer


THEIRS = [
    (with_time("computing_ns"), "its request's computing_ns is of type int64, not int"),
    (with_time("computed_ns"), "its request's computed_ns is of type int64, not int"),
    (lambda _: InferResponse("m", 1), "its answer's version is of type int, not str"),
    (lambda _: InferResponse("m", "1", "", (output(),)), "outputs is of type tuple, not list"),
    (lambda _: InferResponse("m", "1", "", [output([1])]), "'Y' is of type list, not tuple"),
    (lambda _: InferResponse("m", "1", "", [output(kind=TheirTensor)]), "an output is of type Th"),
    (lambda _: TheirResponse("m", "1"), "its answer is of type TheirResponse, not InferResponse"),
    (lambda _: None, "its answer is of type NoneType, not InferResponse"),
]


async def collected(answers):
    return [answer async for answer in answers]


@pytest.mark.parametrize(("answer", "words"), THEIRS)
def test_what_compiled_code_does_not_take_is_refused_everywhere(echo, request_of, answer, words):
    # Compiled code says it itself, where it happens.
    words += "|TypeError: .* object expected; got|interpreted classes cannot inherit"

    class Decoupled:
        clock = echo.clock

        def execute(self, requests):
            return [answer(request) for request in requests]

        def stream(self, request):
            yield answer(request)

        def close(self):
            pass

    async def serve():
        execution = execution_of(Decoupled(), may_run_inline=True)
        with pytest.raises(BackendFailed, match=words):
            await run(execution, request_of())
        async with aclosing(execution.stream(request_of())) as answers:
            with pytest.raises(BackendFailed, match=words):
                await collected(answers)
        await execution.close(PATIENCE_S)

    asyncio.run(serve())
