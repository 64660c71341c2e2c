import numpy as np
import pytest

from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DATATYPES, DataType, datatype_named, datatype_of

# V2 protocol, Tensor Data Types: name and size in bytes ("variable" is 0). The gRPC text adds BF16.
SPEC = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "FP32": 4,
    "FP64": 8,
    "BYTES": 0,
    "BF16": 2,
}


def test_the_datatypes_are_those_of_the_protocol():
    assert {datatype.value: datatype.size_bytes for datatype in DataType} == SPEC


def test_names_are_the_wire_names_and_string_is_read_as_bytes():
    assert {name: DataType(name) for name in SPEC} | {"STRING": DataType.BYTES} == DATATYPES


@pytest.mark.parametrize("datatype", DataType)
def test_the_numpy_twin_has_the_same_size_and_is_little_endian(datatype):
    if datatype is DataType.BYTES:
        assert datatype.numpy == np.dtype(object)
    else:
        assert datatype.numpy.itemsize == datatype.size_bytes
        assert datatype.numpy == datatype.numpy.newbyteorder("<")


@pytest.mark.parametrize(
    ("datatype", "kind"),
    [("BOOL", "b"), ("UINT8", "u"), ("INT8", "i"), ("FP16", "f"), ("BF16", "u"), ("FP64", "f")],
)
def test_the_numpy_twin_is_of_the_right_kind(datatype, kind):
    assert DataType(datatype).numpy.kind == kind


@pytest.mark.parametrize("name", [*SPEC, "STRING"])
def test_a_datatype_is_found_by_its_name(name):
    assert datatype_named(name, "x") is DATATYPES[name]


@pytest.mark.parametrize("name", ["fp32", "FLOAT", "", "TYPE_FP32"])
def test_another_name_is_refused(name):
    with pytest.raises(InvalidRequest, match=f"for input x: it is '{name}', expected one of BOOL,"):
        datatype_named(name, "x")


@pytest.mark.parametrize(
    "datatype", [one for one in DataType if one not in (DataType.BYTES, DataType.BF16)]
)
@pytest.mark.parametrize("order", "<>")
def test_an_array_has_the_datatype_of_its_dtype_in_either_byte_order(datatype, order):
    assert datatype_of(datatype.numpy.newbyteorder(order)) is datatype


@pytest.mark.parametrize("dtype", ["O", "S3", "U3"])
def test_arrays_of_texts_are_bytes(dtype):
    assert datatype_of(np.dtype(dtype)) is DataType.BYTES


@pytest.mark.parametrize("dtype", ["c8", "M8[s]", "m8[s]", "V2", [("a", "i4")]])
def test_a_dtype_the_wire_cannot_carry_is_refused(dtype):
    with pytest.raises(TypeError, match="no counterpart"):
        datatype_of(np.dtype(dtype))
