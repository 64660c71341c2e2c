"""Servers that are not there, are of another kind, or send what no server should: each is said."""

import contextlib
import socket
import ssl
import threading
import time

import numpy as np
import pytest
from scripted import ScriptedServer, answer

from inferd.client import BadAnswer, ConnectFailed, ConnectionLost, DeadlineExceeded

X = {"x": np.zeros(4, np.float32)}
ONCE = {"retries": 0, "timeout_s": 20}


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_no_server(kind, scheme):
    with (
        kind(f"{scheme}://127.0.0.1:{closed_port()}", **ONCE) as client,
        pytest.raises(ConnectFailed, match=r"no server listens at|cannot connect to"),
    ):
        client.is_live()


def test_the_port_of_the_other_protocol(kind, served):
    rest_at_grpc = served.grpc_url.replace("grpc", "http")
    with kind(rest_at_grpc, **ONCE) as client, pytest.raises(BadAnswer, match="write grpc://"):
        client.is_live()
    grpc_at_rest = served.http_url.replace("http", "grpc")
    with kind(grpc_at_rest, **ONCE) as client, pytest.raises(BadAnswer, match="write http://"):
        client.is_live()


def test_tls_where_there_is_none(kind, served, protocol):
    url = served.url(protocol).replace("://", "s://")
    with kind(url, **ONCE) as client, pytest.raises(ConnectFailed, match="no TLS there"):
        client.is_live()


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_no_tls_where_there_is(kind, scheme, certificates):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with pytest.raises(ssl.SSLError):
                context.wrap_socket(connection, server_side=True)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        with kind(url, **ONCE) as client, pytest.raises((BadAnswer, ConnectionLost)):
            client.is_live()
        thread.join()


PAGE = answer(200, b"<html>hello</html>", "Content-Type: text/html")


@pytest.mark.parametrize(
    ("sent", "error", "text"),
    [
        (PAGE, BadAnswer, "another kind of server"),
        (answer(200, b"[1, 2]"), BadAnswer, "another kind of server"),
        (answer(200, b""), BadAnswer, "another kind of server"),
        (answer(301, b"", "Location: https://elsewhere/"), BadAnswer, "301 https://elsewhere/"),
        (answer(204), BadAnswer, "status 204"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", BadAnswer, "SSH-2.0"),
        (b"HTTP/9.9 200 OK\r\n\r\n", BadAnswer, "status line"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", BadAnswer, "header line"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", BadAnswer, "length '-1'"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999\r\n\r\n",
            BadAnswer,
            "max_answer_bytes",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", BadAnswer, "two"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", BadAnswer, "coding"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", BadAnswer, "chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n", BadAnswer, "longer"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000, BadAnswer, "more than 65536 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", ConnectionLost, "97 bytes are miss"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", ConnectionLost, "before its answer was complete"),
        (b"HT", ConnectionLost, "before its answer was complete"),
        (None, ConnectionLost, "without an answer"),
    ],
)
def test_answers_that_are_none_over_rest(kind, sent, error, text):
    with (
        ScriptedServer(sent, closes=True) as server,
        kind(server.url, **ONCE) as client,
        pytest.raises(error, match=text),
    ):
        client.server_metadata()


DOCUMENT = b'{"model_name":"m","outputs":[{"name":"y","shape":[%b],"datatype":"FP32",%b}]}'


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "cannot be read"),
        (b'{"outputs":[]}', "not an inference response"),
        (DOCUMENT % (b"2", b'"data":[1]'), "cannot be read"),
        (DOCUMENT % (b"2", b'"data":["a","b"]'), "cannot be read"),
        (DOCUMENT % (b"1", b'"parameters":{"binary_data_size":8}'), "cannot be read"),
        (DOCUMENT.replace(b"FP32", b"FP99") % (b"1", b'"data":[1]'), "FP99"),
        (DOCUMENT % (b"99999999999999999999", b'"data":[1]'), "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b'{"model_name":"m","outputs":' + b"[" * 100_000, "cannot be read"),
    ],
)
def test_inferences_that_are_none(kind, body, text):
    with (
        ScriptedServer(answer(200, body)) as server,
        kind(server.url, binary=True, **ONCE) as client,
        pytest.raises(BadAnswer, match=text),
    ):
        client.infer("m", X)


def test_binary_data_of_the_wrong_size(kind):
    head = DOCUMENT % (b"2", b'"parameters":{"binary_data_size":8}')
    for data, header in (
        (b"1234567", len(head)),
        (b"123456789", len(head)),
        (b"12345678", len(head) + 100),
        (b"12345678", "x"),
    ):
        sent = answer(200, head + data, f"Inference-Header-Content-Length: {header}")
        with (
            ScriptedServer(sent) as server,
            kind(server.url, binary=True, **ONCE) as client,
            pytest.raises(BadAnswer, match="cannot be read"),
        ):
            client.infer("m", X)


