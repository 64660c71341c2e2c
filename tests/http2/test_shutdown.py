"""The end of a connection from the server's side: drain, age, keepalive, ping policy."""

import signal
import socket

import pytest
from raw_http2 import (
    ACK,
    INFER,
    LIST_SERVICES,
    NOTHING,
    PREFACE,
    REFLECT,
    WATCH,
    Error,
    Type,
    block,
    call,
    data,
    headers,
    infer,
    ping,
    point,
    request,
    settings,
)

pytestmark = pytest.mark.slow


def is_refused(port):
    """Whether a new connection is not taken, or closed without a word."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
            stranger.sendall(PREFACE + settings())
            return not stranger.recv(100)
    except ConnectionError:
        return True


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
    flags = ["--grpc-keepalive-time=200", "--grpc-keepalive-timeout=300"]
    flags += ["--grpc-keepalive-permit-without-calls=true", "--grpc-http2-max-pings-without-data=0"]
    with start(*flags) as server:
        awake, gone = connect(port=server.port), connect(port=server.port, polite=False)
        awake.send(call(1, WATCH))
        gone.send(call(1, WATCH))
        for turn in range(1, 4):
            awake.wait_for(
                lambda f, n=turn: len([p for p in awake.find(Type.PING) if not p.flags & ACK]) >= n
            )
        gone.wait_end()
        assert [f for f in gone.find(Type.PING) if not f.flags & ACK]
        awake.send(call(3))
        awake.expect_ok(3)


@point("gRPC keepalive", "SHOULD", "a client that pings too often: ENHANCE_YOUR_CALM, too_many_pings")
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
    flags = ["--grpc-max-connection-age=300", "--grpc-max-connection-age-grace=5000"]
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
