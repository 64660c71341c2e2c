import functools
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
from numpy.typing import NDArray

import inferd
from inferd.backends.function.model import DEFAULT_MAX_BATCH_SIZE, Model, given_model
from inferd.config.model import DynamicBatching, ModelInput, ModelOutput
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType


def double(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Twice."""
    return 2 * x


class Adder:
    def __init__(self, more: int = 1) -> None:
        self.more = more

    def __call__(self, x: int) -> int:
        return x + self.more

    def twice(self, x: int) -> int:
        return 2 * x


class NeedsMore(Adder):
    def __init__(self, more: int) -> None: ...


def test_a_model_has_the_functions_name_and_configuration():
    given = Model(double).given
    assert given.name == "double"
    assert given.folder == Path(__file__).parent
    assert given.config.backend == "function"
    assert given.config.input == (ModelInput("x", DataType.FP32, (-1,)),)
    assert given.config.output == (ModelOutput("output", DataType.FP32, (-1,)),)
    assert given.config.max_batch_size == 0
    assert given.config.dynamic_batching is None


def test_a_model_is_the_function_to_who_calls_it():
    model = inferd.model(double)
    assert model(np.float32(2)) == 4
    assert model.__doc__ == "Twice."
    assert repr(model) == "<inferd.Model 'double'>"


def test_the_decorator_takes_options():
    @inferd.model(name="other", batched=True)
    def f(x: list[str]) -> list[str]: ...

    assert f.name == "other"
    assert f.given.config.max_batch_size == DEFAULT_MAX_BATCH_SIZE
    assert f.given.config.dynamic_batching == DynamicBatching()


@pytest.mark.parametrize(
    ("target", "name"),
    [(Adder, "Adder"), (Adder(), "Adder"), (Adder().twice, "twice")],
)
def test_objects_classes_and_methods_are_models(target, name):
    model = Model(target)
    assert model.name == name
    assert [one.name for one in model.given.config.input] == ["x"]


def test_a_partial_function_is_a_model():
    def f(x: int, y: int) -> int:
        return x + y

    model = Model(functools.partial(f, y=2))
    assert (model.name, model(1)) == ("f", 3)


def test_the_configuration_is_said_by_keywords():
    config = Model(
        double,
        "m",
        instances=3,
        parameters={"a": "b"},
        response_cache={"enable": True},
        version_policy={"all": {}},
    ).given.config
    assert config.instance_group[0].count == 3
    assert config.parameters == {"a": "b"}
    assert config.response_cache
    assert config.version_policy.all


def test_what_a_batched_model_says_of_its_batches_is_kept():
    @inferd.model(batched=True, max_batch_size=8, dynamic_batching={"preferred_batch_size": [4]})
    def f(x: list[str]) -> list[str]: ...

    assert f.given.config.max_batch_size == 8
    assert f.given.config.dynamic_batching.preferred_batch_size == (4,)


def test_what_a_sequence_gives_the_function_no_client_sees():
    control = {"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}

    @inferd.model(sequence_batching={"control_input": [{"name": "START", "control": [control]}]})
    def f(x: int, START: Annotated[np.ndarray, inferd.Spec("INT32", [1])]) -> int: ...  # noqa: N803

    assert [one.name for one in f.given.config.input] == ["x"]


def test_the_keys_of_a_map_may_be_numbers():
    batching = {
        "priority_levels": 2,
        "default_priority_level": 2,
        "priority_queue_policy": {1: {"max_queue_size": 3}},
    }
    config = Model(double, batched=True, dynamic_batching=batching).given.config
    assert config.dynamic_batching.priority_queue_policy[1].max_queue_size == 3


def test_what_is_given_to_a_server_may_be_a_function_or_a_model():
    model = Model(double)
    assert given_model(model) is model.given
    assert given_model(double).name == "double"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"max_batch_size": 4}, "max_batch_size is 4, expected 0: it is not batched"),
        ({"max_bach_size": 4}, r"function 'double' \(test_model.py, line \d+\): .*max_bach_size"),
        ({"max_batch_size": "x"}, "max_batch_size"),
        ({"backend": "onnxruntime"}, "backend cannot be said of a function"),
        ({"input": []}, "input cannot be said of a function; that is said by inputs=, or annot"),
        ({"parameters": {"a": object()}}, "its options are numbers, texts, lists and dictionaries"),
    ],
)
def test_options_that_cannot_be_are_told(options, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        Model(double, **options)


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        (lambda x: x, r"function '<lambda>' \(test_model.py, line \d+\) has no name of its own"),
        (Model(double), "'double' is a model already"),
        (7, "a model is made of what can be called, not of type int; pass a method of it"),
        (object(), "not of type object"),
        (int, "class int has no method __call__, which a model is made of"),
        (NeedsMore, "class NeedsMore: missing a required argument: 'more'; a model makes its"),
        (print, "function 'print' takes"),
    ],
)
def test_what_cannot_be_a_model_is_told(target, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        Model(target)
