"""grpcio's own clients, blocking and asyncio, through every kind of call."""

import asyncio
import itertools
import threading
import time
from contextlib import contextmanager, nullcontext

import grpc
import grpc.aio
import pytest
from relay import Relay

from inferd.aio.event_loop import new_event_loop

SIZES = [0, 1, 1000, 16_384, 65_535, 65_536, 1_000_000, 20_000_000]
UNLIMITED = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
WAIT_S = 10
PATIENCE_S = 60
PATIENCE_MS = (1000, 4000, 16_000)
"""How long a ping may be unanswered: on a busy machine longer, so that it tells who never does."""


def path(name):
    return f"/test.Service/{name}"


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(server.address, options=UNLIMITED) as opened:
        yield opened


def questions(count, size=1):
    return (bytes([number % 256]) * size for number in range(count))


@contextmanager
def connected(served, secure=None, options=UNLIMITED, **more):
    """Run a server and give a channel to it."""
    with served as server:
        if secure is None:
            opened = grpc.insecure_channel(server.address, options=options, **more)
        else:
            opened = grpc.secure_channel(server.address, secure, options=options)
        with opened as channel:
            yield channel


def longer_and_longer(until):
    """Yield times to wait, until a call was not too late before it came to the server."""
    timeout_s = 0.2
    while not until():
        yield timeout_s
        timeout_s *= 2


