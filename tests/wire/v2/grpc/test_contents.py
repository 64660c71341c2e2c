"""Typed contents: each datatype in its field, checked against its range."""

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.v2.grpc.contents import decode_contents, encode_contents, have_contents_fields

GOOD = [
    ("BOOL", "bool_contents", [True, False]),
    ("INT8", "int_contents", [-128, 127]),
    ("INT16", "int_contents", [-(2**15), 2**15 - 1]),
    ("INT32", "int_contents", [-(2**31), 2**31 - 1]),
    ("INT64", "int64_contents", [-(2**63), 2**63 - 1]),
    ("UINT8", "uint_contents", [0, 255]),
    ("UINT16", "uint_contents", [0, 65535]),
    ("UINT32", "uint_contents", [0, 2**32 - 1]),
    ("UINT64", "uint64_contents", [0, 2**64 - 1]),
    ("FP32", "fp32_contents", [0.5, -1.0]),
    ("FP64", "fp64_contents", [0.1, float("inf")]),
    ("BYTES", "bytes_contents", [b"a", b"\xff"]),
]


def read(contents, datatype, count):
    return decode_contents(contents, Tensor("T", datatype, (count,), b""), count, "m")


@pytest.mark.parametrize(("datatype", "field", "values"), GOOD)
def test_every_typed_datatype_is_read_and_written(datatype, field, values):
    contents = pb.InferTensorContents(**{field: values})
    data = read(contents, DataType[datatype], 2)
    tensor = Tensor("T", DataType[datatype], (2,), data)
    assert tensor.numpy().tolist() == values
    back = pb.InferTensorContents()
    encode_contents(back, tensor)
    assert back == contents


@pytest.mark.parametrize(
    ("datatype", "field", "value", "limits"),
    [
        ("INT8", "int_contents", 200, "-128 to 127"),
        ("INT8", "int_contents", -129, "-128 to 127"),
        ("INT16", "int_contents", 40000, "-32768 to 32767"),
        ("UINT8", "uint_contents", 300, "0 to 255"),
        ("UINT16", "uint_contents", 65536, "0 to 65535"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_range(datatype, field, value, limits):
    contents = pb.InferTensorContents(**{field: [1, value]})
    with pytest.raises(InvalidRequest) as caught:
        read(contents, DataType[datatype], 2)
    assert caught.value.message == f"tensor 'T': element 1 is {value}, {datatype} holds {limits}"


def test_elements_in_another_field_are_invalid():
    with pytest.raises(InvalidRequest) as caught:
        read(pb.InferTensorContents(int_contents=[1]), DataType.FP32, 1)
    assert caught.value.message == (
        "unexpected explicit tensor data for input tensor 'T' for model 'm' of type 'INT32', "
        "expected datatype 'FP32': its elements belong in fp32_contents, found them in int_contents"
    )


def test_elements_in_two_fields_are_invalid():
    contents = pb.InferTensorContents(fp32_contents=[1], fp64_contents=[1])
    with pytest.raises(
        InvalidRequest, match=r"already supplied: .*fp32_contents and fp64_contents"
    ):
        read(contents, DataType.FP32, 1)


@pytest.mark.parametrize("half", [DataType.FP16, DataType.BF16])
def test_halves_travel_raw_only(half):
    assert not have_contents_fields([Tensor("T", half, (0,), b"")])
    with pytest.raises(InvalidRequest, match="raw contents"):
        read(pb.InferTensorContents(fp32_contents=[1]), half, 1)
    assert read(pb.InferTensorContents(), half, 0) == b""


@pytest.mark.parametrize("count", [1, 3])
def test_the_elements_must_be_as_many_as_the_shape_asks(count):
    contents = pb.InferTensorContents(fp32_contents=[1, 2])
    with pytest.raises(InvalidRequest, match=f"Expected {4 * count}, got 8: contents hold 2 elem"):
        read(contents, DataType.FP32, count)
    contents = pb.InferTensorContents(bytes_contents=[b"a", b"b"])
    with pytest.raises(InvalidRequest, match=r"string elements .*'T' for model 'm'"):
        read(contents, DataType.BYTES, count)


def test_strings_get_their_length_prefixes():
    contents = pb.InferTensorContents(bytes_contents=[b"ab", b""])
    assert read(contents, DataType.BYTES, 2) == b"\2\0\0\0ab\0\0\0\0"


def test_a_tensor_of_rank_two_is_written_row_by_row():
    contents = pb.InferTensorContents()
    array = np.array([[1, 2], [3, 4]], "<i4")
    encode_contents(contents, Tensor("T", DataType.INT32, (2, 2), array))
    assert list(contents.int_contents) == [1, 2, 3, 4]
