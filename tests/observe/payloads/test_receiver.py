"""Events on their way to a receiver over HTTP, which may be gone, slow, or close connections."""

import http.client
import socket
import ssl
import threading

import pytest

from inferd.config.options.log import PayloadSettings
from inferd.errors import InvalidConfig
from inferd.observe.payloads.event import REQUEST, PayloadEvent
from inferd.observe.payloads.receiver import EventSender, NotTaken

EVENT = PayloadEvent("i", REQUEST, 0.0, "http", "m", "", b"{}", None, 2)
PATIENCE_S = 10
SILENCE = None
OK = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.fixture
def site():
    """site([answer, ...], ...) answers so on each of its connections, then closes; its URL."""
    threads = []

    def serve(*connections, tls=None):
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(PATIENCE_S)
        seen = []

        def run():
            with listener:
                for answers in connections:
                    client, _ = listener.accept()
                    if tls is not None:
                        client = tls.wrap_socket(client, server_side=True)
                    with client:
                        client.settimeout(PATIENCE_S)
                        for answer in answers:
                            got = b""
                            while not got.endswith(b"\r\n\r\n{}"):
                                more = client.recv(65536)
                                assert more
                                got += more
                            seen.append(got)
                            if answer is SILENCE:
                                assert client.recv(1) == b""
                            else:
                                client.sendall(answer)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        scheme = "http" if tls is None else "https"
        return f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/in", seen

    yield serve
    for thread in threads:
        thread.join()


def send(sender, count=1):
    for _ in range(count):
        sender.write(EVENT, EVENT.attributes())


def test_events_share_a_connection(site):
    url, seen = site([OK, OK])
    sender = EventSender(url)
    sender.open()
    send(sender, 2)
    sender.close()
    assert len(seen) == 2
    assert seen[0].startswith(b"POST /in HTTP/1.1\r\n") and b"ce-id: i\r\n" in seen[0]


def test_a_connection_that_was_closed_meanwhile_is_replaced(site):
    url, seen = site([OK], [OK])
    sender = EventSender(url)
    send(sender, 2)
    sender.close()
    assert len(seen) == 2


def test_an_event_that_is_refused_is_an_error_and_the_next_is_sent(site):
    url, seen = site([b"HTTP/1.1 500 Odd\r\nContent-Length: 3\r\n\r\nabc", OK])
    sender = EventSender(url)
    with pytest.raises(NotTaken, match="the receiver answers 500 Odd"):
        send(sender)
    send(sender)
    sender.close()
    assert len(seen) == 2


def test_a_receiver_that_says_nothing_is_given_up(site):
    url, _ = site([SILENCE], [OK])
    sender = EventSender(url, timeout_s=0.05)
    with pytest.raises(TimeoutError):
        send(sender)
    send(sender)
    sender.close()


def test_an_answer_that_is_none_is_an_error(site):
    url, _ = site([b"nonsense\r\n\r\n"])
    with pytest.raises(http.client.HTTPException):
        send(EventSender(url))


@pytest.mark.parametrize("url", ["ftp://a/", "http://", "http://a:b/", "https:///x"])
def test_a_url_that_cannot_be_used_is_refused(url):
    with pytest.raises(InvalidConfig, match=r"--payload-log: '.*' is no URL"):
        EventSender(url)


def test_a_receiver_may_want_a_certificate_and_have_one_of_an_authority_of_its_own(
    site, certificates
):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    tls.load_verify_locations(certificates / "ca.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    url, seen = site([OK], tls=tls)
    settings = PayloadSettings(
        ca_file=str(certificates / "ca.pem"),
        cert_file=str(certificates / "server.pem"),
        key_file=str(certificates / "server.key"),
    )
    sender = EventSender(url, settings)
    send(sender)
    sender.close()
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("url", "files", "words"),
    [
        (
            "https://a/",
            {"ca_file": "no.pem"},
            r"cannot use the files for TLS \(no.pem\): .*No",
        ),
        ("https://a/", {"cert_file": "key.pem"}, r"cannot use the files for TLS \(key.pem\)"),
        ("http://a/", {"ca_file": "ca.pem"}, "ca-file and cert-file are for a URL with https"),
    ],
)
def test_files_for_tls_that_cannot_be_used_are_refused(tmp_path, monkeypatch, url, files, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key.pem").write_text("nothing")
    with pytest.raises(InvalidConfig, match=rf"^--payload-log: {words}"):
        EventSender(url, PayloadSettings(**files))
