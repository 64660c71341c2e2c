"""Certificates that are exchanged while a server listens; handshakes in memory."""

import ssl
import subprocess
from contextlib import suppress

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
    end = connected(server, client, name)
    return end.getpeercert(binary_form=True), end.selected_alpn_protocol()


def connected(server, client, name=None, session=None):
    """Return the client's end after a handshake, which may resume `session`. Raises."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=name, session=session),
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
    # A ticket of TLS 1.3 comes after the handshake.
    with suppress(ssl.SSLWantReadError):
        ends[0].read()
    return ends[0]


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

    # The file that is read as the authorities' is another than that which `build` reads.
    authorities = identities / "authorities.pem"
    authorities.write_bytes((identities / "old.pem").read_bytes())
    return LiveTls(build, str(authorities)), names


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


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed_until_the_authorities_change(live, identities, version):
    tls, names = live
    client = client_trusting_anybody(identities / "old")
    client.maximum_version = version
    session = connected(tls.context, client).session
    tls.read()
    assert connected(tls.context, client, session=session).session_reused
    # Now they are others: the client would not be let in with its certificate.
    names.append("new")
    (identities / "authorities.pem").write_bytes((identities / "new.pem").read_bytes())
    tls.read()
    with pytest.raises(ssl.SSLError):
        connected(tls.context, client, session=session)
    client = client_trusting_anybody(identities / "new")
    assert not connected(tls.context, client).session_reused


def test_what_cannot_be_used_changes_nothing(live, identities):
    tls, names = live
    names.append("broken")
    with pytest.raises(InvalidConfig):
        tls.read()
    shown, _ = shake_hands(tls.context, client_trusting_anybody(identities / "old"))
    assert shown == der(identities / "old.pem")
