"""What the dashboard shows of whole servers under load, beside what their statistics say."""

import http.client
import json
import os
import signal
import threading
from contextlib import contextmanager, suppress
from itertools import pairwise

import pytest
from running_fleet import running_fleet, until
from server_process import ON_FREE_PORTS, Process
from server_thread import server_in_thread

from inferd.config.options.access import make_key
from inferd.config.pbtxt import parse_pbtxt
from inferd.config.server import ServerConfig

TENSOR = {"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [7.0]}
BODY = json.dumps({"inputs": [TENSOR]}).encode()
FAULTY = 'backend: "faulty" parameters { key: "fault" value: { string_value: "%s" } }'
ENSEMBLE = """
platform: "ensemble"
input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }
ensemble_scheduling {
  step { model_name: "m" model_version: -1
    input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "between" } }
  step { model_name: "n" model_version: -1
    input_map { key: "INPUT0" value: "between" } output_map { key: "OUTPUT0" value: "OUTPUT0" } }
}
"""

WORKER = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_output({"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]})
        config.set_max_batch_size(0)
        return config

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", one.inputs()[0].as_numpy())])
            for one in requests
        ]
"""


def events(port, topics, headers=None, **more):
    """Return the first event of each topic, by its name."""
    query = "".join(f"&{name}={value}" for name, value in more.items())
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(
            "GET", f"/ui/events?topics={topics}&once=1{query}", headers=headers or {}
        )
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        return dict(parsed(answer.read().decode()))
    finally:
        connection.close()


def parsed(text):
    """Yield the name and the data of each event in a text."""
    for block in text.split("\n\n"):
        if block and not block.startswith(":"):
            name, data = block.split("\n")
            yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def ask_often(port, times, model="m", body=BODY, clients=4):
    """Have clients send requests at the same time, each so many over a connection of its own."""

    def client():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for _ in range(times):
            connection.request("POST", f"/v2/models/{model}/infer", body)
            connection.getresponse().read()
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return clients * times


@contextmanager
def reading(port, topics):
    """Yield the list to which a reader adds the events that it hears."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", f"/ui/events?topics={topics}")
    answer = connection.getresponse()
    heard = []

    def read():
        block = ""
        with suppress(OSError, http.client.HTTPException):  # it is cut off at the end
            while line := answer.readline().decode():
                block += line
                if line == "\n":
                    heard.extend(parsed(block))
                    block = ""

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield heard
    finally:
        connection.sock.shutdown(2)
        thread.join()
        connection.close()


def statistics(ask, port, model="m"):
    """Return what the statistics extension says of a model."""
    _, told = ask(port, f"/v2/models/{model}/stats")
    return told["model_stats"][0]


def row_of(port, model="m"):
    """Return the row of a model."""
    [row] = [row for row in events(port, "models")["models"]["rows"] if row["name"] == model]
    return row


def succeeded(columns):
    return sum(columns["second"]["success"])


@pytest.fixture
def serving(repository):
    """serving(name=config) runs a server, as long as the test lasts, and returns its port."""
    running = []

    def serve(*, config=None, **models):
        given = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, "strict_readiness": False}
        given |= {"model_repository": (str(repository(**models)),)} | (config or {})
        server = server_in_thread(ServerConfig(**given))
        running.append(server)
        return server.__enter__().http_port

    yield serve
    for server in running:
        server.__exit__(None, None, None)


def test_sums_are_those_of_the_statistics_and_of_the_requests(serving, echo, ask):
    port = serving(m=echo(), bad=FAULTY % "raise_error")
    with reading(port, "overview,models") as heard:
        count = ask_often(port, 200)
        failures = ask_often(port, 5, "bad")
        until(lambda: succeeded(events(port, "overview")["history"]) == count)
        until(lambda: sum(successes_in(heard)) == count)
    history = events(port, "overview")["history"]["second"]
    assert sum(history["failure"]) == failures
    assert {len(values) for values in history.values()} == {len(history["time"])}
    assert all(after - before >= 1000 for before, after in pairwise(history["time"]))
    stats = statistics(ask, port)["inference_stats"]
    row = row_of(port)
    assert row["success"] == stats["success"]["count"] == count
    assert row_of(port, "bad")["failure"] == failures
    rows = [row for name, data in heard if name == "models" for row in data["rows"]]
    assert [row["success"] for row in rows if row["name"] == "m"][-1] == count


def successes_in(heard):
    """Return the answered requests of each second that a reader has heard of."""
    found = {}
    for name, data in list(heard):
        if name == "tick" and data["row"]:
            found[data["row"]["time"]] = data["row"]["success"]
        elif name in ("history", "rows"):
            second = data["second"]
            found |= dict(zip(second["time"], second["success"], strict=True))
    return found.values()