@pytest.mark.parametrize("body", [b'{"detail":[{"msg":"no"}]}', b"plain no", b"", b'"no"', b"\xff"])
def test_errors_of_other_servers_keep_their_text(kind, body):
    from inferd.client import InvalidArgument

    with (
        ScriptedServer(answer(422, body)) as server,
        kind(server.url, binary=True, **ONCE) as client,
        pytest.raises(InvalidArgument) as found,
    ):
        client.infer("m", X)
    assert found.value.reason == "422"
    assert found.value.message
    if b"no" in body:
        assert "no" in found.value.message


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_server_that_says_nothing_is_given_up(kind, scheme):
    with ScriptedServer(ScriptedServer.HANG, greets=True) as server:
        url = server.url.replace("http", scheme)
        with (
            kind(url, timeout_s=0.05) as client,
            pytest.raises(DeadlineExceeded, match="timeout_s"),
        ):
            client.is_live()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_never_stops_to_send_is_given_up(kind, scheme, certificates):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        folder = certificates if scheme == "https" else None
        thread = threading.Thread(target=flood, args=[listener, folder])
        thread.start()
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        options = {"ca_file": str(certificates / "ca.pem")} if folder else {}
        with kind(url, timeout_s=0.3, retries=0, **options) as client:
            started = time.monotonic()
            with pytest.raises(DeadlineExceeded):
                client.is_live()
            assert time.monotonic() - started < FLOOD_S
        thread.join()


FLOOD_S = 4


def flood(listener, certificates):
    """Send interim answers without an end, to one client."""
    until = time.monotonic() + FLOOD_S
    connection, _ = listener.accept()
    if certificates:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        connection = context.wrap_socket(connection, server_side=True)
    with connection, contextlib.suppress(OSError):
        connection.recv(65536)
        while time.monotonic() < until:
            connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000)


def test_a_server_that_reads_nothing_is_given_up(kind, protocol):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"{protocol}://127.0.0.1:{listener.getsockname()[1]}"
        with kind(url, timeout_s=0.1, binary=True) as client, pytest.raises(DeadlineExceeded):
            client.infer("m", {"x": np.zeros(10_000_000, np.float32)})


@pytest.mark.parametrize(
    ("sent", "error", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", BadAnswer, "write http://"),
        (b"\x00\x00\x00\x00\x00\x00\x00\x00\x00", BadAnswer, "not answer with HTTP/2"),
        (b"\x15\x03\x01\x00\x02\x02\x46", BadAnswer, "write grpcs://"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", ConnectionLost, "closed the connection"),
        (b"\x00\x00\x05\x04\x00\x00\x00\x00\x00abcde", BadAnswer, "rule of HTTP/2"),
        (
            b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\xff\xff\x01\x04\x00\x00\x00\x01",
            BadAnswer,
            "65535 bytes",
        ),
        (
            b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\x00\x01\x01\x04\x00\x00\x00\x01\xff",
            BadAnswer,
            "rule of HTTP/2",
        ),
        (
            b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88",
            BadAnswer,
            "not as gRPC",
        ),
        (
            b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
            + b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\0\0\0\7",
            ConnectionLost,
            "REFUSED_STREAM",
        ),
        (
            b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
            b"\x00\x00\x09\x07\x00\x00\x00\x00\x00\0\0\0\0\0\0\0\0x",
            ConnectionLost,
            "closes the connection",
        ),
        (
            b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
            b"\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88"
            b"\x00\x00\x05\x00\x00\x00\x00\x00\x01\x00\xff\xff\xff\xff",
            BadAnswer,
            "max_answer_bytes",
        ),
        (
            b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
            b"\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88"
            b"\x00\x00\x05\x00\x00\x00\x00\x00\x01\x01\x00\x00\x00\x01",
            BadAnswer,
            "compressed",
        ),
    ],
)
def test_answers_that_are_none_over_grpc(kind, sent, error, text):
    with (
        ScriptedServer(sent, greets=True, closes=True) as server,
        kind(server.url.replace("http", "grpc"), **ONCE) as client,
        pytest.raises(error, match=text),
    ):
        client.is_live()


def test_small_answers_in_chunks_and_until_the_end(kind):
    body = b'{"name":"s","version":"1","extensions":[]}'
    chunks = b"".join(b"%x;e=1\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:]))
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nA: b\r\n\r\n"
    )
    until_closed = b"HTTP/1.0 200 OK\r\n\r\n" + body
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + answer(200, body)
    with ScriptedServer(chunked, interim) as server, kind(server.url, **ONCE) as client:
        assert client.server_metadata().name == "s"
        assert client.server_metadata().name == "s"
        assert server.connections == 1
    with ScriptedServer(until_closed, closes=True) as server, kind(server.url, **ONCE) as client:
        assert client.server_metadata().name == "s"
        assert client.server_metadata().name == "s"
        assert server.connections == 2
