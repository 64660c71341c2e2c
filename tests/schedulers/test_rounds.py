"""Iterative sequences: a request that the model takes in several rounds."""

import asyncio
from contextlib import aclosing

import numpy as np
import pytest
from fields import with_fields
from simulation import SimulatedExecution, SimulatedTimer, now_ms, passes, simulate

from inferd.config.model import (
    Control,
    ControlInput,
    ModelConfig,
    ModelInput,
    OldestStrategy,
    SequenceBatching,
    SequenceState,
)
from inferd.core.request import InferRequest, InferResponse, Round, Sequence
from inferd.engine.loading.scheduling import choose_scheduler
from inferd.errors import BackendFailed, Cancelled, InferdError, InvalidRequest, Unavailable
from inferd.schedulers.execution.job import STREAM_AHEAD, STREAM_AHEAD_BYTES
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

START = ControlInput("START", (Control("CONTROL_SEQUENCE_START", int32_false_true=(0, 1)),))
END = ControlInput("END", (Control("CONTROL_SEQUENCE_END", int32_false_true=(0, 1)),))
READY = ControlInput("READY", (Control("CONTROL_SEQUENCE_READY", int32_false_true=(0, 1)),))
NUMBER = ControlInput("ID", (Control("CONTROL_SEQUENCE_CORRID", datatype=DataType.UINT64),))
TEXT = ControlInput("ID", (Control("CONTROL_SEQUENCE_CORRID", datatype=DataType.BYTES),))
STATE = SequenceState("STATE", "STATE_OUT", DataType.INT8, (1,))


def read(request):
    return {one.name: one.numpy().ravel()[0] for one in request.inputs}


class Counting(SimulatedExecution):
    """A model that takes as many rounds as its input says; a decoupled one answers in each.

    It keeps how many it has left by the id it is told. `bad` makes an outcome of a request.
    """

    def __init__(self, *, decoupled=False, takes_ms=10, is_quick=False, bad=None, size=1):
        super().__init__(1, takes_ms, is_quick=is_quick)
        self.outcome = lambda requests: [self._answer(request) for request in requests]
        self.decoupled = decoupled
        self.bad = bad
        self.size = size
        self.left = {}
        self.told = []

    def _answer(self, request):
        inputs = read(request)
        if not inputs["READY"]:
            return InferResponse("m", "1")
        if self.bad is not None:
            return self.bad(request)
        id = inputs["ID"]
        assert (request.sequence.start, request.sequence.end) == (inputs["START"], inputs["END"])
        self.told.append((request.id, inputs["START"], inputs["END"]))
        if not self.left.get(id):
            self.left[id] = int(inputs["A"])
        self.left[id] -= 1
        left = self.left[id]
        state = [Tensor("STATE_OUT", DataType.INT8, (1, 1), bytes([inputs.get("STATE", 0) + 1]))]
        here = state if "STATE" in inputs else []
        if not self.decoupled:
            if left:
                return Round("m", "1", outputs=here, again=True)
            return InferResponse("m", "1", request.id, [*here, _output(inputs.get("STATE", 0))])
        answer = InferResponse("m", "1", str(left), [_output(left, self.size)], final=not left)
        return Round("m", "1", outputs=here, answers=[answer], again=bool(left))


def _output(value, size=1):
    return Tensor("Y", DataType.INT8, (1, size), np.full(size, value, np.int8))


def scheduler_of(
    *executions, oldest=True, most=4, state=(), id=NUMBER, per_instance=4, iterates=True
):
    config = ModelConfig(
        "m",
        max_batch_size=most,
        input=(ModelInput("A", DataType.INT8, (1,)),),
        decoupled=executions[0].decoupled,
        sequence_batching=SequenceBatching(
            max_sequence_idle_microseconds=100_000,
            control_input=(START, END, READY, id),
            oldest=OldestStrategy(per_instance) if oldest else None,
            state=state,
            iterative_sequence=iterates,
        ),
    )

    def execution_of(numbers):
        [execution] = executions[numbers]
        return execution

    return choose_scheduler(config, execution_of, len(executions), timer=SimulatedTimer)


