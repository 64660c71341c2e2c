"""Certificates in front, and new ones while HAProxy runs."""

import asyncio
import socket
import ssl
import subprocess

import pytest

from inferd.errors import InvalidConfig
from inferd.route.arrangement import Arranger
from inferd.route.configuration import RouteSettings
from inferd.route.haproxy import Haproxy
from inferd.route.runtime import CommandFailed
from inferd.route.tls import FrontTls


def settings_of(folder):
    cert, key = str(folder / "server.pem"), str(folder / "server.key")
    return RouteSettings("127.0.0.1", tls_cert=cert, tls_key=key)


@pytest.fixture
def files(certificates, tmp_path):
    """A folder with server.pem and server.key, which a test may change."""
    for name in ("server.pem", "server.key"):
        (tmp_path / name).write_bytes((certificates / name).read_bytes() + b"\n\n")
    return tmp_path


def new_certificate(folder):
    """Replace both files, and return the certificate."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=new", "-keyout", "server.key", "-out", "server.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "server.pem").read_text()


def test_without_files_there_is_none(tmp_path):
    tls = FrontTls(RouteSettings("127.0.0.1"), tmp_path)
    assert not tls.is_on
    assert tls.words == ""


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(InvalidConfig, match=r"--tls-cert and --tls-key: .*server\.pem"):
        FrontTls(settings_of(tmp_path), tmp_path)


def test_only_we_can_read_the_key(files):
    FrontTls(settings_of(files), files)
    assert (files / "tls.pem").stat().st_mode & 0o777 == 0o600


def test_new_certificates_count_for_new_connections(program, files):
    async def served(port):
        return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))

    async def test():
        tls = FrontTls(settings_of(files), files)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            haproxy = Haproxy(
                program,
                [listening],
                tls.words,
                files,
                RouteSettings("127.0.0.1", threads=1, max_groups=1),
            )
            try:
                await haproxy.start(Arranger(1, 1).last)
                first = await served(port)
                assert not await tls.renew(haproxy.runtime)
                fresh = new_certificate(files)
                assert await tls.renew(haproxy.runtime)
                second = await served(port)
                (files / "server.key").write_text("nonsense")
                with pytest.raises(CommandFailed, match="HAProxy refused the certificate"):
                    await tls.renew(haproxy.runtime)
                return first, second, fresh, await served(port)
            finally:
                await haproxy.stop(0.0)

    first, second, fresh, third = asyncio.run(test())
    assert first != second
    assert second.split() == fresh.split()
    assert third == second
