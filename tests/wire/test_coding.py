"""Content codings: what is inflated, what is refused, and which coding an answer gets."""

import gzip
import zlib

import pytest

from inferd.errors import InvalidRequest, Unsupported
from inferd.transport.http_coding import INLINE_BYTES, choose_coding, deflate, inflate

SMALL = b"some bytes, some bytes, some bytes"
LARGE = bytes(range(256)) * 4000


def raw_deflate(data):
    encoder = zlib.compressobj(wbits=-15)
    return encoder.compress(data) + encoder.flush()


async def inflated(body, coding, max_bytes=1 << 22):
    return bytes(await inflate(memoryview(body), coding, max_bytes))


@pytest.mark.parametrize("level", [0, 9])  # 0 makes large bodies, which are decoded in a thread
@pytest.mark.parametrize("data", [b"", SMALL, LARGE])
async def test_gzip_and_deflate_are_inflated(data, level):
    assert await inflated(gzip.compress(data, level), b"gzip") == data
    assert await inflated(zlib.compress(data, level), b"deflate") == data


@pytest.mark.parametrize("coding", [b"", b"identity"])
async def test_identity_is_left_alone(coding):
    body = memoryview(SMALL)
    assert await inflate(body, coding, 1) is body


@pytest.mark.parametrize("coding", [b"br", b"GZIP", b"gzip, deflate", b"x-gzip", b"\xff" * 100])
async def test_other_codings_are_unsupported(coding):
    with pytest.raises(Unsupported, match="is not one of gzip, deflate"):
        await inflated(SMALL, coding)


@pytest.mark.parametrize(
    ("body", "coding", "complaint"),
    [
        (SMALL, b"gzip", "cannot be decoded"),
        (SMALL, b"deflate", "cannot be decoded"),
        (zlib.compress(SMALL), b"gzip", "cannot be decoded"),
        (gzip.compress(SMALL), b"deflate", "cannot be decoded"),
        (raw_deflate(SMALL), b"deflate", "cannot be decoded"),
        (b"", b"gzip", "ends too early"),
        (gzip.compress(SMALL)[:-1], b"gzip", "ends too early"),
        (gzip.compress(SMALL)[:20], b"gzip", "ends too early"),
        (zlib.compress(SMALL)[:-1], b"deflate", "ends too early"),
        (gzip.compress(SMALL)[:-8] + bytes(8), b"gzip", "cannot be decoded"),
        (gzip.compress(SMALL) + b"x", b"gzip", "goes on after its end"),
        (gzip.compress(SMALL) * 2, b"gzip", "goes on after its end"),
        (zlib.compress(SMALL) + b"\0", b"deflate", "goes on after its end"),
    ],
)
async def test_bad_bytes_are_invalid(body, coding, complaint):
    with pytest.raises(InvalidRequest, match=complaint):
        await inflated(body, coding)


@pytest.mark.parametrize("level", [0, 9])
async def test_never_more_than_the_limit_is_inflated(level):
    body = gzip.compress(LARGE, level)
    assert await inflated(body, b"gzip", len(LARGE)) == LARGE
    with pytest.raises(InvalidRequest, match="inflates to more than 1023999 bytes"):
        await inflated(body, b"gzip", len(LARGE) - 1)


async def test_a_bomb_is_refused_without_being_inflated():
    bomb = gzip.compress(gzip.compress(bytes(1 << 26)) * 50)
    with pytest.raises(InvalidRequest, match="inflates to more than 10 bytes"):
        await inflated(bomb, b"gzip", 10)


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        (b"gzip", b"gzip"),
        (b"deflate", b"deflate"),
        (b"identity", b"identity"),
        (b"gzip, deflate", b"gzip"),
        (b"deflate, gzip", b"deflate"),
        (b"gzip, deflate, br", b"gzip"),
        (b"br, *", b"identity"),
        (b"gzip;q=0.5, deflate;q=0.8", b"deflate"),
        (b"gzip ; q=0.5,deflate; Q=0.5", b"gzip"),
        (b"gzip;q=0, deflate", b"deflate"),
        (b"gzip;q=0", b"identity"),
        (b"gzip;q=0.000", b"identity"),
        (b"identity, gzip", b"identity"),
        (b"identity;q=0.5, gzip", b"gzip"),
        (b"identity;q=1, gzip;q=0.9", b"identity"),
        (b"GZip", b"gzip"),
        (b"gzip;level=9", b"gzip"),
        (b"gzip;q=much", b"identity"),
        (b"gzip;q=nan", b"identity"),
        (b"gzip;q=-1", b"identity"),
        (b",, ,", b"identity"),
        (b"\xff", b"identity"),
    ],
)
def test_the_preferred_coding_is_chosen(accept, coding):
    assert choose_coding(accept) == coding


@pytest.mark.parametrize("data", [SMALL, LARGE])
@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
async def test_buffers_are_joined_and_compressed(data, coding):
    assert (len(data) <= INLINE_BYTES) == (data is SMALL)
    middle = len(data) // 2
    coded = await deflate([data[:middle], memoryview(data)[middle:]], coding)
    assert await inflated(coded, coding) == data
