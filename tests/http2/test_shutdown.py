"""The end of a connection from the server's side: drain, age, keepalive, ping policy."""

import signal
import socket
import struct

import pytest
from raw_http2 import (
    ACK,
    INFER,
    LARGEST,
    LIST_SERVICES,
    NOTHING,
    PREFACE,
    REFLECT,
    WATCH,
    Error,
    Setting,
    Type,
    block,
    call,
    data,
    headers,
    infer,
    pieces,
    ping,
    point,
    request,
    settings,
    window_update,
)

pytestmark = pytest.mark.slow

QUICK_PINGS = [
    "--grpc-keepalive-time=200",
    "--grpc-keepalive-permit-without-calls=true",
    "--grpc-http2-max-pings-without-data=0",
]


def is_refused(port):
    """Whether a new connection is not taken, or closed without a word."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as stranger:
            stranger.sendall(PREFACE + settings())
            return not stranger.recv(100)
    except ConnectionError:
        return True


def send_message(peer, stream, message, *, end=True):
    """Send a message in frames, faster than the server could ask for."""
    for piece in pieces(message, 16_384):
        peer.send(data(stream, piece))
    if end:
        peer.send(data(stream, end=True))


def goaway(peer):
    return peer.wait_for(lambda f: f.kind == Type.GOAWAY, "GOAWAY")


@point("RFC 9113 §6.8", "SHOULD", "a server that stops says so with GOAWAY NO_ERROR, and finishes")
def test_a_stopping_server_finishes_what_it_has_begun(connect, start):
    with start() as server:
        peer, idle = connect(port=server.port), connect(port=server.port)
        peer.send(call(1, INFER, infer(1, "slow")))
        peer.expect_alive()  # it has the call
        server.process.send_signal(signal.SIGTERM)
        found = goaway(peer)
        assert found.code == Error.NO_ERROR and int.from_bytes(found.payload[:4]) >= 1
        peer.expect_ok(1)
        peer.wait_end()
        assert goaway(idle).code == Error.NO_ERROR
        idle.wait_end()
        assert server.process.wait(20) == 0


@point("RFC 9113 §6.8", "MUST", "the last GOAWAY names the last stream that was answered")
def test_the_last_goaway_names_the_last_stream_answered(connect, start):
    with start() as server:
        peer = connect(port=server.port)
        peer.send(call(1), call(3, INFER, infer(1, "slow")))
        peer.expect_ok(1)
        server.process.send_signal(signal.SIGTERM)
        peer.expect_ok(3)
        peer.wait_end()
        assert int.from_bytes(peer.find(Type.GOAWAY)[-1].payload[:4]) == 3


@point("RFC 9113 §6.8", "MUST", "a stopping server takes no new connections")
def test_a_stopping_server_takes_no_new_connections(connect, start):
    with start() as server:
        peer = connect(port=server.port)
        peer.send(call(1, INFER, infer(1, "slow")))
        peer.expect_alive()
        server.process.send_signal(signal.SIGTERM)
        goaway(peer)
        assert is_refused(server.port)
        peer.expect_ok(1)


@point("gRPC keepalive", "MUST", "a quiet client is pinged; one that does not answer is dropped")
def test_a_client_that_does_not_answer_pings_is_dropped(connect, start):
    with start(*QUICK_PINGS, "--grpc-keepalive-timeout=300") as server:
        gone = connect(port=server.port, polite=False)
        gone.send(call(1, WATCH))
        gone.wait_end()
        assert [f for f in gone.find(Type.PING) if not f.flags & ACK]


@point("gRPC keepalive", "MUST", "a quiet client that answers its pings stays, and is pinged again")
def test_a_client_that_answers_pings_stays(connect, start):
    with start(*QUICK_PINGS, "--grpc-keepalive-timeout=20000") as server:
        awake = connect(port=server.port)
        awake.send(call(1, WATCH))
        for turn in range(1, 4):  # there is no second ping before the first was answered
            awake.wait_for(
                lambda f, n=turn: len([p for p in awake.find(Type.PING) if not p.flags & ACK]) >= n
            )
        awake.send(call(3))
        awake.expect_ok(3)


@point(
    "gRPC keepalive", "SHOULD", "a client that pings too often: ENHANCE_YOUR_CALM, too_many_pings"
)
def test_a_client_that_pings_too_often_is_sent_away(connect, start):
    with start() as server:
        peer = connect(port=server.port)
        peer.send(*(ping(bytes([n]) * 8) for n in range(20)))
        found = peer.expect_goaway(Error.ENHANCE_YOUR_CALM)
        assert found.payload[8:] == b"too_many_pings"


@point("gRPC keepalive", "MUST", "pings between calls that bring data are no offence")
def test_pings_between_calls_are_no_offence(connect, start):
    with start() as server:
        peer = connect(port=server.port)
        for stream in range(1, 21, 2):
            peer.send(ping(bytes([stream]) * 8), call(stream))
            peer.expect_ok(stream)
        assert not peer.find(Type.GOAWAY)


@point("gRPC connection age", "MUST", "an old connection ends with GOAWAY, its calls first")
def test_an_old_connection_ends(connect, start):
    # Old enough for the call to have come, however busy the machine is.
    flags = ["--grpc-max-connection-age=2000", "--grpc-max-connection-age-grace=5000"]
    with start(*flags) as server:
        peer = connect(port=server.port)
        peer.send(headers(1, block(request(REFLECT))), data(1, LIST_SERVICES))
        assert goaway(peer).code == Error.NO_ERROR
        peer.send(data(1, LIST_SERVICES, end=True))
        peer.expect_ok(1)
        peer.wait_end()


@point("gRPC connection age", "MUST", "calls that outlive the grace of an old connection are cut")
def test_calls_beyond_the_grace_are_cut(connect, start):
    flags = ["--grpc-max-connection-age=200", "--grpc-max-connection-age-grace=300"]
    with start(*flags) as server:
        peer = connect(port=server.port)
        peer.send(call(1, WATCH, NOTHING))
        goaway(peer)
        peer.wait_end()


# --- limits of a connection ---------------------------------------------------------------------


@point("RFC 9113 §10.5", "SHOULD", "a connection that does not come to speak HTTP/2 is closed")
@pytest.mark.parametrize("begin", [b"", PREFACE[:10], PREFACE])
def test_a_connection_that_says_nothing_is_closed(connect, start, begin):
    with start("--grpc-handshake-timeout-secs=0.5") as server:
        silent, user = connect(port=server.port, start=False), connect(port=server.port)
        silent.send(begin)
        silent.wait_end()
        user.send(call(1))
        user.expect_ok(1)


@point("RFC 9113 §10.5", "SHOULD", "connections beyond the limit are closed, those within go on")
def test_connections_beyond_the_limit_are_closed(connect, start):
    with start("--grpc-max-connections=4") as server:
        within = [connect(port=server.port) for _ in range(4)]
        beyond = connect(port=server.port, start=False)
        beyond.send(PREFACE, settings())
        beyond.wait_end()
        for peer in within:
            peer.send(call(1))
            peer.expect_ok(1)
        beyond.close()
        sockets = server.socket_count
        within[0].close()
        assert server.wait_for(lambda: server.socket_count < sockets)
        another = connect(port=server.port)
        another.send(call(1))
        another.expect_ok(1)


@point("RFC 9113 §10.5", "SHOULD", "a client that does not read its answer is cut off after a time")
def test_a_client_that_does_not_read_is_cut_off(connect, start):
    with start("--grpc-write-timeout-secs=0.5") as server:
        user = connect(port=server.port)
        before = server.socket_count
        stalled = connect((Setting.INITIAL_WINDOW_SIZE, LARGEST), port=server.port)
        stalled.send(window_update(0, LARGEST - 65_535), headers(1, block(request(INFER))))
        send_message(stalled, 1, infer(5_000_000))
        stalled.wait_for(lambda f: f.kind == Type.HEADERS)  # and then it reads no more
        assert server.wait_for(lambda: server.socket_count == before)
        user.send(call(1))
        user.expect_ok(1)


@point(
    "gRPC connection age", "SHOULD", "a connection without calls is closed after a time, if asked"
)
def test_an_idle_connection_is_closed(connect, start):
    with start("--grpc-max-connection-idle=300") as server:
        idle, busy = connect(port=server.port), connect(port=server.port)
        busy.send(call(1, WATCH))
        assert goaway(idle).code == Error.NO_ERROR
        idle.wait_end()
        busy.send(call(3))
        busy.expect_ok(3)


@point(
    "RFC 9113 §10.5", "SHOULD", "messages of all calls together are limited, and counted exactly"
)
def test_messages_of_all_calls_are_limited(connect, start):
    with start("--max-inflight-bytes=20000000") as server:
        before, sockets = server.resident_bytes, server.socket_count
        part = b"\0" + struct.pack(">I", 5_000_000) + bytes(2_900_000)
        for _ in range(3):
            hoarder = connect(port=server.port)
            for stream in range(1, 201, 2):  # 290 MB in all
                hoarder.send(headers(stream, block(request(INFER))))
                send_message(hoarder, stream, part, end=False)
            assert hoarder.answer(199).status == 14
            # 20 MB that are held, 64 MB that were freed and are kept, and what lies between them.
            assert server.resident_bytes - before < 150_000_000
            hoarder.close()
            assert server.wait_for(lambda: server.socket_count == sockets)
            # There is room again for a large message.
            user = connect((Setting.INITIAL_WINDOW_SIZE, LARGEST), port=server.port)
            user.send(window_update(0, LARGEST - 65_535), headers(1, block(request(INFER))))
            send_message(user, 1, infer(3_000_000))
            user.expect_ok(1)
            user.close()
