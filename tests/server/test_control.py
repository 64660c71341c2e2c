"""The control socket of a supervisor: alone, and of a server with real processes."""

import asyncio
import json
import os
import signal
import socket
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from fleet_under_load import children_of
from running_fleet import running_fleet, until
from tritonclient.grpc import InferenceServerClient

from inferd.cli.main import main
from inferd.fleet.status import ControlAnswer, ControlRequest, ServerStatus
from inferd.server import control
from inferd.server.control import MAX_CLIENTS, MAX_REQUEST_BYTES, ControlSocket, ask

STATUS = ServerStatus("1", 7, 0.0, {"HTTP": 8000}, [], 2, [])
REQUEST = b'{"do":"status"}\n'


@asynccontextmanager
async def opened(folder, reply=None):
    """Yield a ControlSocket that listens in `folder`, with the same answer for each request."""

    async def same(_request):
        return ControlAnswer(status=STATUS)

    one = ControlSocket(reply or same)
    await one.open(folder, "n")
    try:
        yield one
    finally:
        one.close()


async def sent(path, data, *, reads=True):
    """Return the answer to `data`, or the open connection."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    if not reads:
        return writer
    line = await reader.readline()
    writer.close()
    return msgspec.json.decode(line, type=ControlAnswer) if line else None


def test_several_clients_are_answered_at_once(tmp_path):
    async def run():
        requests = []
        all_there = asyncio.Event()

        async def reply(request):
            requests.append(request)
            if len(requests) == 5:
                all_there.set()
            await all_there.wait()
            return ControlAnswer(status=STATUS)

        async with opened(tmp_path, reply):
            found = [sent(tmp_path / "n.0.control", REQUEST) for _ in range(5)]
            assert await asyncio.gather(*found) == [ControlAnswer(status=STATUS)] * 5
        assert requests == [ControlRequest("status")] * 5

    asyncio.run(run())


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"{}\n",
        b'{"do":"harm"}\n',
        b"\xff\xfe\n",
        b"[" * 4000 + b"\n",
        b"x" * (2 * MAX_REQUEST_BYTES) + b"\n",
    ],
)
def test_what_is_no_request_is_told_so(tmp_path, data):
    async def run():
        async with opened(tmp_path):
            answer = await sent(tmp_path / "n.0.control", data)
            assert answer.error.startswith("no request: ")
            assert answer.status is None

    asyncio.run(run())


def test_who_says_nothing_is_let_go_and_keeps_nobody_out(tmp_path, monkeypatch):
    async def run():
        path = tmp_path / "n.0.control"
        async with opened(tmp_path):
            silent = [await asyncio.open_unix_connection(path) for _ in range(MAX_CLIENTS - 1)]
            assert (await sent(path, REQUEST)).status == STATUS
            silent.append(await asyncio.open_unix_connection(path))
            assert "others are asking" in (await sent(path, REQUEST)).error
            for reader, writer in silent:
                assert await reader.read() == b""
                writer.close()
            assert (await sent(path, REQUEST)).status == STATUS

    monkeypatch.setattr(control, "TIMEOUT_S", 0.2)
    asyncio.run(run())


def test_a_socket_that_was_left_is_replaced_and_one_in_use_is_not(tmp_path):
    async def run():
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(tmp_path / "n.0.control"))
        async with opened(tmp_path), opened(tmp_path):
            names = [path.name for path in sorted(tmp_path.iterdir())]
            assert names == ["n.0.control", "n.1.control"]
            assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600] * 2
            assert (await sent(tmp_path / names[1], REQUEST)).status == STATUS
        assert list(tmp_path.iterdir()) == []

    asyncio.run(run())


@pytest.mark.parametrize("said", [b"", b"no json\n", b"x" * ((1 << 20) + 1)])
def test_what_is_no_answer_is_an_error(tmp_path, said):
    path = tmp_path / "s"

    async def run():
        async def serve(reader, writer):
            await reader.readline()
            writer.write(said)
            writer.close()

        server = await asyncio.start_unix_server(serve, path)
        try:
            with pytest.raises(OSError, match=r"Protocol error|JSON"):
                await asyncio.to_thread(ask, path, ControlRequest("status"))
        finally:
            server.close()

    asyncio.run(run())


# --- a server of several processes ---


def status_of(capsys, port):
    """Return what `inferd status --json` says of the server with this port."""
    assert main(["status", f"--port={port}", "--json"]) == 0
    [status] = json.loads(capsys.readouterr().out)
    return status


def status_from(capsys, port, holds):
    """Wait until `holds(status)`, and return the status."""
    found = []
    until(lambda: holds(found.append(status_of(capsys, port)) or found[-1]))
    return found[-1]


def metrics_of(port):
    """Return the metrics, over a new connection."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return answer.read().decode()