# --- blocking -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_a_unary_call_comes_back(channel, size):
    message = bytes(range(256)) * (size // 256 + 1)
    assert channel.unary_unary(path("Echo"))(message[:size], timeout=WAIT_S) == message[:size]


@pytest.mark.parametrize(("count", "size"), [(0, 0), (1, 10), (200, 1000), (20, 500_000)])
def test_a_client_stream_is_summed_up(channel, count, size):
    call = channel.stream_unary(path("Sum"))
    assert call(questions(count, size), timeout=WAIT_S) == f"{count} {count * size}".encode()


@pytest.mark.parametrize(("count", "size"), [(0, 0), (1, 10), (300, 1000), (20, 500_000)])
def test_a_server_stream_brings_all_its_messages(channel, count, size):
    call = channel.unary_stream(path("Repeat"))
    answers = list(call(f"{count} {size}".encode(), timeout=WAIT_S))
    assert answers == [bytes([number % 256]) * size for number in range(count)]


def test_a_conversation_goes_to_and_fro(channel):
    said, heard = threading.Semaphore(0), []

    def speak():
        for number in range(50):
            yield str(number).encode()
            said.acquire()  # the next question waits for the answer to this one

    for answer in channel.stream_stream(path("Chat"))(speak(), timeout=WAIT_S):
        heard.append(answer)
        said.release()
    assert heard == [f"re: {number}".encode() for number in range(50)]


def test_many_calls_share_a_channel(channel):
    call = channel.unary_unary(path("Echo"))
    running = [(n, call.future(str(n).encode() * 500, timeout=WAIT_S)) for n in range(500)]
    assert all(each.result() == str(n).encode() * 500 for n, each in running)


def test_metadata_goes_both_ways(channel, server):
    sent = [("x-key", "1"), ("x-key", "2"), ("x-key-bin", bytes(range(256))), ("x-none", "")]
    answer, call = channel.unary_unary(path("Echo")).with_call(b"", metadata=sent, timeout=WAIT_S)
    assert answer == b""
    assert set(sent) <= set(server.seen.metadata)
    assert [value for key, value in server.seen.metadata if key == "x-key"] == ["1", "2"]
    assert not any(key.startswith((":", "grpc-")) for key, _ in server.seen.metadata)
    initial, trailing = dict(call.initial_metadata()), dict(call.trailing_metadata())
    assert initial["x-initial"] == "first" and initial["x-initial-bin"] == b"\0\xff"
    assert trailing["x-trailing"] == "last" and trailing["x-trailing-bin"] == bytes(range(256))
    assert server.seen.peers[0].startswith("ipv4:127.0.0.1:")


def test_metadata_with_spaces_around_them_arrive_whole(channel, server):
    sent = (("x-before", " a"), ("x-after", "a "), ("x-both", "  a b "), ("x-blank", " "))
    for _ in range(2):
        channel.unary_unary(path("Echo"))(b"", metadata=sent, timeout=WAIT_S)
        assert set(sent) <= set(server.seen.metadata)


def test_metadata_that_changes_with_every_call_is_right(channel, server):
    call = channel.unary_unary(path("Echo"))
    for number in range(300):
        sent = [("x-number", str(number % 7)), (f"x-name-{number % 5}", "a" * (number % 100))]
        call(b"", metadata=sent, timeout=WAIT_S)
        assert set(sent) <= set(server.seen.metadata)


def test_an_error_has_its_words(channel):
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(path("Fail"))(b"", timeout=WAIT_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "100 % wrong: \u00fc\u6a21"
    assert dict(caught.value.trailing_metadata())["x-trailing"] == "last"


def test_an_unexpected_failure_says_nothing_of_itself(channel):
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(path("BreakDown"))(b"", timeout=WAIT_S)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in caught.value.details()


def test_an_error_after_answers_comes_after_them(channel):
    answers = channel.stream_stream(path("FailLate"))(questions(3), timeout=WAIT_S)
    assert list(itertools.islice(answers, 3)) == list(questions(3))
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_an_unknown_method_is_unimplemented(channel):
    for kind in ("unary_unary", "stream_stream"):
        call = getattr(channel, kind)("/test.Service/Nothing")
        with pytest.raises(grpc.RpcError) as caught:
            list(call(b"" if kind == "unary_unary" else questions(3), timeout=WAIT_S))
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_deadline_ends_the_call_on_both_sides(channel, server):
    for timeout_s in longer_and_longer(until=server.seen.started.is_set):
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(path("Wait"))(b"", timeout=timeout_s)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert server.seen.cancelled.wait(WAIT_S)


def test_a_deadline_ends_a_conversation(channel, server):
    never, heard = threading.Event(), []

    def speak():
        yield b"hello"
        never.wait(WAIT_S)

    for timeout_s in longer_and_longer(until=lambda: heard):
        answers = channel.stream_stream(path("Chat"))(speak(), timeout=timeout_s)
        with pytest.raises(grpc.RpcError) as caught:
            heard.extend(answers)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    never.set()
    assert heard == [b"re: hello"]
    assert server.seen.cancelled.wait(WAIT_S)


def test_a_cancelled_call_is_cancelled_in_the_server(channel, server):
    running = channel.unary_unary(path("Wait")).future(b"")
    assert server.seen.started.wait(WAIT_S)
    running.cancel()
    assert server.seen.cancelled.wait(WAIT_S)


def test_a_cancelled_stream_is_cancelled_in_the_server(channel, server):
    answers = channel.unary_stream(path("Endless"))(b"")
    for _ in range(100):
        next(answers)
    answers.cancel()
    assert server.seen.cancelled.wait(WAIT_S)


def test_a_reader_that_waits_holds_the_server_back(channel, server):
    answers = channel.unary_stream(path("Repeat"))(b"40 1000000", timeout=30)
    first = next(answers)
    assert len(first) == 1_000_000
    assert sum(len(answer) for answer in answers) == 39_000_000


def test_a_closed_channel_cancels_its_calls(server):
    with grpc.insecure_channel(server.address, options=UNLIMITED) as channel:
        running = channel.unary_unary(path("Wait")).future(b"")
        assert server.seen.started.wait(WAIT_S)
        assert not running.done()
    assert server.seen.cancelled.wait(WAIT_S)


@pytest.mark.parametrize("coding", [grpc.Compression.Gzip, grpc.Compression.Deflate])
@pytest.mark.parametrize("level", ["none", "high"])
def test_compressed_messages_go_both_ways(serve, coding, level):
    message = b"again and again " * 100_000
    with connected(serve(compression_level=level), compression=coding) as channel:
        assert channel.unary_unary(path("Echo"))(message, timeout=WAIT_S) == message
        sizes = channel.stream_unary(path("Sum"))(questions(10, 1000), timeout=WAIT_S)
        assert sizes == b"10 10000"
        answers = list(channel.unary_stream(path("Repeat"))(b"10 100000", timeout=WAIT_S))
        assert [len(answer) for answer in answers] == [100_000] * 10


def test_too_large_a_message_is_resource_exhausted(serve):
    with connected(serve(max_message_bytes=1000)) as channel:
        call = channel.unary_unary(path("Echo"))
        assert call(bytes(1000), timeout=WAIT_S) == bytes(1000)
        for compression in (None, grpc.Compression.Gzip):
            with pytest.raises(grpc.RpcError) as caught:
                call(bytes(50_000), timeout=WAIT_S, compression=compression)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def quiet_call(channel, patience_ms):
    """Return the code of a call that hears nothing for longer than a ping may be unanswered."""
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(path("Wait"))(b"", timeout=1.5 * patience_ms / 1000)
    return caught.value.code()


@pytest.mark.slow
def test_keepalive_pings_keep_a_quiet_call_alive(serve):
    options = [
        *UNLIMITED,
        ("grpc.keepalive_time_ms", 100),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
    with (
        serve(http2_min_recv_ping_interval_without_data_ms=10) as server,
        Relay(server.port) as relay,
        grpc.insecure_channel(relay.address, options=options) as channel,
    ):
        call = channel.unary_unary(path("Wait")).future(b"")
        assert server.seen.started.wait(PATIENCE_S)
        # More than a server takes that finds them too many, and each of them answered.
        assert relay.wait_for_answers(5, PATIENCE_S)
        assert not call.done()
        call.cancel()
        assert channel.unary_unary(path("Echo"))(b"ok", timeout=WAIT_S) == b"ok"


@pytest.mark.slow
def test_the_servers_pings_are_answered(serve):
    def stays(patience_ms):
        times = {"keepalive_time_ms": 100, "keepalive_timeout_ms": patience_ms}
        served = serve(**times, keepalive_permit_without_calls=True, http2_max_pings_without_data=0)
        with connected(served) as channel:
            return quiet_call(channel, patience_ms) is grpc.StatusCode.DEADLINE_EXCEEDED

    assert any(map(stays, PATIENCE_MS))


@pytest.mark.slow
def test_a_channel_outlives_its_connections_age(serve):
    with connected(serve(max_connection_age_ms=100, max_connection_age_grace_ms=2000)) as channel:
        call = channel.unary_unary(path("Echo"))
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            assert call(b"still", timeout=WAIT_S, wait_for_ready=True) == b"still"


# --- TLS ----------------------------------------------------------------------------------------


def credentials(certificates, *, client=False, root="ca.pem"):
    read = [(certificates / name).read_bytes() for name in (root, "client.key", "client.pem")]
    return grpc.ssl_channel_credentials(read[0], *(read[1:] if client else ()))


def test_tls_carries_all_kinds(serve, tls_options, certificates):
    with connected(serve(**tls_options), credentials(certificates)) as channel:
        message = bytes(5_000_000)
        assert channel.unary_unary(path("Echo"))(message, timeout=WAIT_S) == message
        assert channel.stream_unary(path("Sum"))(questions(9), timeout=WAIT_S) == b"9 9"
        assert len(list(channel.unary_stream(path("Repeat"))(b"9 99", timeout=WAIT_S))) == 9
        answers = list(channel.stream_stream(path("Chat"))(questions(3), timeout=WAIT_S))
        assert len(answers) == 3


@pytest.mark.parametrize("transport", ["own"])
@pytest.mark.parametrize("is_secure", [False, True])
def test_a_call_on_one_connection_too_many_fails_at_once(
    serve, tls_options, certificates, is_secure
):
    secure = credentials(certificates) if is_secure else None
    options = tls_options if is_secure else {}
    with (
        serve(max_connections=1, **options) as server,
        connected(nullcontext(server), secure) as first,
        connected(nullcontext(server), secure) as second,
    ):
        assert first.unary_unary(path("Echo"))(b"ok", timeout=WAIT_S) == b"ok"
        with pytest.raises(grpc.RpcError) as caught:
            second.unary_unary(path("Echo"))(b"ok", timeout=WAIT_S)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_stranger_does_not_trust_the_server(serve, tls_options, certificates):
    with connected(serve(**tls_options), credentials(certificates, root="client.pem")) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(path("Echo"))(b"", timeout=WAIT_S)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_mutual_tls_wants_a_certificate(serve, tls_options, certificates):
    root = str(certificates / "ca.pem")
    with serve(**tls_options, use_ssl_mutual=True, root_cert=root) as server:
        known = credentials(certificates, client=True)
        with grpc.secure_channel(server.address, known, options=UNLIMITED) as channel:
            assert channel.unary_unary(path("Echo"))(b"me", timeout=WAIT_S) == b"me"
        unknown = credentials(certificates)
        with grpc.secure_channel(server.address, unknown, options=UNLIMITED) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(path("Echo"))(b"", timeout=WAIT_S)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_plain_text_does_not_pass_on_a_tls_port(serve, tls_options):
    with connected(serve(**tls_options)) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(path("Echo"))(b"", timeout=WAIT_S)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


# --- asyncio ------------------------------------------------------------------------------------


def with_aio(server, talk, **options):
    async def run():
        target = server.address
        async with grpc.aio.insecure_channel(target, options=UNLIMITED, **options) as channel:
            await talk(channel)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(run(), 6 * WAIT_S))


def test_asyncio_clients_use_all_kinds(server):
    async def talk(channel):
        assert await channel.unary_unary(path("Echo"))(b"one", timeout=WAIT_S) == b"one"
        assert (
            await channel.stream_unary(path("Sum"))(questions(20, 5), timeout=WAIT_S) == b"20 100"
        )
        answers = channel.unary_stream(path("Repeat"))(b"30 1000", timeout=WAIT_S)
        assert [len(answer) async for answer in answers] == [1000] * 30
        chat = channel.stream_stream(path("Chat"))(timeout=WAIT_S)
        for number in range(20):
            await chat.write(str(number).encode())
            assert await chat.read() == f"re: {number}".encode()
        await chat.done_writing()
        assert await chat.read() is grpc.aio.EOF
        assert await chat.code() is grpc.StatusCode.OK

    with_aio(server, talk)


@pytest.mark.parametrize("size", SIZES)
def test_asyncio_messages_of_all_sizes_come_back(server, size):
    async def talk(channel):
        message = bytes(size)
        assert await channel.unary_unary(path("Echo"))(message, timeout=WAIT_S) == message

    with_aio(server, talk)


@pytest.mark.slow
def test_asyncio_calls_run_at_once(server):
    async def talk(channel):
        call = channel.unary_unary(path("Echo"))
        sent = [str(number).encode() * (number % 50) for number in range(1000)]
        assert await asyncio.gather(*(call(each, timeout=WAIT_S) for each in sent)) == sent

    with_aio(server, talk)


def test_asyncio_calls_end_by_deadline_and_by_cancel(server):
    async def talk(channel):
        for timeout_s in longer_and_longer(until=server.seen.started.is_set):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(path("Wait"))(b"", timeout=timeout_s)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, server.seen.cancelled.wait, WAIT_S)
        server.seen.cancelled.clear()
        chat = channel.stream_stream(path("Chat"))()
        await chat.write(b"hello")
        assert await chat.read() == b"re: hello"
        chat.cancel()
        assert await loop.run_in_executor(None, server.seen.cancelled.wait, WAIT_S)
        assert await channel.unary_unary(path("Echo"))(b"on", timeout=WAIT_S) == b"on"

    with_aio(server, talk)


def test_asyncio_errors_and_metadata_arrive(server):
    async def talk(channel):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(path("Fail"))(b"", timeout=WAIT_S)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert caught.value.details() == "100 % wrong: \u00fc\u6a21"
        sent = (("x-key-bin", b"\0\1\2"), ("x-key", "text"))
        call = channel.unary_unary(path("Echo"))(b"", metadata=sent, timeout=WAIT_S)
        assert await call == b""
        assert (await call.initial_metadata())["x-initial"] == "first"
        assert (await call.trailing_metadata())["x-trailing-bin"] == bytes(range(256))
        assert set(sent) <= set(server.seen.metadata)

    with_aio(server, talk)


def test_asyncio_messages_are_compressed(server):
    async def talk(channel):
        message = b"again and again " * 10_000
        assert await channel.unary_unary(path("Echo"))(message, timeout=WAIT_S) == message

    with_aio(server, talk, compression=grpc.Compression.Gzip)
