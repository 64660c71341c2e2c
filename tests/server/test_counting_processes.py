"""What a server of several processes has counted, while its processes end and are replaced."""

import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from plugins import with_plugins
from prometheus_client.parser import text_string_to_metric_families

from inferd.observe.numbers import ProcessNumbers, encode
from inferd.observe.statistics import Duration
from inferd.server.supervisor import sum_of_ended

pytestmark = pytest.mark.slow

PATIENCE_S = 30
OPTIONS = ["--workers=2", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1"]
OPTIONS += ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
OPTIONS += ["--metrics-config=summary_latencies=true"]


class Server:
    """A server of two processes, and what it has said; `pids` are those of its processes."""

    def __init__(self, *options):
        self.said = ""
        self.supervisor = subprocess.Popen(
            [sys.executable, "-m", "inferd", "serve", *OPTIONS, *map(str, options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=with_plugins(),
        )
        self.port = self._wait_for(r"HTTP .*:(\d+)$")
        self.metrics_port = self._wait_for(r"Metrics .*:(\d+)/metrics$")
        self._wait_for(r"()\bready$")

    def _wait_for(self, pattern):
        """Read until a line has the pattern, and return the number in it."""
        for line in self.supervisor.stdout:
            self.said += line
            if match := re.search(pattern, line):
                return int(match[1] or 0)
        raise AssertionError(self.said)

    @property
    def pids(self):
        return [int(pid) for pid in re.findall(r"has started, pid (\d+)", self.said)][-2:]

    def ask(self, body, count):
        for _ in range(count):
            self.read(self.port, "/v2/models/m/infer", body)

    def read(self, port, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.read()

    def counters(self):
        text = self.read(self.metrics_port, "/metrics").decode()
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if family.type in ("counter", "histogram")
            or sample.name.endswith(("_count", "_sum", "_start_time_seconds"))
        }

    def kill(self, *pids):
        """Kill processes, and wait until others are started in their places."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for _ in pids:
            self._wait_for(r"has started, pid (\d+)")

    def replace(self):
        self.supervisor.send_signal(signal.SIGUSR2)
        self._wait_for(r"()all processes have been replaced")

    def end(self):
        self.supervisor.terminate()
        self.said += self.supervisor.stdout.read()
        self.supervisor.stdout.close()
        return self.supervisor.wait()


@pytest.fixture
def start(repository, echo):
    servers = []

    def run(*options):
        servers.append(Server(repository(m=echo()), *options))
        return servers[-1]

    yield run
    for server in servers:
        assert server.end() == 0, server.said


def answered(counters):
    [count] = [
        value
        for (name, *_), value in counters.items()
        if name == "nv_inference_request_success_total"
    ]
    return count


def none_fell(before, after):
    assert len(before) > 100
    return [name for name, value in before.items() if after[name] < value] == []


def test_numbers_that_cannot_be_read_end_with_their_process(caplog):
    ended = sum_of_ended([encode(ProcessNumbers(calls={"status": Duration(2, 5)}))])
    assert sum_of_ended([ended, b"\x80"]) == ended
    assert sum_of_ended([b"\x80"]) == b""
    assert "what a process has counted is lost" in caplog.text


@pytest.mark.parametrize("all_at_once", [False, True])
def test_what_was_told_is_told_after_processes_are_killed(start, body, all_at_once):
    server = start()
    server.ask(body, 20)
    before = server.counters()
    assert answered(before) == 20
    server.kill(*(server.pids if all_at_once else server.pids[:1]))
    after = server.counters()
    assert answered(after) == 20
    assert none_fell(before, after)
    server.ask(body, 20)
    assert answered(server.counters()) == 40


def test_what_was_told_is_told_after_processes_are_replaced(start, body):
    server = start()
    server.ask(body, 20)
    before = server.counters()
    server.ask(body, 20)
    server.replace()
    after = server.counters()
    assert answered(after) == 40
    assert none_fell(before, after)


def test_a_version_that_was_reloaded_is_counted_as_one_by_processes_that_did_not_see_it(
    start, body, tmp_path
):
    server = start("--model-control-mode=explicit", "--load-model=m")
    server.ask(body, 5)
    config = tmp_path / "models" / "m" / "config.pbtxt"
    config.write_text(config.read_text() + "\n" + 'parameters { key: "new" }')
    server.read(server.port, "/v2/repository/models/m/load", b"")
    server.ask(body, 10)
    assert answered(server.counters()) == 10
    server.kill(server.pids[0])
    server.ask(body, 10)
    assert answered(server.counters()) == 20
    server.kill(*server.pids)
    server.ask(body, 10)
    assert answered(server.counters()) == 30
