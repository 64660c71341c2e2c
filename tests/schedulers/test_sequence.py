import asyncio
from pathlib import Path

import pytest
from fields import with_fields
from simulation import SimulatedExecution, SimulatedTimer, now_ms, passes, simulate

from inferd.config.model import (
    Control,
    ControlInput,
    DynamicBatching,
    ModelConfig,
    ModelInput,
    QueuePolicy,
    SequenceBatching,
    SequenceState,
)
from inferd.config.options.backends import NO_DELAY, DelayedStart
from inferd.core.request import InferRequest, InferResponse, Sequence, Span, WantedOutput
from inferd.errors import (
    BackendFailed,
    Cancelled,
    InferdError,
    InvalidRequest,
    Overloaded,
    Unavailable,
)
from inferd.schedulers.execution.batch import BatchPlan
from inferd.schedulers.queueing.queue import RequestQueue
from inferd.schedulers.queueing.timing import FixedTiming
from inferd.schedulers.sequence import SequenceRules, SequenceScheduler
from inferd.schedulers.sequence_parts.tensors import Controls, SequenceTensors, States
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

READY = ControlInput("READY", (Control("CONTROL_SEQUENCE_READY", int32_false_true=(0, 1)),))
STATE = SequenceState("STATE", "STATE_OUT", DataType.INT8, (1,))
FOREVER_US = 1 << 62


class Rows(SimulatedExecution):
    """Notes the rows of each execution: a request's id, "-" where there is none.

    STATE_OUT counts the requests of a sequence.
    """

    def _outcome_of(self, requests, *, raises=True):
        ids = []
        for request in requests:
            inputs = {one.name: one for one in request.inputs}
            is_there = "READY" not in inputs or inputs["READY"].numpy().ravel()[0]
            ids.append(request.id if is_there else "-")
        outcome = super()._outcome_of(requests, raises=raises)
        self.started[-1] = (self.started[-1][0], ids)
        if self.outcome is not None:
            return outcome
        for request, answer in zip(requests, outcome, strict=True):
            for one in request.inputs:
                if one.name == "STATE":
                    data = bytes([one.numpy().ravel()[0] + 1])
                    answer.outputs.append(Tensor("STATE_OUT", DataType.INT8, (1, 1), data))
                    answer.parameters["step"] = data[0]
        return outcome


def scheduler_of(
    *executions, per_instance=4, oldest=False, idle_ms=1000, most=4, queue=None, **more
):
    batching = SequenceBatching(
        control_input=() if oldest else (READY,), state=more.pop("state", ())
    )
    config = ModelConfig(
        "m",
        max_batch_size=most,
        input=(ModelInput("A", DataType.INT8, (-1,)),),
        sequence_batching=batching,
    )
    policy = QueuePolicy("REJECT", FOREVER_US, True, **(queue or {}))
    limits = DynamicBatching(default_queue_policy=policy)
    return SequenceScheduler(
        executions,
        (RequestQueue("m", limits), RequestQueue("m", limits)),
        more.pop("timing", FixedTiming(most, (), 0)),
        SequenceTensors(BatchPlan(config), Controls(config), States(config, Path())),
        SequenceRules(
            per_instance,
            not oldest,
            1000 * idle_ms,
            delayed_start=more.pop("delayed_start", NO_DELAY),
        ),
        timer=SimulatedTimer,
    )


class Sent:
    """A request of sequence `name`; `text` is its id and may have "(" for start, ")" for end."""

    def __init__(self, scheduler, name, text="", *, length=1, **fields):
        tensor = Tensor("A", DataType.INT8, (1, length), bytes(length))
        self.request = with_fields(
            InferRequest("m", id=text.strip("()") or name, inputs=[tensor], batch_size=1), **fields
        )
        self.request.sequence = Sequence(name, start="(" in text, end=")" in text)
        self.own = list(self.request.inputs), list(self.request.outputs)
        self.at_ms = self.error = self.answer = None
        self.task = asyncio.create_task(self._wait(scheduler))

    async def _wait(self, scheduler):
        try:
            self.answer = await scheduler.run(self.request)
            assert self.answer.id == self.request.id
        except InferdError as error:
            self.error = error
        finally:
            self.at_ms = round(now_ms(), 3)
        assert (self.request.inputs, self.request.outputs) == self.own


async def ended(*sent):
    await asyncio.gather(*(one.task for one in sent), return_exceptions=True)
    return [one.at_ms for one in sent]


