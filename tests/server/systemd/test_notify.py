"""What systemd is told, at real sockets, by the part alone and by servers."""

import asyncio
import os
import signal
import socket
import sys

import pytest
from plugins import with_plugins
from running_fleet import running_fleet
from server_process import ON_FREE_PORTS, Process

from inferd.server.systemd.notify import READY, RELOADING, STOPPING, Notifier

DEADLINE_S = 60.0


@pytest.fixture(params=["file", "abstract"])
def manager(request, tmp_path):
    """A socket that is told things, and its address for NOTIFY_SOCKET."""
    name = f"inferd-test-{os.getpid()}"
    where = str(tmp_path / name) if request.param == "file" else f"\0{name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(where)
        one.settimeout(DEADLINE_S)
        yield one, where.replace("\0", "@")


def lines_until(one, last):
    """Return what is told up to the line `last`, without the times and signs of life."""
    found = []
    while last not in found:
        found += one.recv(4096).decode().splitlines()
    return [line for line in found if not line.startswith(("MONOTONIC", "WATCHDOG", "STATUS"))]


def test_what_has_not_changed_is_not_told_again(manager):
    one, address = manager
    environ = {"NOTIFY_SOCKET": address, "OTHER": "1"}
    notifier = Notifier(environ)
    assert environ == {"OTHER": "1"}
    for state, status in ((READY, "a"), (READY, "a"), (READY, "b"), (RELOADING, "b"), (READY, "b")):
        notifier.note(state, status)
    assert [one.recv(100) for _ in range(2)] == [b"READY=1\nSTATUS=a", b"STATUS=b"]
    reloading, time = one.recv(100).splitlines()
    assert (reloading, time.partition(b"=")[0]) == (b"RELOADING=1", b"MONOTONIC_USEC")
    assert int(time.partition(b"=")[2]) > 0
    assert one.recv(100) == b"READY=1"


def test_what_cannot_be_taken_now_is_told_later(manager):
    one, address = manager
    notifier = Notifier({"NOTIFY_SOCKET": address})
    count = 0
    while notifier.note(READY, str(count)):
        count += 1
    assert not notifier.note(STOPPING, "")
    assert [one.recv(100) for _ in range(count)][-1].endswith(f"STATUS={count - 1}".encode())
    assert notifier.note(STOPPING, "")
    assert one.recv(100) == b"STOPPING=1\nSTATUS="


def test_nobody_needs_to_listen(tmp_path):
    for address in ("", "@nobody", str(tmp_path / "nowhere"), "vsock:2:1", "/" + "x" * 200):
        Notifier({"NOTIFY_SOCKET": address}).note(READY)


@pytest.mark.parametrize(
    ("usec", "pid", "watchdog_s"),
    [
        ("3000000", "", 3.0),
        ("3000000", "own", 3.0),
        ("3000000", "1", 0.0),
        ("", "", 0.0),
        ("x", "", 0.0),
        ("0", "", 0.0),
        ("1" * 5000, "", 0.0),
    ],
)
def test_a_watchdog_is_for_one_process(usec, pid, watchdog_s):
    pid = str(os.getpid()) if pid == "own" else pid
    environ = {"WATCHDOG_USEC": usec, "WATCHDOG_PID": pid}
    assert Notifier(environ).watchdog_s == watchdog_s
    assert environ == {}


def test_the_watchdog_is_told_again_and_again(manager):
    one, address = manager
    notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000"})

    async def run():
        notifier.keep(asyncio.get_running_loop())
        for _ in range(3):
            assert await asyncio.to_thread(one.recv, 100) == b"WATCHDOG=1"

    asyncio.run(run())


@pytest.mark.slow
def test_one_process_tells_when_it_is_ready_and_stops(manager, repository, echo):
    one, address = manager
    environ = with_plugins() | {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "100000"}
    server = Process(repository(m=echo()), *ON_FREE_PORTS, environ=environ)
    assert lines_until(one, READY) == [READY]
    assert lines_until(one, "WATCHDOG=1") == []
    server.process.terminate()
    assert lines_until(one, STOPPING) == [STOPPING]
    assert server.end() == 0
    server.process.stdout.close()


@pytest.mark.slow
def test_several_processes_tell_when_all_are_ready_and_while_they_are_replaced(
    manager, repository, echo
):
    one, address = manager
    environ = with_plugins() | {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "100000"}
    with running_fleet(repository(m=echo()), environ=environ) as (server, _):
        assert lines_until(one, READY) == [READY]
        assert lines_until(one, "WATCHDOG=1") == []
        server.process.send_signal(signal.SIGUSR2)
        assert lines_until(one, READY) == [RELOADING, READY]
        server.process.terminate()
        assert lines_until(one, STOPPING) == [STOPPING]
        assert server.end() == 0


# As systemd does it: the sockets are there before the server, which finds them at 3 and above.
ACTIVATED = """
import os, socket, sys
http, grpc = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
kept = [os.dup(one.fileno()) for one in (http, grpc)]
for at, one in enumerate(kept):
    os.dup2(one, 3 + at)
names = sys.argv[1]
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="2", LISTEN_FDNAMES=names)
os.execv(sys.executable, [sys.executable, "-m", "inferd", "serve", *sys.argv[2:]])
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_sockets_that_systemd_opened_are_used(repository, echo, ask, body, workers):
    server = Process(
        "http:grpc",
        repository(m=echo()),
        *("--http-port=1", "--grpc-port=2", "--allow-metrics=false", f"--workers={workers}"),
        command=("-c", ACTIVATED),
    )
    port = server.wait_ready()
    assert port > 1
    assert ask(port, "/v2/models/m/infer", body)[0] == 200
    server.process.terminate()
    assert server.end() == 0
    server.process.stdout.close()


@pytest.mark.slow
def test_a_socket_that_is_for_nothing_ends_the_start():
    server = Process(
        "http:web", sys.prefix, "--workers=2", "--allow-metrics=false", command=("-c", ACTIVATED)
    )
    assert server.end() == 1
    assert "systemd passed the socket 'web' (port " in server.said
    server.process.stdout.close()