def test_percentiles_lie_in_the_buckets_of_the_requests_whose_times_add_up(serving, echo, ask):
    port = serving(m=echo())
    count = ask_often(port, 100)
    shown = until(lambda: (found := events(port, "model", model="m")["model"])["p50"] and found)
    shown = until(
        lambda: (
            sum((found := events(port, "model", model="m")["model"])["latency"]["counts"]) == count
            and found
        )
    )
    bounds, counts = shown["latency"]["bounds"], shown["latency"]["counts"]
    success_ns = statistics(ask, port)["inference_stats"]["success"]["ns"]
    below = sum(bound * many for bound, many in zip(bounds, counts, strict=False))
    above = sum(bound * many for bound, many in zip(bounds[1:], counts, strict=True))
    assert below <= success_ns <= above
    for level, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99")):
        seen, at = 0, -1
        while seen < level * count:
            at += 1
            seen += counts[at]
        assert bounds[at] <= shown[name] < bounds[at + 1]
        middle = (bounds[at] + bounds[at + 1]) / 2
        assert bounds[at + 1] - middle <= shown["latency"]["error"] * middle * 1.01


def test_what_a_configuration_file_has_is_told(serving, echo):
    port = serving(m=echo())
    assert events(port, "model", model="m")["model"]["written"] == sorted(
        parse_pbtxt(echo(), "c").written
    )


def test_failures_have_their_text_and_reason(serving, echo):
    port = serving(m=echo(), bad=FAULTY % "raise_error")
    ask_often(port, 3, "bad", clients=1)
    body = json.dumps({"id": "<b>r7</b>", "inputs": [TENSOR]}).encode()
    ask_often(port, 1, "bad", body, clients=1)
    rows = events(port, "requests")["requests"]["rows"]
    assert [row["id"] for row in rows] == ["", "", "", "<b>r7</b>"]
    last = rows[-1]
    assert (last["model"], last["version"], last["status"]) == ("bad", "1", "failed")
    assert (last["reason"], last["pid"], last["batch_size"]) == ("BACKEND", os.getpid(), 1)
    assert "bad" in last["error"]
    assert last["took"] > 0
    shown = events(port, "model", model="bad")["model"]
    assert shown["failures"] == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 4, "OTHER": 0}
    assert [error["text"] for error in shown["errors"]] == [last["error"]] * 4
    assert shown["errors"][0]["id"] == "<b>r7</b>"


def test_models_that_failed_to_load_have_the_reason_in_full(serving, echo, broken):
    port = serving(m=echo(), bad=broken)
    row = row_of(port, "bad")
    assert row["state"] == "UNAVAILABLE"
    assert row["reason"] == "model 'bad' fails to load, as its fault 'load' says"
    until(lambda: events(port, "overview")["tick"]["row"])
    assert events(port, "overview")["tick"]["models"] == {
        "ready": 1,
        "loading": 0,
        "failed": 1,
        "unloaded": 0,
    }


def test_the_steps_of_an_ensemble_have_their_times(serving, echo):
    port = serving(m=echo(), n=echo(), whole=ENSEMBLE)
    count = ask_often(port, 20, "whole")
    shown = until(
        lambda: (
            (found := events(port, "model", model="whole")["model"])["steps"][0]["count"] == count
            and found
        )
    )
    assert [(step["model"], step["version"]) for step in shown["steps"]] == [("m", "1"), ("n", "1")]
    assert [step["count"] for step in shown["steps"]] == [count, count]
    assert all(step["mean"] > 0 for step in shown["steps"])
    assert sum(step["mean"] for step in shown["steps"]) <= shown["infer"]


def test_sequences_under_way_are_counted(serving, echo):
    port = serving(m=echo() + "sequence_batching { max_sequence_idle_microseconds: 60000000 }")
    for flag, count in (("sequence_start", 1), ("sequence_end", 0)):
        parameters = {"sequence_id": 7, flag: True}
        body = json.dumps({"parameters": parameters, "inputs": [TENSOR]}).encode()
        ask_often(port, 1, body=body, clients=1)
        until(lambda: events(port, "model", model="m")["model"]["sequences"] == count)  # noqa: B023


def test_a_model_in_a_worker_has_the_memory_and_the_cpu_of_its_process(repository):
    models = repository(m='backend: "python"')
    (models / "m" / "1" / "model.py").write_text(WORKER)
    server = Process(models, *ON_FREE_PORTS)
    try:
        port = server.wait_ready()
        assert 10 << 20 < row_of(port)["memory"] < 1 << 30
        ask_often(port, 3, clients=2)
        tick = until(
            lambda: (
                (tick := events(port, "overview")["tick"])["row"]
                and tick["row"]["memory"] > row_of(port)["memory"] + (10 << 20)
                and tick
            )
        )
        assert tick["processes"][0]["memory"] == tick["row"]["memory"]
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()


