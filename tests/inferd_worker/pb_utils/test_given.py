import numpy as np
import pytest

from inferd_worker.pb_utils.error import TritonModelException, WrongType
from inferd_worker.pb_utils.given import number_given, text_given


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("value", ["é", Text("é"), "é".encode(), bytearray("é".encode())])
def test_a_text_may_be_bytes_and_is_always_a_plain_str(value):
    found = text_given(value, "a name")
    assert (type(found), found) == (str, "é")


def test_what_is_no_text_is_refused():
    with pytest.raises(WrongType, match=r"^a name is .*int.*, expected str"):
        text_given(3, "a name")
    with pytest.raises(TritonModelException, match="a name is no UTF-8"):
        text_given(b"\xff", "a name")


@pytest.mark.parametrize("value", [7, np.int8(7), np.uint64(7)])
def test_a_number_may_be_numpy_s_and_is_always_a_plain_int(value):
    found = number_given(value, "a count")
    assert (type(found), found) == (int, 7)


@pytest.mark.parametrize("value", [7.0, "7", None])
def test_what_is_no_integer_is_refused(value):
    with pytest.raises(WrongType, match=r"^a count is .*, expected int"):
        number_given(value, "a count")
