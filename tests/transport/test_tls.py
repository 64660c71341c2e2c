"""Certificates that are exchanged while a server listens; handshakes in memory."""

import ssl
import subprocess

import pytest

from inferd.errors import InvalidConfig
from inferd.transport.tls import LiveTls


@pytest.fixture(scope="module")
def identities(tmp_path_factory):
    """Certificates old and new, each its own authority, with their keys: paths by name."""
    folder = tmp_path_factory.mktemp("identities")
    for name in ("old", "new"):
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}"]
        command = ["openssl", "req", "-x509", *key, *files]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def shake_hands(server, client, name=None):
    """Return the certificate the client was shown (DER) and the protocol agreed on. Raises."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=name),
        server.wrap_bio(there, back, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
    assert not waiting
    return ends[0].getpeercert(binary_form=True), ends[0].selected_alpn_protocol()


def client_trusting_anybody(identity=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if identity:
        context.load_cert_chain(f"{identity}.pem", f"{identity}.key")
    return context


def der(path):
    return ssl.PEM_cert_to_DER_cert(path.read_text())


@pytest.fixture
def live(identities):
    """A LiveTls, and the name of the identity it reads next; clients need the same one."""
    names = ["old"]

    def build():
        if names[-1] == "broken":
            msg = "cannot be used"
            raise InvalidConfig(msg)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["h2"])
        context.load_cert_chain(identities / f"{names[-1]}.pem", identities / f"{names[-1]}.key")
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(identities / f"{names[-1]}.pem")
        return context

    return LiveTls(build), names


@pytest.mark.parametrize("name", [None, "somewhere.example"])
def test_a_new_connection_gets_what_was_read_last(live, identities, name):
    tls, names = live
    listening = tls.context
    for identity in ("old", "new", "old"):
        names.append(identity)
        tls.read()
        client = client_trusting_anybody(identities / identity)
        shown = shake_hands(listening, client, name)
        assert shown == (der(identities / f"{identity}.pem"), "h2")


def test_who_was_trusted_before_is_trusted_no_more(live, identities):
    tls, names = live
    names.append("new")
    tls.read()
    with pytest.raises(ssl.SSLError):
        shake_hands(tls.context, client_trusting_anybody(identities / "old"))
    with pytest.raises(ssl.SSLError):
        shake_hands(tls.context, client_trusting_anybody())


def test_what_cannot_be_used_changes_nothing(live, identities):
    tls, names = live
    names.append("broken")
    with pytest.raises(InvalidConfig):
        tls.read()
    shown, _ = shake_hands(tls.context, client_trusting_anybody(identities / "old"))
    assert shown == der(identities / "old.pem")
