"""Servers whose processes are replaced, and what clients have under way there meanwhile."""

import json
import os
import signal
import socket
from pathlib import Path

import msgspec
import pytest
from fleet_under_load import children_of
from running_fleet import is_alive, running_fleet, states_of, until
from sequences_under_load import play, write_sums

from inferd.observe.crash.history import Crash, History

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
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


LONG_US = 3600 * 10**6


@pytest.fixture
def add(ask):
    """add(port, id, ...) sends 1 to a sequence; it returns the sum so far, or the status."""

    def send(port, id, *, start=False, end=False):
        parameters = {"sequence_id": id, "sequence_start": start, "sequence_end": end}
        tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}
        request = {"parameters": parameters, "inputs": [tensor]}
        status, answer = ask(port, "/v2/models/sums/infer", json.dumps(request))
        return answer["outputs"][0]["data"][0] if status == 200 else status

    return send


@pytest.fixture
def sums(tmp_path):
    """A repository with a model that adds up what sequences send, at most `idle_us` idle."""

    def make(idle_us):
        write_sums(tmp_path / "models", idle_us)
        return tmp_path / "models"

    return make


def test_sequences_go_on_while_all_processes_are_replaced(sums, add):
    with running_fleet(sums(LONG_US)) as (server, port):
        ids = [*range(1, 9), "a", "b"]
        assert [add(port, id, start=True) for id in ids] == [1] * len(ids)
        pids = set(children_of(server.process.pid))
        server.process.send_signal(signal.SIGUSR2)
        total = 1
        while "draining" not in states_of(server) or total < 4:
            total += 1
            assert [add(port, id) for id in ids] == [total] * len(ids)
        new = [f"{id} again" for id in ids]
        assert [add(port, id, start=True) for id in new] == [1] * len(new)
        assert [add(port, id, end=True) for id in ids] == [total + 1] * len(ids)
        assert [add(port, id, end=True) for id in new] == [2] * len(new)
        server.wait_for("all processes have been replaced")
        assert not pids & set(children_of(server.process.pid))
        assert [add(port, id) for id in ids] == [400] * len(ids)


def test_sequences_under_load_lose_no_step_while_processes_are_replaced():
    counts, log = play(2, 8.0, 4.0)
    assert (counts["wrong"], counts["lost"]) == (0, 0), counts.faults
    assert counts["answered"] > 1000
    assert "all processes have been replaced" in log


def test_sequences_go_on_when_somebody_stops_a_process(sums, add):
    with running_fleet(sums(LONG_US)) as (server, port):
        assert [add(port, id, start=True) for id in range(1, 9)] == [1] * 8
        stopped, _ = children_of(server.process.pid)
        os.kill(stopped, signal.SIGTERM)
        until(lambda: "draining" in states_of(server))
        assert [add(port, id, end=True) for id in range(1, 9)] == [2] * 8
        until(lambda: not is_alive(stopped))
        assert "all processes have been replaced" not in server.said


def test_sequences_that_do_not_end_end_with_the_time_for_it(sums, add):
    with running_fleet(sums(LONG_US), "--exit-timeout-secs=3") as (server, port):
        assert [add(port, id, start=True) for id in range(1, 9)] == [1] * 8
        server.process.send_signal(signal.SIGUSR2)
        server.wait_for("all processes have been replaced")
        assert [add(port, id) for id in range(1, 9)] == [400] * 8
        assert "did not end in time" not in server.said


def test_sequences_that_nobody_goes_on_with_hold_nothing_up(sums, add):
    with running_fleet(sums(100_000), "--exit-timeout-secs=600") as (server, port):
        assert [add(port, id, start=True) for id in range(1, 9)] == [1] * 8
        server.process.send_signal(signal.SIGUSR2)
        server.wait_for("all processes have been replaced")


def test_sequences_do_not_hold_up_the_end_of_the_server(sums, add, draining):
    with running_fleet(sums(LONG_US), "--exit-timeout-secs=600") as (server, port):
        assert [add(port, id, start=True) for id in range(1, 9)] == [1] * 8
        draining(server)
        server.process.terminate()
        assert server.end() == 0


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


def test_what_ended_processes_twice_is_isolated_in_those_that_did_not_end_too(tmp_path, ask):
    with running_fleet(EXAMPLES / "digits/models", f"--crash-record={tmp_path}") as (server, port):
        pids = children_of(server.process.pid)
        name = next(tmp_path.glob("*.0.record")).name.removesuffix(".0.record")
        history = History()
        for _ in range(2):
            history.add(Crash(1e9, "Aborted", [("digits", "1")]))
        (tmp_path / f"{name}.history").write_bytes(msgspec.json.encode(history))
        until(lambda: not set(pids) & set(children_of(server.process.pid)))
        for _ in range(4):
            [row] = ask(port, "/v2/repository/index", b"")[1]
            assert "it runs in a worker" in row["reason"]
        digit = (EXAMPLES / "digits/digit.json").read_text()
        assert ask(port, "/v2/models/digits/infer", digit)[0] == 200
