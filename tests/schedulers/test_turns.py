"""How callers of decoupled models take turns in sequences."""

import asyncio
from contextlib import aclosing

from fields import with_fields
from simulation import SimulatedExecution, SimulatedTimer, now_ms, passes, simulate

from inferd.config.model import ModelConfig, ModelInput, SequenceBatching, SequenceState
from inferd.core.request import InferRequest, InferResponse, Sequence
from inferd.engine.loading.scheduling import choose_scheduler
from inferd.errors import BackendFailed, InferdError, InvalidRequest, Unavailable
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

STATE = SequenceState("STATE", "STATE_OUT", DataType.INT8, (1,))


def config_of(**fields):
    return ModelConfig(
        "m",
        max_batch_size=4,
        input=(ModelInput("A", DataType.INT8, (1,)),),
        decoupled=True,
        **fields,
    )


def scheduler_of(config, *executions):
    def execution_of(numbers):
        [execution] = executions[numbers]
        return execution

    return choose_scheduler(config, execution_of, len(executions), timer=SimulatedTimer)


def sequences(*executions, state=()):
    batching = SequenceBatching(max_sequence_idle_microseconds=10**6, state=state)
    return scheduler_of(config_of(sequence_batching=batching), *executions)


class Reader:
    """Takes the answers to a request; the letters that came, when it ended and how."""

    def __init__(self, scheduler, id, *, most=100, sequence=None, **fields):
        tensor = Tensor("A", DataType.INT8, (1, 1), b"0")
        self.request = with_fields(
            InferRequest("m", id=id, inputs=[tensor]), sequence=sequence, **fields
        )
        self.got, self.at_ms, self.error = "", None, None
        self.task = asyncio.create_task(self._read(scheduler, most))

    async def _read(self, scheduler, most):
        try:
            async with aclosing(scheduler.stream(self.request)) as answers:
                async for answer in answers:
                    self.got += answer.id
                    if len(self.got) == most:
                        break
        except InferdError as error:
            self.error = error
        finally:
            self.at_ms = now_ms()


async def ended(*readers):
    await asyncio.gather(*(one.task for one in readers), return_exceptions=True)
    return [(one.got, one.at_ms) for one in readers]


def test_one_that_leaves_gives_the_instance_back():
    async def serve():
        scheduler = sequences(SimulatedExecution())
        leaves = Reader(scheduler, "abcdef", most=1, sequence=start(1))
        waits, gone = (Reader(scheduler, id, sequence=start(id)) for id in "gh")
        await passes(5)
        gone.task.cancel()
        assert await ended(leaves, waits, gone) == [("a", 10), ("g", 20), ("", 5)]
        cancelled = Reader(scheduler, "ij", sequence=start(2))
        last = Reader(scheduler, "k", sequence=start(3))
        await passes(5)
        cancelled.task.cancel()
        assert await ended(cancelled, last) == [("", 25), ("k", 35)]
        assert not scheduler._instances.all()[0].is_busy

    simulate(serve)


def test_one_that_leaves_when_its_turn_has_just_come_gives_it_back():
    async def serve():
        execution = SimulatedExecution()
        scheduler = sequences(execution)
        tensor = Tensor("A", DataType.INT8, (1, 1), b"0")
        first = with_fields(InferRequest("m", id="a", inputs=[tensor]), sequence=start(1))
        async with aclosing(scheduler.stream(first)) as answers:
            async for _ in answers:
                second = Reader(scheduler, "b", sequence=start(2))
                await passes(1)
        assert scheduler._instances.all()[0].is_busy  # by the second, which does not know that yet
        second.task.cancel()
        await ended(second, last := Reader(scheduler, "c", sequence=start(3)))
        assert (last.got, execution.batches()) == ("c", ["a", "c"])
        assert not scheduler._instances.all()[0].is_busy

    simulate(serve)


def test_sequences_answer_at_the_same_time_where_their_instance_lets_them():
    async def serve():
        execution = SimulatedExecution(count=2)
        scheduler = sequences(execution)
        readers = [
            Reader(scheduler, "abc", sequence=start(1)),
            Reader(scheduler, "d", sequence=Sequence(1)),
            Reader(scheduler, "e", sequence=start(2)),
            Reader(scheduler, "fg", sequence=start(3)),
        ]
        assert await ended(*readers) == [("abc", 30), ("d", 40), ("e", 10), ("fg", 30)]
        assert [at for at, _ in execution.started] == [0, 0, 10, 30]
        instance = scheduler._instances.all()[0]
        assert not instance.is_busy
        assert not instance.turn_count

    simulate(serve)


