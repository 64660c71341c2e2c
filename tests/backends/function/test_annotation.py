from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any, Literal, Optional, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

from inferd.backends.function.annotation import Spec, port_of
from inferd.errors import InvalidConfig


def read(annotation, **more):
    port = port_of("x", annotation, "here", **more)
    return port.datatype.value, port.shape, port.form


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, ("BYTES", (), "scalar")),
        (bytes, ("BYTES", (), "scalar")),
        (int, ("INT64", (), "scalar")),
        (float, ("FP64", (), "scalar")),
        (bool, ("BOOL", (), "scalar")),
        (str | None, ("BYTES", (), "scalar")),
        (Optional[int], ("INT64", (), "scalar")),  # noqa: UP045  as many still write it
        (Annotated[np.ndarray, Spec("FP32", [4])] | None, ("FP32", (4,), "array")),
        (list[str], ("BYTES", (-1,), "list")),
        (Sequence[float], ("FP64", (-1,), "list")),
        (Iterable[int], ("INT64", (-1,), "list")),
        (Collection[bytes], ("BYTES", (-1,), "list")),
        (list[list[float]], ("FP64", (-1, -1), "list")),
        (Annotated[list[Sequence[str]], Spec(shape=[-1, 2])], ("BYTES", (-1, 2), "list")),
        (np.float32, ("FP32", (), "scalar")),
        (np.bool_ | None, ("BOOL", (), "scalar")),
        (np.str_, ("BYTES", (), "scalar")),
        (list[np.int32], ("INT32", (-1,), "list")),
        (NDArray[np.float32], ("FP32", (-1,), "array")),
        (NDArray[np.float16], ("FP16", (-1,), "array")),
        (NDArray[np.bool_], ("BOOL", (-1,), "array")),
        (NDArray[np.object_], ("BYTES", (-1,), "array")),
        (NDArray[np.bytes_], ("BYTES", (-1,), "array")),
        (np.ndarray[tuple[int, int], np.dtype[np.int8]], ("INT8", (-1, -1), "array")),
        (np.ndarray[tuple[int, Literal[4]], np.dtype[np.int8]], ("INT8", (-1, 4), "array")),
        (Annotated[np.ndarray, Spec("FP32", [-1, 4])], ("FP32", (-1, 4), "array")),
        (Annotated[np.ndarray, "a note", Spec("FP32")], ("FP32", (-1,), "array")),
        (Annotated[Any, Spec("UINT8", (2,))], ("UINT8", (2,), "array")),
        (Annotated[NDArray[np.uint8], Spec(shape=[3, 3])], ("UINT8", (3, 3), "array")),
        (Annotated[NDArray[np.uint16], Spec("BF16")], ("BF16", (-1,), "array")),
        (Annotated[np.ndarray, Spec("FP32", [])], ("FP32", (), "array")),
        (Annotated[int, Spec("INT32")], ("INT32", (), "scalar")),
        (Annotated[list[str], Spec("STRING", [3])], ("BYTES", (3,), "list")),
    ],
)
def test_an_annotation_tells_datatype_and_shape(annotation, expected):
    assert read(annotation) == expected


@pytest.mark.parametrize("annotation", [int, list[int]])
def test_int_is_of_64_bits_even_where_numpy_takes_32(annotation, monkeypatch):
    class NarrowNumpy:
        """NumPy, as it is on machines of 32 bits, and before 2.0 on Windows."""

        def __getattr__(self, name):
            return getattr(np, name)

        def dtype(self, kind):
            return np.dtype(np.int32 if kind is int else kind)

    monkeypatch.setattr("inferd.backends.function.annotation.np", NarrowNumpy())
    assert read(annotation)[0] == "INT64"


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (NDArray[np.float32], ("FP32", (-1, -1), "array")),
        (Annotated[np.ndarray, Spec("FP32", [-1])], ("FP32", (-1,), "array")),
        (list[str], ("BYTES", (-1,), "list")),
        (list[list[float]], ("FP64", (-1, -1), "list")),
    ],
)
def test_of_a_batched_model_the_first_dim_is_the_batch(annotation, expected):
    assert read(annotation, batched=True) == expected