class Sent:
    """A request that takes so many rounds; what it got, when it ended and how."""

    def __init__(self, scheduler, id, rounds=1, sequence=None, *, reads=None, **fields):
        tensor = Tensor("A", DataType.INT8, (1, 1), bytes([rounds]))
        self.request = with_fields(
            InferRequest("m", id=id, inputs=[tensor]), sequence=sequence, **fields
        )
        self.got, self.at_ms, self.error, self.answer = [], None, None, None
        self.task = asyncio.create_task(self._wait(scheduler, reads or (lambda: passes(0))))
        self.sent = sequence

    async def _wait(self, scheduler, reads):
        try:
            async with aclosing(scheduler.stream(self.request)) as answers:
                async for answer in answers:
                    self.got.append(answer.id)
                    self.answer = answer
                    await reads()
            assert self.request.sequence is self.sent
        except InferdError as error:
            self.error = error
        finally:
            self.at_ms = now_ms()


async def ended(*sent):
    await asyncio.gather(*(one.task for one in sent), return_exceptions=True)
    return [one.at_ms for one in sent]


def test_requests_share_rounds_and_each_ends_when_its_model_is_done():
    async def serve():
        execution = Counting()
        scheduler = scheduler_of(execution)
        sent = [Sent(scheduler, "a", 3), Sent(scheduler, "b", 1), Sent(scheduler, "c", 2)]
        assert await ended(*sent) == [30, 20, 30]
        assert execution.batches() == ["a", "bca", "ca"]
        assert [one.got for one in sent] == [["a"], ["b"], ["c"]]
        assert not scheduler._live

    simulate(serve)


@pytest.mark.parametrize("silent", [(), (2,)])
def test_the_states_of_a_round_without_outputs_are_those_of_its_last_answer(silent):
    seen = []

    def bad(request):
        state = read(request)["STATE"]
        seen.append(int(state))
        answers = []
        for value in (state + 5, state + 1) if len(seen) not in silent else ():
            kept = Tensor("STATE_OUT", DataType.INT8, (1, 1), bytes([value]))
            answers.append(InferResponse("m", "1", str(value), [_output(value), kept]))
        return Round("m", "1", answers=answers, again=len(seen) < 3)

    async def serve():
        scheduler = scheduler_of(Counting(decoupled=True, bad=bad), state=(STATE,))
        sent = Sent(scheduler, "a")
        await ended(sent)
        assert sent.error is None
        assert [one.name for one in sent.answer.outputs] == ["Y"]
        assert seen == ([0, 1, 1] if silent else [0, 1, 2])

    simulate(serve)


def test_only_the_first_round_has_the_flags():
    async def serve():
        execution = Counting()
        scheduler = scheduler_of(execution)
        await ended(Sent(scheduler, "a", 3))
        await ended(Sent(scheduler, "b", 2, Sequence(5, start=True, end=True)))
        assert execution.told == [("a", 1, 0), ("a", 0, 0), ("a", 0, 0), ("b", 1, 1), ("b", 0, 0)]

    simulate(serve)


@pytest.mark.parametrize(("id", "kind"), [(NUMBER, (int, np.integer)), (TEXT, bytes)])
def test_a_request_without_an_id_is_a_sequence_of_its_own(id, kind):
    async def serve():
        execution = Counting()
        scheduler = scheduler_of(execution, id=id)
        await ended(*(Sent(scheduler, one, 2) for one in "abc"))
        assert len(execution.left) == 3
        assert all(isinstance(one, kind) for one in execution.left)

    simulate(serve)


def test_nobody_can_name_a_sequence_that_is_a_requests_own():
    async def serve():
        execution = Counting()
        scheduler = scheduler_of(execution)
        own = Sent(scheduler, "a", 3)
        await passes(15)
        [id] = execution.left
        stranger = Sent(scheduler, "b", 1, Sequence(int(id)))
        await ended(stranger, own)
        assert isinstance(stranger.error, InvalidRequest)
        assert own.got == ["a"]

    simulate(serve)


def test_requests_with_an_id_follow_each_other_in_their_sequence():
    async def serve():
        execution = Counting()
        scheduler = scheduler_of(execution, state=(STATE,))
        first = Sent(scheduler, "a", 2, Sequence(1, start=True))
        second = Sent(scheduler, "b", 3, Sequence(1))
        assert await ended(first, second) == [20, 50]
        assert execution.batches() == ["a", "a", "b", "b", "b"]
        rounds_before = [one.answer.outputs[-1].numpy()[0, 0] for one in (first, second)]
        assert rounds_before == [1, 4]

    simulate(serve)