def test_requests_of_a_sequence_run_one_after_another_in_order():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(execution)
        sent = [Sent(scheduler, "a", text) for text in ("(1", "2", "3)")]
        assert await ended(*sent) == [10, 20, 30]
        assert execution.batches() == ["1", "2", "3"]

    simulate(serve)


def test_a_sequence_keeps_its_row_and_empty_rows_are_filled():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(execution)
        await ended(*[Sent(scheduler, name, f"({name}") for name in "abc"])
        await ended(Sent(scheduler, "b"), Sent(scheduler, "a", "a)"))
        await ended(Sent(scheduler, "c"))
        await ended(Sent(scheduler, "b"), Sent(scheduler, "d", "(d"))
        assert execution.batches() == ["a", "-bc", "-b", "a", "--c", "-b", "d"]

    simulate(serve)


def test_what_fills_a_row_writes_nothing_to_the_client_and_is_no_step_of_its_sequence():
    async def serve():
        execution, fillers = Rows(), []
        inside = execution.takes_ms
        execution.takes_ms = lambda requests: fillers.append(requests[0]) or inside(requests)
        scheduler = scheduler_of(execution)
        await ended(Sent(scheduler, "a", "(a"), Sent(scheduler, "b", "(b"))
        span = Span(memoryview(b""), ((0,), 0, 0), None)
        sent = Sent(scheduler, "b", outputs=[WantedOutput("Y", place=span)], spans=[span])
        await ended(sent)
        assert (fillers[-1].spans, fillers[-1].outputs) == (None, [WantedOutput("Y")])
        assert fillers[-1].sequence is None
        assert sent.request.spans

    simulate(serve)


def test_in_the_oldest_strategy_rows_mean_nothing():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(execution, oldest=True, per_instance=3)
        first = [Sent(scheduler, name, f"({name}") for name in "abcd"]
        second = [Sent(scheduler, name, f"{name})") for name in "cb"]
        await ended(*first, *second)
        assert execution.batches() == ["a", "bc", "bc", "d"]

    simulate(serve)


def test_sequences_stay_on_their_instance():
    async def serve():
        executions = Rows(), Rows()
        scheduler = scheduler_of(*executions, per_instance=1, most=0)
        await ended(*[Sent(scheduler, name, f"({name}") for name in "ab"])
        await ended(*[Sent(scheduler, name) for name in "bbab"])
        assert [one.batches() for one in executions] == [["a", "a"], ["b", "b", "b", "b"]]

    simulate(serve)


def test_a_sequence_without_a_slot_waits_for_one():
    async def serve():
        scheduler = scheduler_of(Rows(), per_instance=1)
        first, later = Sent(scheduler, "a", "(a"), Sent(scheduler, "b", "(b")
        last = Sent(scheduler, "c", "(c")
        await passes(20)
        assert scheduler.pending_count == 2
        end = Sent(scheduler, "a", "a)")
        assert await ended(first, end, later, last) == [10, 30, 40, 1050]

    simulate(serve)


def test_an_idle_sequence_ends():
    async def serve():
        scheduler = scheduler_of(Rows(), idle_ms=100)
        await ended(Sent(scheduler, "a", "(a"))
        await passes(99)
        await ended(kept := Sent(scheduler, "a"))
        await passes(100)
        await ended(late := Sent(scheduler, "a"))
        assert kept.error is None
        assert isinstance(late.error, InvalidRequest)
        assert "no request comes for 100000 microseconds" in late.error.message

    simulate(serve)


@pytest.mark.parametrize("text", ["x", "x)"])
def test_a_sequence_begins_with_a_start(text):
    async def serve():
        scheduler = scheduler_of(Rows())
        one = Sent(scheduler, "a", text)
        over = [Sent(scheduler, "b", "(b)"), Sent(scheduler, "b")]
        await ended(one, *over)
        assert (
            "request for sequence 'a' to model 'm' must specify the START flag" in one.error.message
        )
        assert over[0].error is None
        assert (
            "request for sequence 'b' to model 'm' must specify the START flag"
            in over[1].error.message
        )
        assert not scheduler._live

    simulate(serve)


def test_start_and_end_alone_make_no_sequence():
    async def serve():
        scheduler = scheduler_of(Rows())
        await ended(one := Sent(scheduler, 0, "(x)"))
        assert "must specify a non-zero or non-empty correlation ID" in one.error.message
        assert not scheduler._live

    simulate(serve)


def test_a_second_start_begins_the_sequence_anew_behind_what_waits():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(execution, state=(STATE,))
        texts = ["(1", "2)", "(3", "4", "(5)"]
        sent = [Sent(scheduler, "a", text) for text in texts]
        await ended(*sent)
        assert execution.batches() == ["1", "2", "3", "4", "5"]
        assert [one.answer.parameters["step"] for one in sent] == [1, 2, 1, 2, 1]
        assert not scheduler._live

    simulate(serve)


