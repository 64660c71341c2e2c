import pytest

from inferd.errors import InvalidRequest
from inferd.wire.v2.settings import MAX_BYTES, read_object, shown


def test_an_object_is_read():
    assert read_object(memoryview(b'{"a": [null, "1"]}')) == {"a": [None, "1"]}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "failed to parse the request JSON buffer: expected an object of settings"),
        (b"{", "failed to parse the request JSON"),
        (b'{"a": NaN}', "failed to parse the request JSON"),
        (b'{"a": "\xff"}', "failed to parse the request JSON"),
        (b"[" * 5000, "failed to parse the request JSON"),
        (b"[1]", r"the body is \[1\], expected a JSON object"),
        (b"null", "the body is null, expected a JSON object"),
        (b" " * (MAX_BYTES + 1), f"{MAX_BYTES + 1} bytes, the limit is {MAX_BYTES}"),
    ],
)
def test_anything_else_is_refused(body, text):
    with pytest.raises(InvalidRequest, match=text):
        read_object(memoryview(body))


def test_a_long_value_is_cut_where_it_is_shown():
    assert shown("x" * 1000) == '"' + "x" * 99 + "..."