@pytest.mark.slow
def test_the_status_is_that_of_the_processes(repository, echo, broken, capsys):
    models = repository(m=echo(), n=echo(), b=broken)
    with running_fleet(models, "--exit-on-error=false", "--strict-readiness=false") as (one, port):
        pids = children_of(one.process.pid)
        with socket.create_connection(("127.0.0.1", port)):
            status = status_from(
                capsys, port, lambda now: sum(p["connection_count"] for p in now["processes"]) == 1
            )
        assert status["pid"] == one.process.pid
        assert status["ports"].keys() == {"HTTP", "gRPC", "Metrics"}
        assert status["model_counts"] == {"READY": 2, "UNAVAILABLE": 1}
        assert {each["pid"] for each in status["processes"]} == set(pids)
        assert [each["slot"] for each in status["processes"]] == [0, 1]
        assert all(each["rss_bytes"] > 1 << 20 for each in status["processes"])

        os.kill(status["processes"][1]["pid"], signal.SIGKILL)
        status = status_from(
            capsys,
            port,
            lambda now: (
                now["restart_count"] and [p["state"] for p in now["processes"]] == ["ready"] * 2
            ),
        )
        assert [each["restart_count"] for each in status["processes"]] == [0, 1]
        for _ in range(4):  # whichever process answers
            metrics = metrics_of(status["ports"]["Metrics"])
            assert "\ninferd_server_processes 2.0\n" in metrics
            assert "\ninferd_server_process_restarts_total 1\n" in metrics
        status_from(
            capsys, port, lambda now: not any(p["connection_count"] for p in now["processes"])
        )

        assert main(["status", "--port", str(port)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("inferd ") and f"pid {one.process.pid}, since 20" in lines[0]
        assert lines[1].startswith(f"  listens: HTTP {port}, gRPC ")
        assert lines[2] == "  models:  2 READY, 1 UNAVAILABLE"
        assert lines[3].split() == [
            *("process", "pid", "state", "connections", "restarts", "uptime", "rss")
        ]
        assert [line.split()[2:5] for line in lines[4:]] == [
            ["ready", "0", "0"],
            ["ready", "0", "1"],
        ]

        one.process.terminate()
        assert one.end() == 0
    assert main(["status", "--port", str(port)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("inferd status: no server of several processes is running")


@pytest.mark.slow
def test_unix_sockets_are_those_of_all_processes(repository, echo, tmp_path, capsys):
    paths = [str(tmp_path / "http"), str(tmp_path / "grpc")]
    for path in paths:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(path)
    flags = [f"--http-unix-socket={paths[0]}", f"--grpc-unix-socket={paths[1]}"]
    with running_fleet(repository(m=echo()), *flags) as (one, port):
        assert status_of(capsys, port)["sockets"] == paths
        with InferenceServerClient(f"unix:{paths[1]}") as client:
            assert client.is_model_ready("m")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(paths[0])
            client.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        one.process.terminate()
        assert one.end() == 0
    assert [path for path in paths if os.path.exists(path)] == []


@pytest.mark.slow
def test_reload_replaces_all_processes_and_says_how_far_it_is(repository, echo, capsys):
    with running_fleet(repository(m=echo())) as (one, port):
        before = children_of(one.process.pid)
        assert main(["reload", "--port", str(port)]) == 0
        assert capsys.readouterr().out.splitlines() == [
            f"replacing 2 processes of the server with pid {one.process.pid}",
            "1 of 2 replaced",
            "2 of 2 replaced",
        ]
        status = status_from(capsys, port, lambda now: len(now["processes"]) == 2)
        assert not {each["pid"] for each in status["processes"]} & set(before)
        assert status["restart_count"] == 0
        assert status["replacement"] == {
            "number": 1,
            "process_count": 2,
            "replaced_count": 2,
            "state": "done",
        }


@pytest.mark.slow
def test_a_reload_whose_process_does_not_start_leaves_the_others(
    repository, echo, broken, ask, body, capsys
):
    models = repository(m=echo())
    with running_fleet(models, "--exit-on-error=true") as (one, port):
        before = children_of(one.process.pid)
        add_model(models, "broken", broken)
        assert main(["reload", f"--port={port}"]) == 1
        assert "a new process did not start" in capsys.readouterr().err
        assert children_of(one.process.pid) == before
        assert ask(port, "/v2/models/m/infer", body)[0] == 200
        assert status_of(capsys, port)["replacement"]["state"] == "failed"
        (models / "broken" / "config.pbtxt").write_text(echo())
        assert main(["reload", f"--port={port}"]) == 0
        assert not set(children_of(one.process.pid)) & set(before)


def add_model(models, name, text):
    """Add a model to a repository."""
    (Path(models) / name / "1").mkdir(parents=True)
    (Path(models) / name / "config.pbtxt").write_text(text)


@pytest.mark.slow
def test_a_second_reload_while_one_is_under_way_is_refused(repository, echo, capsys):
    with running_fleet(repository(m=echo())) as (one, port):
        os.kill(one.process.pid, signal.SIGUSR2)
        one.wait_for("replacing all processes")
        assert main(["reload", f"--port={port}"]) == 1
        assert capsys.readouterr().err == ("inferd reload: processes are being replaced already\n")
        one.wait_for("all processes have been replaced")
        assert main(["reload", f"--port={port}", "--timeout=0"]) == 1
        assert "not done within 0 s" in capsys.readouterr().err
