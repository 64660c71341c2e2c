import ml_dtypes
import numpy as np
import pytest

from inferd.backends.function.port import FunctionPort
from inferd.errors import BackendFailed, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

ROWS = FunctionPort("x", DataType.FP32, (-1, 2))
TEXT = FunctionPort("x", DataType.BYTES, (), "scalar", str)
TEXTS = FunctionPort("x", DataType.BYTES, (-1,), "list", str)
NUMBER = FunctionPort("x", DataType.INT64, (), "scalar", int)
NUMBERS = FunctionPort("x", DataType.UINT8, (-1,), "list", int)
LABELS = FunctionPort("x", DataType.INT64, (-1,), is_batched=True)


def tensor(array, datatype):
    return Tensor.from_numpy("x", array, datatype)


def given(port, value):
    """Return what the tensor made of `value` holds."""
    made = port.tensor(value, "m")
    assert (made.name, made.datatype) == ("x", port.datatype)
    return made.numpy().tolist()


@pytest.mark.parametrize(
    ("port", "dims"),
    [(ROWS, (-1, 2)), (TEXT, (1,)), (TEXTS, (-1,)), (LABELS, (1,))],
)
def test_a_tensor_has_at_least_one_dim_beside_the_batch(port, dims):
    assert port.dims == dims


def test_an_array_is_a_read_only_view():
    source = np.ones((3, 2), np.float32)
    value = ROWS.value(tensor(source, DataType.FP32))
    assert np.shares_memory(value, source)
    assert source.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        value += 1


def test_an_array_of_one_dim_for_each_item_loses_the_dim_that_the_protocol_needs():
    value = LABELS.value(tensor(np.array([[1], [2]]), DataType.INT64))
    assert value.shape == (2,)
    assert given(LABELS, np.array([1, 2])) == [[1], [2]]


def test_one_number_for_each_item_of_a_batch_is_a_row_of_one():
    rows = FunctionPort("x", DataType.FP32, (-1, -1), is_batched=True)
    assert given(rows, np.array([1, 2], np.float32)) == [[1], [2]]


def test_lists_in_lists_come_and_go():
    numbers = FunctionPort("x", DataType.FP64, (-1, -1), "list", float)
    rows = numbers.value(tensor(np.array([[1.0, 2.0], [3.0, 4.0]]), DataType.FP64))
    assert rows == [[1.0, 2.0], [3.0, 4.0]]
    assert type(rows[0][0]) is float
    assert given(numbers, rows) == rows
    words = FunctionPort("x", DataType.BYTES, (-1, -1), "list", str)
    assert words.value(tensor(np.array([[b"a"], [b"b"]], object), DataType.BYTES)) == [["a"], ["b"]]
    with pytest.raises(BackendFailed, match="output 'x' cannot be FP64"):
        numbers.tensor([[1.0], [2.0, 3.0]], "m")


@pytest.mark.parametrize("kind", [float, str])
@pytest.mark.parametrize(
    ("shape", "value", "expected"),
    [
        ((-1, -1), [], (0, 0)),
        ((-1, -1), (), (0, 0)),
        ((-1, -1), [[], []], (2, 0)),
        ((-1, 3), [], (0, 3)),
        ((-1, -1, -1), [[], []], (2, 0, 0)),
        ((-1, -1, 2), [[[]]], None),
        ((2, -1), [], None),
    ],
)
def test_of_lists_that_are_not_there_the_length_is_as_declared(kind, shape, value, expected):
    port = FunctionPort(
        "x", DataType.FP64 if kind is float else DataType.BYTES, shape, "list", kind
    )
    if expected is None:
        with pytest.raises(BackendFailed, match="output 'x' has shape"):
            port.tensor(value, "m")
    else:
        assert port.tensor(value, "m").shape == expected


def test_lists_without_elements_come_and_go():
    numbers = FunctionPort("x", DataType.FP64, (-1, -1), "list", float)
    for shape in ((0, 2), (2, 0), (0, 0)):
        rows = numbers.value(tensor(np.zeros(shape), DataType.FP64))
        assert rows == [[]] * shape[0]
        assert given(numbers, rows) == rows


def test_numbers_of_numpy_stay_what_they_are():
    one = FunctionPort("x", DataType.FP32, (), "scalar", np.float32)
    value = one.value(tensor(np.array([2.5], np.float32), DataType.FP32))
    assert type(value) is np.float32
    assert given(one, value) == [2.5]


