import pytest

from inferd.errors import InvalidRequest
from inferd.wire.cloud import BinaryType

TYPE = BinaryType("application/vnd.some-triton.binary+json")


def test_what_is_written_is_read_again():
    written = TYPE.with_size(b"146")
    assert written == b"application/vnd.some-triton.binary+json;json-header-size=146"
    assert TYPE.json_size(written) == b"146"


@pytest.mark.parametrize(
    "text",
    [
        b"Application/vnd.some-triton.binary+JSON; JSON-Header-Size=7",
        b' application/vnd.some-triton.binary+json ;json-header-size = "7" ',
    ],
)
def test_case_and_white_space_mean_nothing(text):
    assert TYPE.json_size(text) == b"7"


@pytest.mark.parametrize("text", [b"", b"application/json", b"application/octet-stream;a=1"])
def test_other_types_have_no_size(text):
    assert TYPE.json_size(text) is None


@pytest.mark.parametrize(
    "more", [b"", b";", b";json-header-size=", b";json-header-size=-1", b";x=7"]
)
def test_a_size_that_is_no_number_is_invalid_arg(more):
    with pytest.raises(InvalidRequest, match=r"expected .*;json-header-size=BYTES"):
        TYPE.json_size(b"application/vnd.some-triton.binary+json" + more)