def test_closing_refuses_those_who_wait_when_the_time_is_over():
    async def serve():
        scheduler = sequences(SimulatedExecution())
        runs = Reader(scheduler, "abcdefgh", sequence=start(1))
        waits = Reader(scheduler, "i", sequence=start(2))
        await passes(1)
        await scheduler.close(0.03)
        await ended(waits)
        assert (waits.at_ms, type(waits.error)) == (31, Unavailable)
        await ended(runs)
        assert not scheduler._live

    simulate(serve)


def start(id=1):
    return Sequence(id, start=True)


def test_a_sequences_next_request_waits_for_the_last_answer_of_the_one_before():
    async def serve():
        execution = SimulatedExecution()
        scheduler = sequences(execution)
        readers = [
            Reader(scheduler, "abc", sequence=start()),
            Reader(scheduler, "d", sequence=Sequence(1)),
            Reader(scheduler, "e", sequence=start(2)),
        ]
        assert await ended(*readers) == [("abc", 30), ("d", 50), ("e", 40)]
        assert [at for at, _ in execution.started] == [0, 30, 40]

    simulate(serve)


def test_a_sequence_of_a_decoupled_model_stays_on_its_instance():
    async def serve():
        executions = SimulatedExecution(), SimulatedExecution()
        scheduler = sequences(*executions)
        await ended(*(Reader(scheduler, f"{n}", sequence=start(n)) for n in (1, 2)))
        await ended(*(Reader(scheduler, "22", sequence=Sequence(2)) for _ in range(2)))
        assert [one.batches() for one in executions] == [["1"], ["2", "22", "22"]]

    simulate(serve)


def test_a_sequence_goes_on_when_the_reader_of_a_request_leaves():
    async def serve():
        scheduler = sequences(SimulatedExecution())
        leaves = Reader(scheduler, "abc", most=1, sequence=start())
        after = Reader(scheduler, "d", sequence=Sequence(1, end=True))
        assert await ended(leaves, after) == [("a", 10), ("d", 20)]
        assert not scheduler._live
        late = Reader(scheduler, "e", sequence=Sequence(1))
        await ended(late)
        assert isinstance(late.error, InvalidRequest)

    simulate(serve)


def test_the_last_answer_has_the_state_that_is_kept():
    async def serve():
        execution, seen = SimulatedExecution(), []

        def answer(letter, request):
            state = {one.name: one.numpy().ravel()[0] for one in request.inputs}["STATE"]
            seen.append(state)
            if letter == "-":
                return InferResponse("m", "1", letter)
            data = bytes([state + int(letter)])
            outputs = [Tensor("STATE_OUT", DataType.INT8, (1, 1), data)]
            return InferResponse("m", "1", letter, outputs)

        execution.outcome = answer
        scheduler = sequences(execution, state=(STATE,))
        await ended(Reader(scheduler, "12-", sequence=start()))
        await ended(Reader(scheduler, "3", sequence=Sequence(1)))
        await ended(Reader(scheduler, "4", sequence=start()))
        assert seen == [0, 0, 0, 2, 0]

    simulate(serve)


def test_a_decoupled_model_without_the_state_it_promised_fails_the_request():
    async def serve():
        execution = SimulatedExecution()
        wrong = Tensor("OTHER", DataType.INT8, (1, 1), b"0")
        execution.outcome = lambda letter, _request: InferResponse("m", "1", letter, [wrong])
        scheduler = sequences(execution, state=(STATE,))
        reader = Reader(scheduler, "ab", sequence=start())
        await ended(reader)
        assert isinstance(reader.error, BackendFailed)
        assert execution.running == 0

    simulate(serve)


def test_closing_ends_the_sequences_of_a_decoupled_model():
    async def serve():
        scheduler = sequences(SimulatedExecution())
        readers = [
            Reader(scheduler, "ab", sequence=start()),
            Reader(scheduler, "c", sequence=Sequence(1)),
        ]
        await passes(1)
        await scheduler.close(1)
        assert await ended(*readers) == [("ab", 20), ("c", 30)]
        assert now_ms() == 30

    simulate(serve)
