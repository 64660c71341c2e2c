import functools
from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypedDict

import numpy as np
import pytest
from numpy.typing import NDArray

from inferd.backends.function.annotation import Spec
from inferd.backends.function.signature import read_signature
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InvalidConfig
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor


class Pair(TypedDict):
    left: int
    right: str


class Named(NamedTuple):
    left: int
    right: str


@dataclass
class Held:
    left: int
    right: str


def read(function, **more):
    return read_signature(function, "f", **more)


def shown(ports):
    return [(port.name, port.datatype.value, port.shape) for port in ports]


def test_parameters_are_inputs_and_what_is_returned_is_the_output():
    def f(x: NDArray[np.float32], text: str, scale: float = 1.0) -> int: ...

    signature = read(f)
    assert shown(signature.inputs.values()) == [
        ("x", "FP32", (-1,)),
        ("text", "BYTES", ()),
        ("scale", "FP64", ()),
    ]
    assert [port.optional for port in signature.inputs.values()] == [False, False, True]
    assert shown(signature.outputs.values()) == [("output", "INT64", ())]
    assert not signature.streams
    assert not signature.is_async


@pytest.mark.parametrize("returned", [Pair, Named, Held])
def test_outputs_have_the_names_of_fields(returned):
    def f() -> returned: ...

    assert shown(read(f).outputs.values()) == [("left", "INT64", ()), ("right", "BYTES", ())]


def test_outputs_of_a_tuple_are_numbered():
    def f() -> tuple[int, Annotated[str, Spec(name="why")]]: ...

    assert [port.name for port in read(f).outputs.values()] == ["output_0", "why"]


@pytest.mark.parametrize(
    "returned", [Iterator[int], Generator[int, None, None], AsyncIterator[int]]
)
def test_who_returns_an_iterator_answers_any_number_of_times(returned):
    def f() -> returned: ...

    signature = read(f)
    assert signature.streams
    assert signature.is_async == (returned == AsyncIterator[int])
    assert shown(signature.outputs.values()) == [("output", "INT64", ())]


def test_a_generator_may_say_loosely_that_it_can_be_iterated_over():
    def words() -> Iterable[str]:
        yield "a"

    async def numbers() -> AsyncIterable[int]:
        yield 1

    def listed() -> Iterable[str]:
        return ["a"]

    assert read(words).streams
    assert shown(read(words).outputs.values()) == [("output", "BYTES", ())]
    found = read(numbers)
    assert (found.streams, found.is_async) == (True, True)
    assert not read(listed).streams
    assert shown(read(listed).outputs.values()) == [("output", "BYTES", (-1,))]


def test_asynchronous_functions_and_generators_are_known():
    async def once() -> int: ...

    async def often() -> AsyncIterator[int]:
        yield 1

    def generator() -> Iterator[int]:
        yield 1

    kinds = [(read(f).is_async, read(f).streams) for f in (once, often, generator)]
    assert kinds == [(True, False), (True, True), (False, True)]


def test_what_is_bound_is_no_input():
    def f(x: int, y: int) -> int: ...

    assert list(read(functools.partial(f, y=1)).inputs) == ["x"]
    assert list(read(functools.partial(f, 1)).inputs) == ["y"]


def test_specs_stand_in_for_annotations():
    def f(x, y=0): ...

    signature = read(f, inputs={"x": Spec("INT8", [2])}, outputs={"a": Spec("FP32", [])})
    assert shown(signature.inputs.values()) == [("x", "INT8", (2,))]
    assert shown(signature.outputs.values()) == [("a", "FP32", ())]
    assert not signature.is_positional


def test_names_that_are_no_parameters_are_passed_in_order():
    signature = read(
        max, inputs={"a": Spec("INT8"), "b": Spec("INT8")}, outputs={"c": Spec("INT8")}
    )
    assert signature.is_positional


def test_parameters_that_have_no_name_for_callers_are_passed_in_order():
    def f(a, b=1, /, *, c=2): ...

    def several(a, *more): ...

    def free(a, **more): ...

    specs = dict.fromkeys("abc", Spec("INT8"))
    one = {"y": Spec("INT8")}
    signature = read(f, inputs={"b": specs["b"], "a": specs["a"]}, outputs=one)
    assert (signature.is_positional, list(signature.inputs)) == (True, ["a", "b"])
    assert read(np.add, inputs={"x1": Spec("INT8"), "x2": Spec("INT8")}, outputs=one).is_positional
    assert read(several, inputs={"a": specs["a"], "more": specs["a"]}, outputs=one).is_positional
    for free_or_several in (free, several):
        assert not read(free_or_several, inputs={"a": specs["a"]}, outputs=one).is_positional
    with pytest.raises(InvalidConfig, match="parameter 'c' cannot be given by its position"):
        read(f, inputs=specs, outputs=one)

    def gap(a, b=1, c=2, /): ...

    with pytest.raises(InvalidConfig, match="parameter 'c' cannot be given by its position"):
        read(gap, inputs={"a": specs["a"], "c": specs["c"]}, outputs=one)