def test_new_requests_join_those_that_have_had_their_first_round():
    async def serve():
        execution = Counting()
        scheduler = scheduler_of(execution)
        first = Sent(scheduler, "a", 4)
        await passes(15)
        assert await ended(first, Sent(scheduler, "b", 2)) == [40, 40]
        assert execution.batches() == ["a", "a", "ba", "ba"]

    simulate(serve)


def test_more_than_have_a_slot_wait_until_one_is_done():
    async def serve():
        execution = Counting()
        scheduler = scheduler_of(execution, per_instance=2)
        assert await ended(*(Sent(scheduler, one, 2) for one in "abc")) == [20, 30, 40]

    simulate(serve)


def test_in_rows_an_empty_one_is_filled():
    async def serve():
        execution = Counting()
        scheduler = scheduler_of(execution, oldest=False)
        assert await ended(Sent(scheduler, "a", 1), Sent(scheduler, "b", 2)) == [10, 30]
        assert [len(ids) for _, ids in execution.started] == [1, 2, 2]
        assert [id for id, _, _ in execution.told] == ["a", "b", "b"]

    simulate(serve)


def test_a_quick_model_has_its_rounds_on_the_loop():
    async def serve():
        execution = Counting(is_quick=True)
        scheduler = scheduler_of(execution)
        assert await ended(Sent(scheduler, "a", 3), Sent(scheduler, "b", 2)) == [0, 0]

    simulate(serve)


def test_each_round_is_counted_and_the_request_has_the_times_of_all():
    async def serve():
        execution = Counting()
        scheduler = scheduler_of(execution)
        sent = Sent(scheduler, "a", 3)
        await ended(sent)
        assert execution.rounds == [("a", False)] * 3
        request = sent.request
        assert (request.ended_ns - request.started_ns) == 30_000_000

    simulate(serve)


# --- decoupled ---


def test_a_decoupled_model_answers_in_each_round():
    async def serve():
        execution = Counting(decoupled=True)
        scheduler = scheduler_of(execution)
        sent = [Sent(scheduler, "a", 3), Sent(scheduler, "b", 2)]
        assert await ended(*sent) == [30, 30]
        assert [one.got for one in sent] == [["2", "1", "0"], ["1", "0"]]
        assert execution.batches() == ["a", "ba", "ba"]

    simulate(serve)


def test_a_decoupled_model_may_end_without_an_answer_or_with_a_plain_one():
    async def serve():
        ends = [Round("m", "1"), InferResponse("m", "1", "last")]
        execution = Counting(decoupled=True, bad=lambda _request: ends.pop(0))
        scheduler = scheduler_of(execution)
        sent = [Sent(scheduler, "a"), Sent(scheduler, "b")]
        await ended(*sent)
        assert [(one.got, one.error) for one in sent] == [([], None), (["last"], None)]
        assert not scheduler._live

    simulate(serve)


@pytest.mark.parametrize(("size", "ahead"), [(1, STREAM_AHEAD), (STREAM_AHEAD_BYTES, 1)])
def test_a_model_does_not_run_far_ahead_of_a_slow_reader(size, ahead):
    async def serve():
        execution = Counting(decoupled=True, size=size)
        scheduler = scheduler_of(execution)
        slow = Sent(scheduler, "a", 100, reads=lambda: passes(10_000))
        await passes(9_000)
        assert len(execution.started) == ahead + 1  # one that is being read
        assert await ended(Sent(scheduler, "b", 1)) == [9010]
        await passes(10_000)
        assert len(execution.started) == ahead + 3
        slow.task.cancel()
        await ended(slow)
        assert not scheduler._live

    simulate(serve)


# --- what ends it early ---


@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("is_quick", [True, False])
def test_a_failure_ends_a_request_that_is_a_sequence_of_its_own(decoupled, is_quick):
    async def serve():
        execution = Counting(decoupled=decoupled, is_quick=is_quick)
        scheduler = scheduler_of(execution)
        execution.bad = lambda _request: BackendFailed("no")
        one = Sent(scheduler, "a")
        await ended(one)
        execution.outcome = lambda _requests: BackendFailed("nothing")
        other = Sent(scheduler, "b")
        await ended(other)
        assert [one.error.message, other.error.message] == ["no", "nothing"]
        assert not scheduler._live
        assert execution.rounds == [("a", True), ("b", True)]

    simulate(serve)


