"""A call with one message and one answer."""

import asyncio

import pytest
from call_site import CallSite, message

from inferd.aio.driver import fulfil
from inferd.aio.promise import Promise
from inferd.http.grpc.handler import Unary
from inferd.http.grpc.unary_call import UnaryCall

LARGE = bytes(range(256)) * 100


class Handler:
    """Notes what it is given, and gives it back."""

    def __init__(self):
        self.seen = []

    def __call__(self, data, call):
        self.seen.append(bytes(data))
        return [data]


@pytest.fixture
def handler():
    return Handler()


async def test_a_message_that_comes_whole_is_answered_at_once(handler):
    site = CallSite(UnaryCall, Unary(handler))
    site.head()
    site.end(message(b"hello"))
    body, fields = site.got()
    assert (body, fields[b":status"], fields[b"grpc-status"]) == (message(b"hello"), b"200", b"0")
    assert not site.sender.handlers


@pytest.mark.parametrize("size", [1, 4, 5, 6, 1000])
async def test_a_message_in_pieces_is_put_together_and_let_go_of(handler, size):
    site = CallSite(UnaryCall, Unary(handler))
    site.head()
    whole = message(LARGE)
    for at in range(0, len(whole), size):
        site.data(whole[at : at + size])
    assert site.capacity.buffered_bytes == len(whole)
    assert handler.seen == []
    site.end()
    assert handler.seen == [LARGE]
    assert site.got()[1][b"grpc-status"] == b"0"
    assert site.capacity.buffered_bytes == 0


async def test_no_message_and_two_are_one_too_few_and_too_many(handler):
    for sent in (b"", message(b"a") * 2):
        site = CallSite(UnaryCall, Unary(handler))
        site.head()
        site.end(sent)
        assert site.got()[1][b"grpc-status"] == b"12"
    assert handler.seen == []


async def test_a_handler_that_waits_answers_when_it_goes_on():
    promise = Promise(loop=asyncio.get_running_loop())

    async def waits(data, call):
        return [await promise]

    site = CallSite(UnaryCall, Unary(waits))
    site.head()
    site.end(message(b"hello"))
    assert site.got() == (b"", {})
    fulfil(promise, b"later")
    await site.resume()
    assert site.got()[0] == message(b"later")


async def test_a_client_that_leaves_has_its_handler_cancelled():
    ended = asyncio.Event()

    async def waits(data, call):
        try:
            await Promise(loop=asyncio.get_running_loop())
        finally:
            assert call.cancelled
            ended.set()

    site = CallSite(UnaryCall, Unary(waits))
    site.head()
    site.end(message(b"hello"))
    site.sender.lose()
    await asyncio.wait_for(ended.wait(), 10)


@pytest.mark.parametrize("piece", [3, 8, 100])
async def test_who_is_refused_with_an_answer_is_not_run_though_the_answer_has_to_wait(
    handler, piece
):
    method = Unary(handler, None, True, lambda error: [b"busy"])
    site = CallSite(UnaryCall, method, window=0)
    site.capacity.max_requests = 0
    site.head()
    whole = message(bytes(100))
    site.data(whole[:piece])
    site.data(whole[piece:])
    site.end(message(b"whole"))
    assert handler.seen == []
    assert site.capacity.buffered_bytes == 0
    site.widen(1000)
    body, fields = site.got()
    assert (body, fields[b"grpc-status"]) == (message(b"busy"), b"0")
    assert not site.sender.handlers
