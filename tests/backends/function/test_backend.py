from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import inferd
from inferd.backends.function.instance import (
    AsyncFunctionInstance,
    AsyncStreamInstance,
    FunctionInstance,
    StreamInstance,
)
from inferd.config.model import ModelInput
from inferd.core.interfaces import DecoupledInstance, ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FILES = ModelFiles(Path("m"), 1, Path("m"), Path("m"))
PLACE = Placement("m_0")


def opened(model):
    given = model.given
    return given.backend.open(FILES, given.config, PLACE)


def asked(value):
    return InferRequest("m", inputs=[Tensor("x", DataType.INT64, (1,), np.array([value]))])


def test_a_function_is_never_run_on_the_servers_event_loop():
    @inferd.model
    def f(x: int) -> int: ...

    assert not f.given.backend.traits.is_bounded
    assert not f.given.backend.traits.is_concurrent


def test_the_batches_of_a_batched_function_are_joined():
    def f(x: list[int]) -> list[int]: ...

    assert inferd.Model(f, batched=True).given.backend.traits.joins
    assert not inferd.Model(f).given.backend.traits.joins


def test_each_kind_of_function_has_its_instance():
    def once(x: int) -> int: ...

    def often(x: int):
        yield x

    async def once_async(x: int) -> int: ...

    async def often_async(x: int):
        yield x

    kinds = (FunctionInstance, StreamInstance, AsyncFunctionInstance, AsyncStreamInstance)
    for function, kind in zip((once, often, once_async, often_async), kinds, strict=True):
        model = inferd.Model(function, outputs={"y": inferd.Spec("INT64", [])})
        instance = opened(model)
        assert type(instance) is kind
        assert isinstance(instance, DecoupledInstance) == model.given.config.decoupled
        instance.close()


def test_each_instance_of_a_class_has_an_object_of_its_own_and_closes_it():
    closed = []

    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def __call__(self, x: int) -> int:
            self.count += x
            return self.count

        def close(self) -> None:
            closed.append(self.count)

    model = inferd.Model(Counter)
    one, other = opened(model), opened(model)
    for instance, value in ((one, 2), (one, 3), (other, 10)):
        [answer] = instance.execute([asked(value)])
    assert answer.outputs[0].numpy().tolist() == [10]
    one.close()
    other.close()
    assert closed == [5, 10]


def test_a_configuration_with_other_tensors_is_refused():
    @inferd.model
    def f(x: int) -> int: ...

    backend, config = f.given.backend, f.given.config
    assert backend.complete(FILES, replace(config, input=(), output=())) == config
    other = (ModelInput("x", DataType.FP32, (1,)),)
    with pytest.raises(InvalidConfig, match="its function has other inputs or outputs: x INT64"):
        backend.complete(FILES, replace(config, input=other))


@pytest.mark.parametrize(
    ("batched", "size", "expected"), [(True, 0, "1 or more, because"), (False, 4, "0: it is not")]
)
def test_a_configuration_batches_as_the_function_does(batched, size, expected):
    def f(x: list[int]) -> list[int]: ...

    given = inferd.Model(f, batched=batched).given
    with pytest.raises(InvalidConfig, match=f"max_batch_size is {size}, expected {expected}"):
        given.backend.complete(FILES, replace(given.config, max_batch_size=size))
