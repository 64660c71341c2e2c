import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

import numpy as np
import pytest

from inferd.backends.function.instance import (
    AHEAD,
    AsyncFunctionInstance,
    AsyncStreamInstance,
    FunctionCall,
)
from inferd.backends.function.signature import read_signature
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor


@pytest.fixture
def opened():
    """opened(function) is an instance of it, closed at the end."""
    made = []

    def build(function):
        signature = read_signature(function, "f")
        kind = AsyncStreamInstance if signature.streams else AsyncFunctionInstance
        made.append(kind(FunctionCall(function, signature, "m", 1)))
        return made[-1]

    yield build
    for instance in made:
        instance.close()
    assert not [t for t in threading.enumerate() if t.name == "inferd-m"]


def asked(value):
    return InferRequest("m", inputs=[Tensor("x", DataType.INT64, (1,), np.array([value]))])


def seen(answer):
    return answer.outputs[0].numpy().tolist()


def test_requests_run_at_once_on_one_event_loop(opened):
    meeting = asyncio.Barrier(2)

    async def f(x: int) -> int:
        await meeting.wait()
        return threading.get_ident()

    [one, other] = opened(f).execute([asked(1), asked(2)])
    assert seen(one) == seen(other) != [threading.get_ident()]


def test_what_it_raises_comes_out(opened):
    async def f(x: int) -> int:
        raise ValueError(x)

    with pytest.raises(ValueError, match="7"):
        opened(f).execute([asked(7)])


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_model_that_wants_to_end_the_program_ends_its_request(opened, error, caplog):
    async def fails(x: int) -> int:
        if x:
            raise error
        return 0

    async def fails_elsewhere(x: int) -> int:
        async def elsewhere():
            raise error

        if x:
            task = asyncio.create_task(elsewhere())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            with suppress(SystemExit, KeyboardInterrupt):
                task.result()
        return x

    instance = opened(fails)
    with pytest.raises(BackendFailed, match=f"model 'm' failed: {type(error).__name__}"):
        instance.execute([asked(1)])
    assert seen(instance.execute([asked(0)])[0]) == [0]
    assert seen(opened(fails_elsewhere).execute([asked(7)])[0]) == [7]
    assert [record.getMessage() for record in caplog.records] == ["model 'm'"]


def test_a_model_that_raises_what_ends_coroutines_ends_its_request(opened):
    async def f(x: int) -> int:
        raise GeneratorExit

    with pytest.raises(BackendFailed, match="model 'm' failed: GeneratorExit"):
        opened(f).execute([asked(1)])


def test_closing_cancels_what_runs(opened):
    begun, ended = threading.Event(), []

    async def f(x: int) -> int:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(x)

    instance = opened(f)
    future = instance.submit(asked(7))
    assert begun.wait(30)
    instance.close()
    assert ended == [7]
    assert future.cancelled()


async def count(x: int) -> AsyncIterator[int]:
    for number in range(x):
        yield number


async def fails(x: int) -> AsyncIterator[int]:
    yield x
    raise ValueError(x)


def test_a_generator_answers_any_number_of_times(opened):
    instance = opened(count)
    assert [seen(answer) for answer in instance.stream(asked(5))] == [[n] for n in range(5)]
    assert list(instance.stream(asked(0))) == []


def test_a_generator_fails_after_its_answers(opened):
    answers = opened(fails).stream(asked(7))
    assert seen(next(answers)) == [7]
    with pytest.raises(ValueError, match="7"):
        next(answers)


def test_a_generator_is_only_so_far_ahead_and_ends_when_nobody_reads(opened):
    given, ended = [], threading.Event()

    async def endless(x: int) -> AsyncIterator[int]:
        try:
            while True:
                given.append(x)
                yield x
        finally:
            ended.set()

    answers = opened(endless).stream(asked(7))
    next(answers)
    answers.close()
    assert ended.wait(30)
    assert len(given) <= AHEAD + 2


def test_outside_a_stream_a_generator_gives_one_answer(opened):
    instance = opened(count)
    [answer] = instance.execute([asked(1)])
    assert answer.final
    with pytest.raises(BackendFailed, match="gave 2 answers, expected one"):
        instance.execute([asked(2)])
