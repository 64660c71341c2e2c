"""A server of several processes, with helpers to see what its processes do."""

import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from fleet_under_load import children_of
from server_process import ON_FREE_PORTS, Process

from inferd.fleet.status import ControlRequest
from inferd.server.control import SUFFIX, ask

DEADLINE_S = 60.0


@contextmanager
def running_fleet(*arguments, workers=2, **how):
    """Yield a server that is ready, and its HTTP port; nothing of it is left at the end."""
    server = Process(*arguments, *ON_FREE_PORTS, f"--workers={workers}", **how)
    try:
        port = int(server.wait_for(r"is live at http://127\.0\.0\.1:(\d+) and ")[1])
        server.wait_for(r"\bready$")
        yield server, port
    finally:
        left = children_of(server.process.pid) if server.process.poll() is None else []
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()
        until(lambda: not any(map(is_alive, left)))


def until(holds):
    """Wait until `holds()` is true, and return that; fail when it takes too long."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(0.001)
    return pytest.fail("it takes too long")


def is_alive(pid):
    """Return whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def folder_of_server():
    """Return the folder in which servers of these tests have their control sockets."""
    return Path(os.environ["XDG_RUNTIME_DIR"]) / "inferd"


def states_of(server):
    """Return what the processes of a server do, as `inferd status` shows it."""
    for path in folder_of_server().glob(f"*{SUFFIX}"):
        with suppress(OSError):  # left by one that has been killed
            status = ask(path, ControlRequest("status")).status
            if status.pid == server.process.pid:
                return [one.state for one in status.processes]
    return []