def test_text_is_decoded_and_bytes_are_not():
    one = tensor(np.array([b"\xc3\xa4"], object), DataType.BYTES)
    raw = FunctionPort("x", DataType.BYTES, (), "scalar", bytes)
    assert (TEXT.value(one), raw.value(one), TEXTS.value(one)) == ("ä", b"\xc3\xa4", ["ä"])
    assert FunctionPort("x", DataType.BYTES, (-1,)).value(one).tolist() == [b"\xc3\xa4"]


def test_text_that_is_none_is_the_clients_fault():
    one = tensor(np.array([b"\xff"], object), DataType.BYTES)
    with pytest.raises(InvalidRequest, match="input 'x' is text, and holds bytes that are not UTF"):
        TEXT.value(one)


def test_numbers_are_pythons_own():
    value = NUMBERS.value(tensor(np.array([1, 2], np.uint8), DataType.UINT8))
    assert value == [1, 2]
    assert type(value[0]) is int
    assert type(NUMBER.value(tensor(np.array([7]), DataType.INT64))) is int


@pytest.mark.parametrize(
    ("port", "value", "expected"),
    [
        (ROWS, [[1, 2]], [[1, 2]]),
        (ROWS, np.zeros((0, 2), np.float32), []),
        (ROWS, [], []),
        (ROWS, np.ones((1, 2), ">f4"), [[1, 1]]),
        (ROWS, np.ones((2, 1), np.float32).T, [[1, 1]]),
        (TEXT, "ä", ["ä".encode()]),
        (TEXT, b"\xff", [b"\xff"]),
        (TEXTS, ["a", b"b"], [b"a", b"b"]),
        (TEXTS, np.array(["a", "b"]), [b"a", b"b"]),
        (TEXTS, [], []),
        (NUMBER, 7, [7]),
        (NUMBER, np.int32(7), [7]),
        (NUMBER, np.array([7]), [7]),
        (NUMBER, np.array(7), [7]),
        (TEXT, np.array(["a"]), [b"a"]),
        (NUMBERS, (1, 255), [1, 255]),
        (NUMBERS, [], []),
    ],
)
def test_what_a_function_gives_becomes_a_tensor(port, value, expected):
    assert given(port, value) == expected


def test_bfloat16_is_taken_by_its_name_or_its_bits():
    port = FunctionPort("x", DataType.BF16, (-1,))
    assert given(port, np.array([1], ml_dtypes.bfloat16)) == [0x3F80]
    assert given(port, np.array([0x3F80], np.uint16)) == [0x3F80]
    assert given(port, np.array([0x3F80], ">u2")) == [0x3F80]


@pytest.mark.parametrize(
    ("port", "value", "complaint"),
    [
        (ROWS, None, "is None"),
        (
            ROWS,
            np.ones((1, 2)),
            r"is an array of float64, expected FP32; convert it: .astype\('float32'",
        ),
        (ROWS, np.array([["a", "b"]]), "is an array of <U1, expected FP32"),
        (ROWS, np.ones(0, np.float32), r"has shape \[0\], expected \[-1, 2\]"),
        (ROWS, np.ones(2, np.float32), r"has shape \[2\], expected \[-1, 2\]"),
        (ROWS, np.ones((1, 3), np.float32), r"has shape \[1, 3\], expected \[-1, 2\]"),
        (ROWS, [[1], [2, 3]], "cannot be FP32: ValueError"),
        (ROWS, object(), "holds object, expected FP32"),
        (NUMBER, 1.5, "holds float64, expected INT64"),
        (NUMBER, [1, 2], r"has shape \[2\], expected \[1\]"),
        (NUMBER, np.ones((1, 1), int), r"has shape \[1, 1\], expected \[1\]"),
        (NUMBER, [], r"has shape \[0\], expected \[1\]"),
        (LABELS, np.array(7), r"has shape \[\], expected \[-1\]"),
        (NUMBERS, [300], "cannot be UINT8: OverflowError"),
        (TEXTS, "abc", "is of type str, expected a list"),
        (TEXTS, ["a", 1], "holds an element of type int, expected str or bytes"),
        (TEXT, 1, "holds an element of type int, expected str or bytes"),
    ],
)
def test_what_is_no_such_tensor_is_told_with_the_models_name(port, value, complaint):
    with pytest.raises(BackendFailed, match=f"^model 'm': output 'x' {complaint}"):
        port.tensor(value, "m")