@pytest.mark.parametrize("decoupled", [True, False])
def test_there_is_no_further_round_when_the_caller_has_left(decoupled):
    async def serve():
        execution = Counting(decoupled=decoupled)
        scheduler = scheduler_of(execution)
        sent = Sent(scheduler, "a", 5)
        follows = Sent(scheduler, "b", 1, Sequence(7, start=True))
        behind = Sent(scheduler, "c", 1, Sequence(7))
        await passes(15)
        sent.task.cancel()
        follows.task.cancel()
        await ended(sent, follows, behind)
        assert execution.batches() == ["a", "ba", "c"]
        await passes(200)
        assert not scheduler._live

    simulate(serve)


def test_one_that_leaves_between_rounds_ends_its_sequence():
    async def serve():
        execution = Counting()
        scheduler = scheduler_of(execution, per_instance=4, most=1)
        leaves = Sent(scheduler, "a", 5, Sequence(7, start=True))
        behind, other = Sent(scheduler, "b", 1, Sequence(7)), Sent(scheduler, "c", 1)
        await passes(15)
        leaves.task.cancel()
        assert await ended(leaves, behind, other) == [15, 15, 20]
        assert isinstance(behind.error, Cancelled)
        assert execution.batches() == ["a", "c"]

    simulate(serve)


@pytest.mark.parametrize("between", [True, False])
def test_one_under_way_goes_on_when_one_behind_it_is_given_up(between):
    async def serve():
        scheduler = scheduler_of(Counting(), most=1)
        goes_on = Sent(scheduler, "a", 3, Sequence(7, start=True))
        other = Sent(scheduler, "b", 3, Sequence(8, start=True))
        behind = [Sent(scheduler, one, 1, Sequence(7)) for one in "cd"]
        await passes(15 if between else 5)
        behind[0].task.cancel()
        await ended(goes_on, other, *behind)
        assert [one.got for one in (goes_on, other)] == [["a"], ["b"]]
        assert isinstance(behind[1].error, Cancelled)
        late = Sent(scheduler, "e", 1, Sequence(7))
        await ended(late)
        assert isinstance(late.error, InvalidRequest)

    simulate(serve)


def test_one_that_leaves_in_a_round_ends_its_sequence_after_it():
    async def serve():
        execution = Counting()
        scheduler = scheduler_of(execution)
        leaves = Sent(scheduler, "a", 5, Sequence(7, start=True))
        behind = Sent(scheduler, "b", 1, Sequence(7))
        await passes(5)
        leaves.task.cancel()
        assert await ended(leaves, behind) == [5, 10]
        assert isinstance(behind.error, Cancelled)
        assert not scheduler._live

    simulate(serve)


@pytest.mark.parametrize("decoupled", [True, False])
def test_closing_lets_all_rounds_run_while_there_is_time(decoupled):
    async def serve():
        scheduler = scheduler_of(Counting(decoupled=decoupled))
        sent = Sent(scheduler, "a", 5)
        await passes(5)
        await scheduler.close(1)
        assert await ended(sent) == [50]
        assert sent.error is None

    simulate(serve)


@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("close_s", [0.02, 0.021])
def test_closing_refuses_what_has_more_rounds_than_there_is_time(decoupled, close_s):
    async def serve():
        scheduler = scheduler_of(Counting(decoupled=decoupled))
        sent = [Sent(scheduler, "a", 100), Sent(scheduler, "b", 100)]
        await passes(5)
        await scheduler.close(close_s)
        await ended(*sent)
        assert now_ms() <= 40
        assert [type(one.error) for one in sent] == [Unavailable] * 2

    simulate(serve)


@pytest.mark.parametrize(
    ("iterates", "decoupled", "round", "text"),
    [
        (False, False, {"again": True}, "has no iterative_sequence"),
        (True, False, {"again": False}, "it gives one answer at the end"),
        (True, False, {"again": True, "answers": [InferResponse("m", "1")]}, "gave 1 answers"),
    ],
)
def test_what_a_model_may_not_do_fails_the_request(iterates, decoupled, round, text):
    async def serve():
        execution = Counting(decoupled=decoupled, bad=lambda _request: Round("m", "1", **round))
        scheduler = scheduler_of(execution, iterates=iterates)
        sent = Sent(scheduler, "a", 1, Sequence(1, start=True, end=True))
        await ended(sent)
        assert isinstance(sent.error, BackendFailed)
        assert text in sent.error.message
        assert not scheduler._live

    simulate(serve)
