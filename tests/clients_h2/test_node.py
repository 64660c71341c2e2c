"""@grpc/grpc-js, the gRPC of Node.js, through every kind of call."""

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("grpc_js.js")
TLS = ["ca.pem", "client.key", "client.pem"]


@pytest.fixture(scope="session")
def grpc_js(program, tmp_path_factory):
    """grpc_js(address, what, files...) runs the script there and returns what it found."""
    node, npm = program("node"), program("npm")
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"private": true}')
    install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "@grpc/grpc-js@^1"]
    made = subprocess.run(install, cwd=folder, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"npm cannot install @grpc/grpc-js here: {made.stderr.strip()[-300:]}")
    script = folder / SCRIPT.name
    script.write_bytes(SCRIPT.read_bytes())

    def run(address, what, *files):
        command = [node, str(script), address, what, *map(str, files)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return json.loads(ran.stdout)

    return run


def test_all_kinds_of_calls_work(grpc_js, server):
    found = grpc_js(server.address, "plain")
    assert found["unary"] == [0, 1, 1000, 65_536, 3_000_000]
    assert found["sum"] == "100 100000"
    assert found["repeat"] == [50, 50 * 10_000]
    assert found["chat"] == [f"re: {number}" for number in range(10)]
    assert found["concurrent"] == 200


def test_errors_metadata_deadlines_and_cancels_work(grpc_js, server):
    found = grpc_js(server.address, "edges")
    assert found["fail"] == [3, "100 % wrong: \u00fc\u6a21", "last"]
    assert found["unknown"] == 12
    assert found["late"] == 4
    assert found["cancelled"] == 1
    assert found["initial"] == "first" and found["trailing"] == 256
    assert found["gzip"] == 160_000
    assert found["failLate"] == [3, 3]
    assert server.seen.cancelled.wait(10)
    assert ("x-key", "value") in server.seen.metadata


def test_tls_and_mutual_tls_work(grpc_js, serve, tls_options, certificates):
    files = [certificates / name for name in TLS]
    with serve(**tls_options) as server:
        assert grpc_js(server.address, "plain", files[0])["chat"][0] == "re: 0"
    root = str(certificates / "ca.pem")
    with serve(**tls_options, use_ssl_mutual=True, root_cert=root) as server:
        assert grpc_js(server.address, "plain", *files)["unary"][-1] == 3_000_000


def test_keepalive_works(grpc_js, serve):
    with serve(http2_min_recv_ping_interval_without_data_ms=10) as server:
        assert grpc_js(server.address, "keepalive")["afterwards"] == "on"
