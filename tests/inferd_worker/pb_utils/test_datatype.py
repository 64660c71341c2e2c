import numpy as np
import pytest

from inferd.tensor.dtype import DataType
from inferd_worker.pb_utils.datatype import (
    NUMBERS,
    NUMPY,
    config_name,
    decode_strings,
    encode_strings,
    name_of,
)


@pytest.mark.parametrize("datatype", [one for one in DataType if one.size_bytes])
def test_the_worker_has_the_server_s_datatypes(datatype):
    assert NUMPY[datatype.name].itemsize == datatype.size_bytes


def test_texts_have_another_name_in_configurations():
    assert (config_name("FP32"), config_name("BYTES")) == ("TYPE_FP32", "TYPE_STRING")


def test_datatypes_have_the_numbers_of_model_configurations():
    assert (NUMBERS["BOOL"], NUMBERS["FP32"], NUMBERS["BYTES"], NUMBERS["BF16"]) == (1, 11, 13, 14)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("<f4", "FP32"), (">f4", "FP32"), ("?", "BOOL"), ("O", "BYTES"), ("U3", "BYTES")],
)
def test_arrays_have_a_datatype_whatever_their_byte_order(dtype, name):
    assert name_of(np.dtype(dtype)) == name


def test_a_dtype_that_the_protocol_has_not_is_refused():
    with pytest.raises(TypeError, match="complex64 has no counterpart"):
        name_of(np.dtype(np.complex64))


def test_strings_come_back_as_bytes():
    array = np.array([b"a\0b", "é", "", 7], dtype=object)
    assert decode_strings(encode_strings(array)).tolist() == [b"a\0b", "é".encode(), b"", b"7"]
    assert decode_strings(b"").tolist() == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"\1\0\0", "ends within the length"), (b"\5\0\0\0abc", "says it has 5 bytes, 3 are left")],
)
def test_strings_that_are_cut_off_are_refused(data, reason):
    with pytest.raises(ValueError, match=reason):
        decode_strings(data)