def test_a_model_that_fails_leaves_the_sequence_as_it_was():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(execution, state=(STATE,))
        await ended(Sent(scheduler, "a", "(a"))
        execution.outcome = lambda _requests: BackendFailed("no")
        await ended(failed := Sent(scheduler, "a"))
        execution.outcome = lambda requests: [BackendFailed("no") for _ in requests]
        await ended(also := Sent(scheduler, "a"))
        execution.outcome = None
        await ended(sound := Sent(scheduler, "a"))
        assert (failed.error.message, also.error.message) == ("no", "no")
        assert sound.answer.parameters["step"] == 2

    simulate(serve)


def test_a_failed_batch_fails_each_with_an_error_of_its_own():
    async def serve():
        execution = Rows(is_quick=True)
        execution.outcome = lambda _requests: BackendFailed("no")
        scheduler = scheduler_of(execution)
        sent = [Sent(scheduler, name, f"({name}") for name in "ab"]
        await ended(*sent)
        assert [one.error.message for one in sent] == ["no", "no"]
        assert sent[0].error is not sent[1].error

    simulate(serve)


def test_a_model_that_breaks_its_state_fails_the_request():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(execution, state=(STATE,))
        execution.outcome = lambda requests: [
            InferResponse("m", "1", one.id, [Tensor("STATE_OUT", DataType.BOOL, (1, 1), b"0")])
            for one in requests
        ]
        await ended(sent := Sent(scheduler, "a", "(a"))
        assert isinstance(sent.error, BackendFailed)

    simulate(serve)


def test_a_state_is_asked_for_beside_the_outputs_a_client_wants():
    async def serve():
        asked = []
        execution = Rows(takes_ms=lambda requests: asked.append(requests[0].outputs) or 1)
        scheduler = scheduler_of(execution, state=(STATE,))
        names = [["Y"], ["STATE_OUT", "Y"], []]
        for number, wanted in enumerate(names):
            outputs = [WantedOutput(name) for name in wanted]
            await ended(Sent(scheduler, "a", "a" if number else "(a", outputs=outputs))
        assert [[one.name for one in outputs] for outputs in asked] == [
            ["Y", "STATE_OUT"],
            ["STATE_OUT", "Y"],
            [],
        ]

    simulate(serve)


def test_a_cancelled_request_ends_its_sequence_and_all_that_wait_in_it():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(execution, per_instance=1)
        sent = [Sent(scheduler, "a", text) for text in ("(1", "2", "3", "4")]
        other = Sent(scheduler, "b", "(b")
        await passes(5)
        sent[2].task.cancel()
        assert await ended(*sent, other) == [10, 5, 5, 5, 20]
        assert sent[0].answer is not None
        assert isinstance(sent[1].error, Cancelled)
        assert sent[3].error.message == (
            "sequence 'a' of model 'm' has ended: a request of it was cancelled"
        )
        await ended(late := Sent(scheduler, "a"))
        assert isinstance(late.error, InvalidRequest)
        assert execution.batches() == ["1", "b"]

    simulate(serve)


def test_a_request_that_runs_counts_though_its_caller_left():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(execution, state=(STATE,))
        first = Sent(scheduler, "a", "(a")
        await passes(5)
        first.task.cancel()
        await ended(second := Sent(scheduler, "a"))
        assert second.answer.parameters["step"] == 2
        assert execution.cancelled == ["a"]

    simulate(serve)


def test_a_cancelled_request_in_the_backlog_leaves_nothing_behind():
    async def serve():
        scheduler = scheduler_of(Rows(), per_instance=1)
        await ended(Sent(scheduler, "a", "(a"))
        waits = Sent(scheduler, "b", "(b")
        await passes(1)
        waits.task.cancel()
        await ended(waits)
        assert (list(scheduler._live), list(scheduler._sequences.backlog)) == (["a"], [])
        assert scheduler.pending_count == 0

    simulate(serve)


def test_a_request_waits_no_longer_than_its_timeout():
    async def serve():
        scheduler = scheduler_of(Rows(), per_instance=1)
        await ended(Sent(scheduler, "a", "(a"))
        waits = Sent(scheduler, "b", "(b", timeout_us=30_000)
        behind = Sent(scheduler, "b")
        assert await ended(waits, behind) == [40, 40]
        assert isinstance(waits.error, Unavailable)
        assert "30000 microseconds" in waits.error.message
        assert isinstance(behind.error, Unavailable)
        told = behind.error.message
        assert told.startswith("timeout of the corresponding sequence has been expired: sequence ")
        assert told.endswith("has waited too long")

    simulate(serve)


