"""HPACK: the RFC's own examples, limits, and our encoder through the library's decoder."""

import hpack
import pytest
from hpack.hpack import encode_integer
from hypothesis import given
from hypothesis import strategies as st

from inferd.http.h2.frames import ConnectionFault, ErrorCode
from inferd.http.h2.hpack import HeaderDecoder, encode_fields

FIRST = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")]
AUTHORITY = (b":authority", b"www.example.com")

# RFC 7541, appendix C.3 and C.4: three requests on one connection, plain and with Huffman codes.
PLAIN = [
    "828684410f7777772e6578616d706c652e636f6d",
    "828684be58086e6f2d6361636865",
    "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
]
HUFFMAN = [
    "828684418cf1e3c2e5f23a6ba0ab90f4ff",
    "828684be5886a8eb10649cbf",
    "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
]
MEANT = [
    [*FIRST, AUTHORITY],
    [*FIRST, AUTHORITY, (b"cache-control", b"no-cache")],
    [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/index.html"),
        AUTHORITY,
        (b"custom-key", b"custom-value"),
    ],
]


@pytest.mark.parametrize("blocks", [PLAIN, HUFFMAN])
def test_the_examples_of_the_rfc_are_read(blocks):
    decoder = HeaderDecoder(10_000)
    for block, fields in zip(blocks, MEANT, strict=True):
        assert decoder.decode(bytes.fromhex(block))[0] == fields
        assert decoder.is_table_changed
    assert decoder.decode(b"\x82\xbe")[0] == [FIRST[0], MEANT[2][4]]
    assert not decoder.is_table_changed


def test_the_size_of_a_list_counts_32_bytes_for_each_field():
    assert HeaderDecoder(1000).decode(b"\x82\x00\x01a\x01b")[1] == 10 + 32 + 2 + 32


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xbe",  # an entry that is not there
        b"\x7f\x00\x01a",  # the same as a name
        b"\x00",
        b"\x00\x05ab",
        b"\x00\x01a\x05b",
        b"\x00\x01a\x81\x00",  # Huffman codes that end wrong
        b"\x00\x01a\x84\xff\xff\xff\xff",  # the code of the end
        b"\xff\xff\xff\xff\xff\xff\xff\xff",  # an integer without end
        b"\x82\x20",  # a size update behind a field
        b"\x3f\xe2\x1f",  # a size of 4097
    ],
)
def test_a_block_that_means_nothing_is_a_compression_error(block):
    with pytest.raises(ConnectionFault) as caught:
        HeaderDecoder(1000).decode(block)
    assert caught.value.code is ErrorCode.COMPRESSION_ERROR


def test_a_size_update_empties_the_table():
    decoder = HeaderDecoder(1000)
    decoder.decode(b"\x40\x01a\x01b")
    decoder.decode(b"\x20\x3f\xe1\x1f")
    assert decoder.is_table_changed
    with pytest.raises(ConnectionFault):
        decoder.decode(b"\xbe")


def test_a_bomb_is_not_unpacked():
    decoder = HeaderDecoder(10_000)
    decoder.decode(b"\x40\x01a\x7f\xa1\x1e" + b"x" * 4000)
    with pytest.raises(ConnectionFault) as caught:
        decoder.decode(b"\xbe" * 100_000)
    assert caught.value.code is ErrorCode.ENHANCE_YOUR_CALM


NAMES = st.sampled_from([b":status", b"content-type", b"grpc-status", b"x", b"y" * 200])
VALUES = st.sampled_from([b"200", b"404", b"", b"application/grpc", b"z" * 300])


@given(st.lists(st.tuples(NAMES, VALUES), max_size=8))
def test_what_we_encode_is_read_without_a_table(fields):
    decoder = hpack.Decoder()
    decoder.max_allowed_table_size = decoder.header_table_size = 0
    assert [tuple(one) for one in decoder.decode(encode_fields(fields), raw=True)] == fields
    assert HeaderDecoder(10**6).decode(encode_fields(fields))[0] == fields


@pytest.mark.slow
@given(st.lists(st.lists(st.tuples(NAMES, VALUES), max_size=5), max_size=6))
def test_blocks_of_the_library_are_read(lists):
    encoder, decoder = hpack.Encoder(), HeaderDecoder(10**6)
    for fields in lists:
        assert decoder.decode(encoder.encode(fields))[0] == fields


def table_of(decode):
    """What a decoder's table holds, asked field by field."""
    found = []
    try:
        while True:
            index = encode_integer(62 + len(found), 7)
            index[0] |= 0x80
            found += decode(bytes(index))
    except (ConnectionFault, hpack.HPACKError):
        return found


class Pair:
    """Our decoder beside the library's, on the same blocks."""

    def __init__(self):
        self._ours, self._library = HeaderDecoder(10**6), hpack.Decoder(10**6)

    def ours(self, block):
        return self._ours.decode(block)[0]

    def library(self, block):
        return [tuple(one) for one in self._library.decode(block, raw=True)]

    def check_tables(self):
        assert table_of(self.ours) == table_of(self.library)


LONG = st.integers(0, 5000).map(lambda count: b"v" * count)
STEPS = st.tuples(
    st.lists(st.tuples(NAMES, VALUES | LONG), max_size=5),
    st.none() | st.integers(0, 4096),
    st.booleans(),
)


@pytest.mark.slow
@given(st.lists(STEPS, max_size=8))
def test_the_table_is_the_library_s_through_insertions_evictions_and_sizes(steps):
    encoder, pair = hpack.Encoder(), Pair()
    for fields, size, is_huffman in steps:
        if size is not None:
            encoder.header_table_size = size
        block = encoder.encode(fields, huffman=is_huffman)
        assert pair.ours(block) == pair.library(block) == fields
    pair.check_tables()


MUTATIONS = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), min_size=1, max_size=3)
TAIL = b"\xbe\x7f\x00\x01z\x0f\x2f\x00\x1f\x2f\x01y\x00\x02ab\x00"


@given(st.lists(st.tuples(NAMES, VALUES), max_size=5), MUTATIONS)
def test_a_mutated_block_means_what_the_library_says(fields, mutations):
    pair = Pair()
    for decode in (pair.ours, pair.library):
        decode(b"\x40\x01a\x01b\x40\x01c\x01d")
    block = bytearray(hpack.Encoder().encode(fields, huffman=False) + TAIL)
    for at, value in mutations:
        block[at % len(block)] = value
    try:
        expected = pair.library(bytes(block))
    except hpack.HPACKError:
        with pytest.raises(ConnectionFault):
            pair.ours(bytes(block))
    else:
        assert pair.ours(bytes(block)) == expected
        pair.check_tables()
