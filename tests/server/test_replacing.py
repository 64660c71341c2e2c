"""Servers whose processes are replaced, and what clients have under way there meanwhile."""

import json
import signal
import socket

import pytest
from running_fleet import running_fleet, states_of, until

pytestmark = pytest.mark.slow

EXPLICIT = ["--model-control-mode=explicit", "--load-model=*"]


class Held:
    """A POST of which all but the last byte has been sent: the process that has it waits for it."""

    def __init__(self, port, path, body):
        self._body = body
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        self._socket.sendall(f"{head}Connection: close\r\n\r\n{body[:-1]}".encode())

    def finish(self):
        """Send the rest, and return the status and the body of the answer."""
        self._socket.sendall(self._body[-1:].encode())
        answer = b""
        while received := self._socket.recv(65536):
            answer += received
        self._socket.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), body


@pytest.fixture
def draining():
    """draining(server) replaces its processes, and returns when one of the old ones drains."""

    def run(server):
        server.process.send_signal(signal.SIGUSR2)
        until(lambda: "draining" in states_of(server))

    return run


def test_changes_asked_of_a_process_that_is_replaced_are_made_in_all(
    repository, echo, ask, draining
):
    trace = json.dumps({"trace_rate": "77"})
    with running_fleet(repository(m=echo()), *EXPLICIT) as (server, port):
        held = [
            Held(port, path, body)
            for path, body in (
                ("/v2/repository/models/m/unload", "{}"),
                ("/v2/trace/setting", trace),
            )
            for _ in range(2)  # one reaches each process
        ]
        draining(server)
        assert [one.finish()[0] for one in held] == [200] * 4
        server.wait_for("all processes have been replaced")
        assert ask(port, "/v2/models/m/ready")[0] == 400
        assert ask(port, "/v2/trace/setting")[1]["trace_rate"] == "77"


def test_changes_do_not_wait_for_a_process_that_is_replaced(repository, echo, ask, draining):
    with running_fleet(repository(m=echo()), *EXPLICIT) as (server, port):
        held = [Held(port, "/v2/models/m/unknown", "{}") for _ in range(2)]
        draining(server)
        assert ask(port, "/v2/repository/models/m/unload", "{}")[0] == 200
        assert "draining" in states_of(server)
        assert ask(port, "/v2/models/m/ready")[0] == 400
        assert [one.finish()[0] for one in held] == [404] * 2
        server.wait_for("all processes have been replaced")
        assert ask(port, "/v2/models/m/ready")[0] == 400