def test_a_full_backlog_refuses_and_those_with_a_slot_go_on():
    async def serve():
        scheduler = scheduler_of(Rows(), per_instance=1, queue={"max_queue_size": 2})
        sent = [Sent(scheduler, name, f"({name}") for name in "abc"]
        await passes(1)
        refused = Sent(scheduler, "d", "(d")
        more = [Sent(scheduler, "a"), Sent(scheduler, "a"), Sent(scheduler, "a", "a)")]
        await ended(refused, more[2])
        assert [type(one.error) for one in (refused, more[2])] == [Overloaded] * 2
        await ended(sent[0], *more)
        await ended(last := Sent(scheduler, "a", "a)"))
        assert [one.error for one in (*more[:2], last)] == [None] * 3
        await ended(*sent)
        assert "d" not in scheduler._live

    simulate(serve)


def test_requests_of_other_shapes_run_in_another_batch():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(execution)
        await ended(*[Sent(scheduler, name, f"({name}") for name in "abc"])
        sent = [
            Sent(scheduler, name, length=length)
            for name, length in zip("abc", (1, 2, 1), strict=True)
        ]
        await ended(*sent)
        assert execution.batches()[2:] == ["a", "-b", "--c"]

    simulate(serve)


def test_a_pace_may_wait_until_enough_rows_have_a_request():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(execution, timing=FixedTiming(4, (2, 3, 4), 50_000))
        alone = Sent(scheduler, "a", "(a")
        await passes(5)
        both = [alone, Sent(scheduler, "b", "(b")]
        assert await ended(*both) == [15, 15]
        assert await ended(Sent(scheduler, "b")) == [75]
        assert execution.batches() == ["ab", "-b"]

    simulate(serve)


def test_a_quick_model_runs_on_the_loop():
    async def serve():
        execution = Rows(is_quick=True)
        scheduler = scheduler_of(execution, per_instance=1)
        sent = [Sent(scheduler, name, f"({name})") for name in "abc"]
        assert await ended(*sent) == [0, 0, 0]
        assert execution.batches() == ["a", "b", "c"]

    simulate(serve)


def test_closing_lets_what_waits_run_and_takes_nothing_more():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(execution, per_instance=1)
        sent = [Sent(scheduler, "a", "(a"), Sent(scheduler, "a"), Sent(scheduler, "b", "(b")]
        await passes(1)
        closing = asyncio.create_task(scheduler.close(1.0))
        await passes(1)
        late = Sent(scheduler, "a")
        assert await ended(late, *sent) == [2, 10, 20, 30]
        await closing
        assert now_ms() == 30
        assert isinstance(late.error, Unavailable)
        assert execution.is_closed

    simulate(serve)


def test_closing_refuses_what_still_waits_when_the_time_is_over():
    async def serve():
        execution = Rows(takes_ms=100)
        scheduler = scheduler_of(execution)
        sent = [Sent(scheduler, "a", "(a"), Sent(scheduler, "a")]
        await passes(1)
        await scheduler.close(0.05)
        assert await ended(*sent) == [100, 51]
        assert isinstance(sent[1].error, Unavailable)
        assert execution.close_timeout_s == 0

    simulate(serve)


def test_a_stream_has_the_one_answer():
    async def serve():
        scheduler = scheduler_of(Rows())
        request = InferRequest("m", inputs=[Tensor("A", DataType.INT8, (1, 1), b"0")])
        request.sequence = Sequence("a", start=True)
        assert len([answer async for answer in scheduler.stream(request)]) == 1

    simulate(serve)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "must specify a non-zero or non-empty correlation ID"),
        (
            {"sequence": Sequence(1, start=True), "batch_size": 2},
            "must specify batch-size 1 .* batch size 2",
        ),
    ],
)
def test_a_request_must_belong_to_a_sequence(fields, text):
    async def serve():
        with pytest.raises(InvalidRequest, match=text):
            await scheduler_of(Rows()).run(with_fields(InferRequest("m"), **fields))

    simulate(serve)


# --- held, for tests ---


def test_rows_are_held_until_so_many_wait_in_sequences_with_a_slot():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(execution, delayed_start=DelayedStart(4))
        sent = [Sent(scheduler, "a", text) for text in ("(1", "2", "3)")]
        await passes(500)
        assert execution.started == []
        sent.append(Sent(scheduler, "b", "(4)"))
        await ended(*sent)
        assert execution.batches() == ["14", "2", "3"]
        await ended(Sent(scheduler, "c", "(5)"))
        assert execution.batches()[-1] == "5"

    simulate(serve)


