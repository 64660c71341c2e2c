"""Huffman codes: what the hpack library says of every text, we say too."""

import pytest
from hpack.exceptions import HPACKError
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman as decode_as_the_library
from hypothesis import given
from hypothesis import strategies as st

from inferd.http.h2.huffman import decode_huffman

encode = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode


def test_the_example_of_the_rfc_is_read():
    assert decode_huffman(bytes.fromhex("f1e3c2e5f23a6ba0ab90f4ff")) == b"www.example.com"
    assert decode_huffman(b"") == b""


@pytest.mark.parametrize("byte", range(256))
def test_every_byte_is_read(byte):
    text = bytes([byte]) * 9
    assert decode_huffman(encode(text)) == text


@given(st.binary(max_size=300))
def test_what_was_encoded_is_read(text):
    assert decode_huffman(encode(text)) == text


@given(st.binary(max_size=40) | st.lists(st.sampled_from([0xFF, 0, 0xFE]), max_size=9).map(bytes))
def test_any_bytes_mean_what_the_library_says(code):
    try:
        expected = bytes(decode_as_the_library(code))
    except HPACKError:
        with pytest.raises(HPACKError):
            decode_huffman(code)
    else:
        assert decode_huffman(code) == expected
