"""What is short is coded at once; the rest in threads, some at a time, and refused alike."""

import asyncio
import gc
import gzip
import weakref

import pytest

from inferd.aio import offload as offload_module
from inferd.aio.inline import INLINE_CODED_BYTES, INLINE_INFLATED_BYTES
from inferd.aio.offload import Offload
from inferd.errors import Unavailable
from inferd.http.coding import BadCoding, Coder, InflatesTooFar

SMALL = b"some bytes, some bytes, some bytes"
LARGE = bytes(range(256)) * 4000


class Body(bytearray):
    """Bytes that can be looked for once they are gone."""


def at_once(coroutine):
    """What a coroutine returns that must not wait."""
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    return done.value.value


def test_what_is_short_is_coded_without_waiting():
    coder = Coder(1 << 20, Offload())
    coded = at_once(coder.deflate([SMALL[:9], SMALL[9:]], b"gzip"))
    assert gzip.decompress(coded) == SMALL
    assert at_once(coder.inflate(coded, b"gzip")) == SMALL
    assert at_once(coder.deflate([bytes(INLINE_CODED_BYTES)], b"deflate", 9))


@pytest.mark.parametrize("data", [LARGE, bytes(INLINE_INFLATED_BYTES + 1)])
async def test_what_is_long_is_coded_all_the_same(data):
    coder = Coder(1 << 20, Offload())
    coded = await coder.deflate([data[:9], memoryview(data)[9:]], b"gzip")
    assert await coder.inflate(coded, b"gzip") == data


@pytest.mark.parametrize("level", [0, 9])
async def test_bad_and_too_long_bodies_raise_the_same_wherever_they_are_inflated(level):
    coder = Coder(len(LARGE) - 1, Offload())
    coded = gzip.compress(LARGE, level)
    with pytest.raises(InflatesTooFar, match=str(len(LARGE) - 1)):
        await coder.inflate(coded, b"gzip")
    with pytest.raises(BadCoding, match="cannot be decoded"):
        await coder.inflate(coded, b"deflate")


async def test_only_so_many_wait(monkeypatch):
    monkeypatch.setattr(offload_module, "MAX_WAITING", 1)
    coder = Coder(1 << 20, Offload())
    first = asyncio.ensure_future(coder.deflate([LARGE], b"gzip"))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await coder.deflate([LARGE], b"gzip")
    assert gzip.decompress(await first) == LARGE


@pytest.mark.slow
async def test_nothing_is_kept_of_a_body_that_was_coded_or_given_up():
    coder = Coder(1 << 20, Offload())
    bodies = [Body(gzip.compress(LARGE, 0)) for _ in range(3)]
    kept = [weakref.ref(body) for body in bodies]
    inflating = [asyncio.ensure_future(coder.inflate(body, b"gzip")) for body in bodies]
    await asyncio.sleep(0)
    inflating[0].cancel()
    assert await inflating[1] == await inflating[2] == LARGE
    del bodies, inflating
    gc.collect()
    while any(one() is not None for one in kept):  # noqa: ASYNC110 - a thread lets go of the first
        await asyncio.sleep(0.001)
