"""Certificates that change while the server runs: every port shows the new one."""

import shutil
import socket
import ssl
import subprocess
import time

import pytest
from server_thread import server_in_thread

from inferd.config.server import ServerConfig
from inferd.server.tls import tls_files


@pytest.fixture
def files(certificates, tmp_path):
    """Copies of the server's certificate and key, to be exchanged."""
    return [shutil.copy(certificates / name, tmp_path) for name in ("server.pem", "server.key")]


def renew(files, folder):
    """Write a certificate of another key, and return it (DER)."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *key, "-subj", "/CN=renewed", "-keyout", "k", "-out", "c"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    for made, path in zip(("c", "k"), files, strict=True):
        shutil.copy(folder / made, path)
    return shown_by_file(files)


def shown_by_file(files):
    with open(files[0]) as file:
        return ssl.PEM_cert_to_DER_cert(file.read())


def shown_on(port):
    """The certificate (DER) a new connection is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain) as secure,
    ):
        return secure.getpeercert(binary_form=True)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["own", "grpcio"])
def test_a_renewed_certificate_is_shown_on_both_ports(files, tmp_path, transport):
    given = {
        f"{protocol}_{name}": value
        for protocol in ("http", "grpc")
        for name, value in zip(
            ("use_ssl", "server_cert", "server_key"), (True, *files), strict=True
        )
    }
    config = ServerConfig(http_port=0, grpc_port=0, grpc_transport=transport, **given)
    with server_in_thread(config) as server:
        ports = (server.http_port, server.grpc_port)
        assert [shown_on(port) for port in ports] == [shown_by_file(files)] * 2
        renewed = renew(files, tmp_path)
        deadline = time.monotonic() + 30
        while [shown_on(port) for port in ports] != [renewed] * 2:
            assert time.monotonic() < deadline


def test_the_files_of_a_port_are_known():
    given = {"server_cert": "c", "server_key": "k"}
    for protocol in ("http", "grpc"):
        named = {f"{protocol}_{name}": value for name, value in given.items()}
        mutual = {f"{protocol}_use_ssl_mutual": True, f"{protocol}_root_cert": "r"}
        assert tls_files(ServerConfig(**named), protocol) == []
        secure = ServerConfig(**named, **{f"{protocol}_use_ssl": True})
        assert tls_files(secure, protocol) == ["c", "k"]
        assert tls_files(ServerConfig(**named, **mutual), protocol) == ["c", "k", "r"]
