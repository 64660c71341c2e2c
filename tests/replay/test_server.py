"""The server that gets logged requests again: what is sent, and what is told where it is none."""

import socket
import threading

import pytest
from patience import wait_until

from inferd.errors import InvalidConfig
from inferd.replay.entries import LoggedBody, LoggedRequest
from inferd.replay.server import ReplayTarget, Unreachable

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
PATIENCE_S = 10


@pytest.fixture
def site():
    """site([answer, ...], ...) answers so on each of its connections, then closes: (URL, heads)."""
    threads = []

    def serve(*connections):
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(PATIENCE_S)
        heads = []

        def run():
            with listener:
                for answers in connections:
                    client, _ = listener.accept()
                    with client:
                        client.settimeout(PATIENCE_S)
                        for answer in answers:
                            heads.append(client.recv(65536))
                            while heads[-1][:4] == b"POST" and heads[-1][-2:] != b"{}":
                                more = client.recv(65536)
                                assert more
                                heads[-1] += more
                            if answer is None:
                                assert client.recv(1) == b""  # the client gives up
                            else:
                                client.sendall(answer)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}", heads

    yield serve
    for thread in threads:
        thread.join()


@pytest.fixture
def target():
    """target(url) is the server there, closed at the end."""
    made = []

    def make(url, timeout_s=PATIENCE_S, **headers):
        made.append(ReplayTarget(url, headers, timeout_s))
        return made[-1]

    yield make
    for one in made:
        one.close()


def request(json_size=None, version="", model="a b"):
    body = LoggedBody(b"{}", json_size, False)
    return LoggedRequest("log:1", 0.0, "i", model, version, body, [])


def test_a_request_is_sent_as_it_was(site, target):
    url, heads = site([OK, OK])
    one = target(f"{url}/prefix/", **{"X-Api-Key": "k"})
    assert one.send(request()).status == 200
    assert one.send(request(2, "7")).body == LoggedBody(b"{}", None, False)
    assert heads[0].startswith(b"POST /prefix/v2/models/a%20b/infer HTTP/1.1\r\n")
    assert b"X-Api-Key: k\r\n" in heads[0] and b"Content-Type: application/json\r\n" in heads[0]
    assert heads[1].startswith(b"POST /prefix/v2/models/a%20b/versions/7/infer HTTP/1.1\r\n")
    assert b"Inference-Header-Content-Length: 2\r\n" in heads[1]


def test_a_connection_that_was_closed_meanwhile_is_replaced(site, target):
    url, heads = site([OK], [OK])
    one = target(url)
    one.send(request())
    wait_until(one._has_ended)
    one.send(request())
    assert len(heads) == 2


def test_a_request_whose_connection_ends_is_not_sent_twice(site, target):
    url, heads = site([OK, b""], [OK])
    one = target(url)
    one.send(request())
    with pytest.raises(Unreachable, match="it may have executed the request"):
        one.send(request())
    assert len(heads) == 2
    one.send(request())  # the next one gets a connection of its own


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "is no server of V2"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "is not ready: it answers 503"),
        (b"\x00\x00\x12\x04\x00\r\n", "does not speak HTTP/1.1; is this its HTTP port"),
        (None, "does not answer in time; --timeout"),
    ],
)
def test_a_server_of_another_kind_is_told(site, target, answer, text):
    url, _ = site([answer])
    with pytest.raises(Unreachable, match=text):
        target(url, timeout_s=0.1).check()


def test_a_port_where_nobody_listens_is_told(target):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(Unreachable, match="nothing listens there; is the server started"):
        target(f"127.0.0.1:{port}").check()


def test_a_server_without_tls_is_told(site, target):
    url, _ = site([b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n"])
    with pytest.raises(Unreachable, match="it does not speak TLS; try http://"):
        target(url.replace("http", "https")).check()


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a:b", ""])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(InvalidConfig, match="expected http://HOST:PORT"):
        ReplayTarget(url, {}, 1.0)


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://a..b",
        f"http://{'a' * 70}",
        "http://h/ü",
        "http://\udcff",
        "http://:1",
    ],
)
def test_addresses_that_cannot_be_used_are_refused(url):
    with pytest.raises(InvalidConfig, match="is no address of a server"):
        ReplayTarget(url, {}, 1)