@pytest.mark.parametrize("name", ["<script>alert(1)<", "a b'c\"", "event: tick"])
def test_hostile_names_of_models_are_data(serving, echo, name):
    port = serving(**{name: echo()})
    rows = events(port, "models")["models"]["rows"]
    assert [row["name"] for row in rows] == [name]


def test_no_key_is_in_any_view(serving, echo, tmp_path):
    keys = tmp_path / "keys"
    key, line = make_key("clerk")
    keys.write_text(f"{line}\n")
    config = {"api_key_file": str(keys), "log_verbose": 9}
    port = serving(config=config, m=echo())
    headers = {"authorization": f"Bearer {key}"}
    found = events(port, "overview,models,log,requests,model", headers, model="m")
    assert len(found) == 6
    assert key not in json.dumps(found)


def test_lines_of_the_log_are_shown(repository, echo, broken):
    server = Process(repository(m=echo(), bad=broken), *ON_FREE_PORTS, "--strict-readiness=false")
    try:
        port = server.wait_ready()
        lines = events(port, "log")["log"]["lines"]
        assert {line["pid"] for line in lines} == {server.process.pid}
        assert any("fails to load" in line["text"] and line["level"] != "info" for line in lines)
        server.process.send_signal(signal.SIGHUP)  # it opens its log anew
        server.wait_for("the log was opened again")
        later = until(lambda: (more := events(port, "log")["log"]["lines"])[len(lines) :] and more)
        assert later[: len(lines)] == lines
        assert later[len(lines)]["text"] == "the log was opened again"
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()


def tick_of_others(port, pids):
    """Return a tick once a process has taken the place of one of `pids`, None before."""
    with suppress(ConnectionError):  # one that is killed cuts its connections
        tick = events(port, "overview")["tick"]
        found = {one["pid"] for one in tick["processes"]}
        if tick["lost_history"] and len(found) == len(pids) and found != pids:
            return tick
    return None


@pytest.mark.slow
def test_processes_of_a_server_are_added_and_one_that_dies_leaves_what_it_counted(
    repository, echo, ask
):
    models = repository(m=echo(), bad=FAULTY % "raise_error")
    with running_fleet(models, workers=2) as (server, port):
        count = ask_often(port, 100, clients=8)
        ask_often(port, 5, "bad", clients=8)
        until(lambda: succeeded(events(port, "overview")["history"]) == count)
        found = events(port, "overview,models,requests,log")
        processes = found["tick"]["processes"]
        pids = {one["pid"] for one in processes}
        assert len(pids) == 2
        assert found["tick"]["lost_history"] is False
        assert {row["pid"] for row in found["requests"]["rows"]} == pids
        starter = server.process.pid
        assert {line["pid"] for line in found["log"]["lines"]} == {*pids, starter}
        assert (
            row_of(port)["success"] == statistics(ask, port)["inference_stats"]["success"]["count"]
        )
        shown = events(port, "model", model="m")["model"]
        assert sum(shown["latency"]["counts"]) == count
        assert row_of(port, "bad")["failure"] == 40
        os.kill(max(pids), signal.SIGKILL)
        tick = until(lambda: tick_of_others(port, pids))
        lines = events(port, "log")["log"]["lines"]
        assert any("SIGKILL" in line["text"] for line in lines if line["pid"] == starter)
        assert min(pids) in {one["pid"] for one in tick["processes"]}
        for _ in range(4):  # whichever process is asked
            assert row_of(port)["success"] == count
            assert row_of(port, "bad")["failure"] == 40
        count += ask_often(port, 20, clients=8)
        until(lambda: row_of(port)["success"] == count)
        assert statistics(ask, port)["inference_stats"]["success"]["count"] == count


@pytest.mark.slow
def test_a_thousand_models_are_shown_and_only_those_that_were_asked_change(serving, echo):
    port = serving(**{f"m{number}": echo() for number in range(1000)})
    with reading(port, "models,overview") as heard:
        until(lambda: heard)
        ask_often(port, 10, "m500")
        until(
            lambda: any(
                row["success"] == 40
                for name, data in list(heard)
                if name == "models"
                for row in data["rows"]
            )
        )
    several = [data for name, data in heard if name == "models"]
    assert (several[0]["all"], len(several[0]["rows"])) == (True, 1000)
    changed = {row["name"] for data in several[1:] for row in data["rows"]}
    assert changed == {"m500"}