def test_rows_are_held_until_so_many_wait_in_the_backlog_too():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(
            execution, per_instance=1, most=1, delayed_start=DelayedStart(1, 2)
        )
        sent = [Sent(scheduler, name, f"({name})") for name in "ab"]
        await passes(500)
        assert execution.started == []
        sent.append(Sent(scheduler, "c", "(c)"))
        await ended(*sent)
        assert execution.batches() == ["a", "b", "c"]

    simulate(serve)


def test_rows_of_all_instances_begin_together():
    async def serve():
        one, other = Rows(), Rows()
        scheduler = scheduler_of(one, other, delayed_start=DelayedStart(2))
        sent = [Sent(scheduler, "a", "(a)")]
        await passes(1)
        sent.append(Sent(scheduler, "b", "(b)"))
        await ended(*sent)
        assert (one.started, other.started) == ([(1, ["a"])], [(1, ["b"])])

    simulate(serve)


def test_oldest_is_held_until_so_many_sequences_are_ready():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(execution, oldest=True, delayed_start=DelayedStart(2))
        sent = [Sent(scheduler, "a", text) for text in ("(1", "2", "3)")]
        await passes(500)
        assert execution.started == []
        sent.append(Sent(scheduler, "b", "(4)"))
        await ended(*sent)
        assert execution.batches() == ["14", "2", "3"]

    simulate(serve)


def test_the_end_lets_go_of_sequences_that_are_held():
    async def serve():
        execution = Rows()
        scheduler = scheduler_of(execution, delayed_start=DelayedStart(9))
        sent = Sent(scheduler, "a", "(a)")
        await passes(1)
        await scheduler.close(30)
        await ended(sent)
        assert sent.error is None

    simulate(serve)


# --- more instances, and fewer ---


def test_an_instance_that_comes_takes_those_in_the_backlog():
    async def serve():
        one, other = Rows(), Rows()
        scheduler = scheduler_of(one, per_instance=1, most=1)
        sent = [Sent(scheduler, name, f"({name}") for name in "ab"]
        await passes(20)
        assert other.started == []
        scheduler.grow(other)
        assert await ended(*sent) == [10, 30]
        assert other.batches() == ["b"]
        await scheduler.close(1)
        assert one.is_closed and other.is_closed

    simulate(serve)


def test_an_instance_goes_after_its_last_sequence_and_gets_no_other():
    async def serve():
        one, other = Rows(), Rows()
        scheduler = scheduler_of(one, other, per_instance=2, most=2)
        sent = [Sent(scheduler, name, f"({name}") for name in "abc"]  # a and c here, b there
        await ended(*sent)
        scheduler.shrink()
        await ended(Sent(scheduler, "b", "B"), Sent(scheduler, "d", "(d"))
        assert not other.is_closed
        assert other.batches()[-1] == "B"
        assert "d" not in "".join(other.batches())
        last = Sent(scheduler, "b", "e)")
        await ended(last)
        await passes(1)
        assert other.is_closed and not one.is_closed
        await scheduler.close(1)

    simulate(serve)


def test_an_idle_sequence_keeps_its_instance_until_its_time_is_over():
    async def serve():
        one, other = Rows(), Rows()
        scheduler = scheduler_of(one, other, per_instance=1, most=1)
        await ended(*[Sent(scheduler, name, f"({name}") for name in "ab"])
        scheduler.shrink()
        await passes(980)
        assert not (one.is_closed or other.is_closed)
        await passes(20)
        assert [one.is_closed, other.is_closed].count(True) == 1
        scheduler.shrink()  # the last one stays
        await ended(Sent(scheduler, "c", "(c)"))
        await scheduler.close(1)

    simulate(serve)


def test_an_instance_without_sequences_goes_at_once():
    async def serve():
        one, other = Rows(), Rows()
        scheduler = scheduler_of(one, other)
        scheduler.shrink()
        await passes(1)
        assert one.is_closed and not other.is_closed
        await ended(Sent(scheduler, "a", "(a)"))
        assert other.batches() == ["a"]
        await scheduler.close(1)

    simulate(serve)


def test_an_instance_that_comes_after_the_end_is_closed():
    async def serve():
        late = Rows()
        scheduler = scheduler_of(Rows())
        await scheduler.close(1)
        scheduler.grow(late)
        await passes(1)
        assert late.is_closed

    simulate(serve)
