"""gzip and deflate both ways: what is inflated, how far, and what is refused."""

import gzip
import random
import tracemalloc
import zlib

import pytest

from inferd.aio.inline import INLINE_CODED_BYTES, INLINE_INFLATED_BYTES, NotFast
from inferd.http import coding as coding_module
from inferd.http.coding import WINDOW_BITS, BadCoding, InflatesTooFar, deflate, inflate

SMALL = b"some bytes, some bytes, some bytes"
LARGE = bytes(range(256)) * 4000
NOISE = random.Random(1).randbytes(300_000)
GIB = 1 << 30


def raw_deflate(data):
    encoder = zlib.compressobj(wbits=-15)
    return encoder.compress(data) + encoder.flush()


def packed(data):
    """The same bytes at any time of day, as the names of tests have to be."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize("level", [0, 9])
@pytest.mark.parametrize("data", [b"", SMALL, LARGE, NOISE, bytes(2 * INLINE_INFLATED_BYTES)])
def test_gzip_and_deflate_are_inflated(data, level):
    for kind in (bytes, memoryview):
        assert inflate(kind(gzip.compress(data, level)), b"gzip", GIB) == data
        assert inflate(kind(zlib.compress(data, level)), b"deflate", GIB) == data


@pytest.mark.parametrize(
    "size", range(coding_module._WRITE_BYTES - 2, coding_module._WRITE_BYTES + 3)
)
def test_what_ends_with_a_piece_is_inflated_as_well(size):
    for data in (bytes(size), NOISE[:size]):
        assert inflate(gzip.compress(data), b"gzip", size) == data


@pytest.mark.parametrize("parts", [[SMALL, SMALL], [b"", NOISE, b"", LARGE], [b""] * 10_000])
def test_members_of_gzip_are_inflated_one_after_the_other(parts):
    body = b"".join(map(gzip.compress, parts))
    for kind in (bytes, memoryview):
        assert inflate(kind(body), b"gzip", GIB) == b"".join(parts)


def test_all_members_together_keep_to_the_limit():
    with pytest.raises(InflatesTooFar):
        inflate(gzip.compress(LARGE) * 3, b"gzip", 2 * len(LARGE))


@pytest.mark.parametrize(
    ("body", "coding", "complaint"),
    [
        (SMALL, b"gzip", "cannot be decoded"),
        (SMALL, b"deflate", "cannot be decoded"),
        (zlib.compress(SMALL), b"gzip", "cannot be decoded"),
        (packed(SMALL), b"deflate", "cannot be decoded"),
        (raw_deflate(SMALL), b"deflate", "cannot be decoded"),
        (b"", b"gzip", "ends too early"),
        (packed(SMALL)[:-1], b"gzip", "ends too early"),
        (packed(SMALL)[:20], b"gzip", "ends too early"),
        (packed(NOISE)[:-100_000], b"gzip", "ends too early"),
        (zlib.compress(SMALL)[:-1], b"deflate", "ends too early"),
        (packed(SMALL)[:-8] + bytes(8), b"gzip", "cannot be decoded"),
        (packed(SMALL) + b"x", b"gzip", "goes on after its end"),
        (packed(SMALL) * 2 + b"x", b"gzip", "goes on after its end"),
        (packed(SMALL) * 2 + b"\x1f\x8b", b"gzip", "ends too early"),
        (packed(b"") * 10_001, b"gzip", "goes on after its end"),
        (zlib.compress(SMALL) * 2, b"deflate", "goes on after its end"),
        (packed(NOISE) + bytes(100_000), b"gzip", "goes on after its end"),
        (packed(SMALL).ljust(coding_module._READ_BYTES + 1, b"x"), b"gzip", "goes on"),
        (zlib.compress(SMALL) + b"\0", b"deflate", "goes on after its end"),
    ],
)
def test_bad_bytes_are_refused(body, coding, complaint):
    with pytest.raises(BadCoding, match=complaint):
        inflate(body, coding, GIB)


@pytest.mark.parametrize("level", [0, 9])
def test_never_more_than_the_limit_is_inflated(level):
    body = gzip.compress(LARGE, level)
    assert inflate(body, b"gzip", len(LARGE)) == LARGE
    with pytest.raises(InflatesTooFar, match="1023999"):
        inflate(body, b"gzip", len(LARGE) - 1)


@pytest.mark.slow
def test_a_bomb_is_refused_before_it_is_inflated():
    bomb = gzip.compress(bytes(1 << 26))
    tracemalloc.start()
    try:
        with pytest.raises(InflatesTooFar):
            inflate(bomb, b"gzip", 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_inflating_needs_little_more_memory_than_what_comes_of_it():
    size = 1 << 25
    body = gzip.compress(bytes(size))
    tracemalloc.start()
    try:
        assert len(inflate(body, b"gzip", size)) == size
        assert tracemalloc.get_traced_memory()[1] < 1.3 * size
    finally:
        tracemalloc.stop()


def test_what_takes_long_is_not_inflated_on_the_loop():
    assert inflate(gzip.compress(SMALL), b"gzip", GIB, on_loop=True) == SMALL
    most = bytes(INLINE_INFLATED_BYTES)
    assert inflate(gzip.compress(most), b"gzip", GIB, on_loop=True) == most
    with pytest.raises(NotFast):
        inflate(gzip.compress(most + b"\0"), b"gzip", GIB, on_loop=True)
    with pytest.raises(NotFast):
        inflate(bytes(INLINE_CODED_BYTES + 1), b"gzip", GIB, on_loop=True)


@pytest.mark.parametrize("data", [SMALL, LARGE])
@pytest.mark.parametrize("coding", WINDOW_BITS)
@pytest.mark.parametrize("level", [-1, 1, 9])
def test_buffers_are_joined_and_compressed(data, coding, level):
    middle = len(data) // 2
    coded = deflate([data[:middle], memoryview(data)[middle:]], coding, level)
    assert inflate(coded, coding, GIB) == data