def test_inputs_become_arguments_and_what_was_left_out_is_left_out():
    def f(x: int, scale: float = 1.0) -> int: ...

    request = InferRequest("m", inputs=[Tensor("x", DataType.INT64, (1,), np.array([3]))])
    assert read(f).arguments(request) == ([], {"x": 3})
    both = {"a": Spec("INT64"), "b": Spec("INT64")}
    arrays = [Tensor(name, DataType.INT64, (1,), np.array([3])) for name in "ba"]
    arguments, named = read(max, inputs=both, outputs=both).arguments(
        InferRequest("m", inputs=arrays)
    )
    assert (len(arguments), named) == (2, {})


class Renamed(TypedDict):
    ours: Annotated[int, Spec(name="theirs")]


def test_a_function_names_its_outputs_by_its_own_names():
    def f() -> Renamed: ...

    [tensor] = read(f).tensors({"ours": 7}, "m")
    assert tensor.name == "theirs"


@pytest.mark.parametrize(
    "value",
    [{"left": 1, "right": "a"}, {"right": "a", "left": 1}, (1, "a"), Named(1, "a"), Held(1, "a")],
)
def test_outputs_come_by_name_or_in_order(value):
    def f() -> Pair: ...

    tensors = read(f).tensors(value, "m")
    assert [(t.name, t.numpy().tolist()) for t in tensors] == [("left", [1]), ("right", [b"a"])]


def test_a_tuple_of_one_is_not_the_output_itself():
    def f() -> tuple[int]: ...

    def g() -> list[int]: ...

    assert read(f).tensors((7,), "m")[0].numpy().tolist() == [7]
    assert read(g).tensors((7, 8), "m")[0].numpy().tolist() == [7, 8]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (None, "model 'm' gave None, expected 2 outputs: left, right"),
        ((1, "a", 2), "model 'm' gave 3 of type tuple, expected 2 outputs: left, right"),
        ([1, "a"], "model 'm' gave 1 of type list, expected 2 outputs: left, right"),
        ({"left": 1}, "of its outputs these are missing: 'right'; unknown: none"),
        (
            {"left": 1, "right": "", "up": 3},
            "of its outputs these are missing: none; unknown: 'up'",
        ),
    ],
)
def test_other_outputs_are_told_by_name(value, complaint):
    def f() -> Pair: ...

    with pytest.raises(BackendFailed, match=complaint):
        read(f).tensors(value, "m")


def untyped(x): ...


def without_result(x: int): ...


def returns_none(x: int) -> None: ...


def returns_dict(x: int) -> dict: ...


def returns_any_tuple(x: int) -> tuple[int, ...]: ...


def returns_nothing_in_a_tuple(x: int) -> tuple[()]: ...


def many(*x: int) -> int: ...


def many_named(**x: int) -> int: ...


def in_order(x: int, /) -> int: ...


def of_unknown_type(x: "Nowhere") -> int: ...  # noqa: F821


def twice(x: int, y: Annotated[int, Spec(name="x")]) -> int: ...


def lone_generator(x: int):
    yield x


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (untyped, "f: parameter 'x' has no type; write Annotated"),
        (without_result, "f does not say what it returns; write -> and Annotated"),
        (returns_none, "f does not say what it returns; write -> and Annotated"),
        (lone_generator, "f does not say what it returns"),
        (returns_dict, "f: what it returns is a dict; name its outputs with a TypedDict"),
        (returns_any_tuple, "a tuple of any length; name each output's type"),
        (returns_nothing_in_a_tuple, "f has no outputs"),
        (many, r"f takes \*x, and a model has a fixed number of inputs; name them"),
        (many_named, r"f takes \*x"),
        (in_order, "f: parameter 'x' cannot be given by its name"),
        (of_unknown_type, "f has annotations that cannot be read: NameError: name 'Nowhere'"),
        (twice, "f has two inputs of one name"),
    ],
)
def test_what_cannot_be_a_model_is_told_with_how_to_write_it(function, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        read(function)


def test_what_must_be_given_cannot_be_left_out():
    def f(x, y): ...

    with pytest.raises(InvalidConfig, match="f: inputs= leaves out y"):
        read(f, inputs={"x": Spec("INT8")}, outputs={"z": Spec("INT8")})


def test_a_generator_cannot_be_batched():
    def f(x: list[int]) -> Iterator[list[int]]:
        yield x

    with pytest.raises(InvalidConfig, match="any number of answers, so it cannot be batched"):
        read(f, batched=True)