def test_an_alias_is_what_it_stands_for():
    element = TypeVar("element", bound=np.generic)
    array = TypeAliasType(
        "array", np.ndarray[tuple[Any, ...], np.dtype[element]], type_params=(element,)
    )
    named = TypeAliasType("named", Annotated[array[np.int8], Spec(shape=[3])])
    assert read(array[np.int8]) == ("INT8", (-1,), "array")
    assert read(named) == ("INT8", (3,), "array")
    assert read(named | None) == ("INT8", (3,), "array")
    assert read(TypeAliasType("text", str)) == ("BYTES", (), "scalar")


def test_a_spec_may_give_another_name():
    assert port_of("x", Annotated[str, Spec(name="prompt")], "here").name == "prompt"


@pytest.mark.parametrize(
    ("annotation", "complaint"),
    [
        (dict, "here is of type dict; write Annotated"),
        (list, "here is of type list; write Annotated"),
        (int | str, "here is of type int | str; write Annotated"),
        (Any, "here has no type; write Annotated"),
        (np.ndarray, "here is an array without a datatype; write numpy.typing"),
        (NDArray[Any], "here is an array without a datatype; write numpy.typing"),
        (NDArray[np.floating], "here: np.floating is no single dtype; name one"),
        (NDArray[np.str_], "here: an array of text is list"),
        (np.floating, "here is of type floating; write Annotated"),
        (np.complex64, "here: numpy dtype complex64 has no counterpart"),
        (list[np.ndarray], "here is of type list.numpy.ndarray"),
        (Annotated[np.float32, Spec("INT32")], "here: float32 cannot be INT32"),
        (Annotated[list[list[int]], Spec(shape=[2])], r"its Spec says \[2\], expected 2 dims"),
        (NDArray[np.complex64], "here: numpy dtype complex64 has no counterpart"),
        (Annotated[np.ndarray, Spec], 'here: write inferd.Spec."FP32"'),
        (Annotated[np.ndarray, Spec("FP32"), Spec("FP32")], "here has 2 Specs, expected one"),
        (Annotated[np.ndarray, Spec("float32")], r"here: Spec\('float32'\): expected one of BOOL"),
        (Annotated[np.ndarray, Spec(np.float32)], "expected one of BOOL"),
        (Annotated[np.ndarray, Spec("FP32", [0])], "its shape has 0, expected 1 or more"),
        (Annotated[np.ndarray, Spec("FP32", "ab")], "its shape is 'ab', expected a list"),
        (Annotated[np.ndarray, Spec("FP32", [True])], "expected a list of numbers"),
        (Annotated[NDArray[np.int8], Spec("FP32")], "an array of INT8, its Spec says FP32"),
        (Annotated[int, Spec("FP32")], "here: int cannot be FP32"),
        (Annotated[int, Spec("BF16")], "here: int cannot be BF16"),
        (Annotated[int, Spec(shape=[1])], "here is one int, and its Spec gives a shape"),
        (Annotated[list[int], Spec(shape=[1, 2])], r"its Spec says \[1, 2\], expected one dim"),
    ],
)
def test_what_cannot_be_is_told_with_what_can(annotation, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        port_of("x", annotation, "here")


@pytest.mark.parametrize(
    ("annotation", "complaint"),
    [
        (str, r"here is one str; a batched model has a list\[str\] there"),
        (Annotated[np.ndarray, Spec("FP32", [4])], "the first dim is the batch, -1"),
        (Annotated[np.ndarray, Spec("FP32", [])], "the first dim is the batch, -1"),
        (Annotated[list[str], Spec(shape=[4])], r"expected \[-1\], the batch"),
        (Annotated[list[list[str]], Spec(shape=[4, 1])], "expected 2 dims, the first -1, the b"),
    ],
)
def test_what_cannot_be_batched_is_told(annotation, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        port_of("x", annotation, "here", batched=True)
