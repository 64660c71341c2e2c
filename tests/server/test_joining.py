"""What clients get of models of which nobody knows whether they keep rows apart: over sockets."""

import asyncio
import json
import sys
import urllib.request
from pathlib import Path

import pytest
from patience import PATIENCE_S

from inferd.aio.event_loop import new_event_loop
from inferd.config.server import ServerConfig
from inferd.server.server import Server

CLIENTS = 12
CONFIG = """
backend: "{backend}"
max_batch_size: 4
dynamic_batching {{ {batching} }}
input {{ name: "X" data_type: TYPE_FP32 dims: 1 }}
output {{ name: "Y" data_type: TYPE_FP32 dims: 1 }}
parameters {{ key: "rows" value: {{ string_value: "{rows}" }} }}
"""
FORCED = 'parameters {{ key: "inferd_join" value: {{ string_value: "{}" }} }}'


class Asked:
    """What clients got while a server served one model, and what the server says of it after."""

    def __init__(self):
        self.count = self.wrong = self.end = 0
        self.parameters = {}
        self.metrics = {}
        self.index_reason = ""
        self.largest = 0

    async def client(self, server, number, is_over):
        """Ask for other values than all other clients do."""
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
        value = number * 1_000_000
        while not is_over(self, server.engine):
            value += 1
            given = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [value]}
            body = json.dumps({"inputs": [given]}).encode()
            writer.write(
                b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
                % (len(body), body)
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            answer = json.loads(await reader.readexactly(length))
            self.count += 1
            self.wrong += answer["outputs"][0]["data"] != [-value]
        writer.close()

    def look(self, server):
        """Ask the server what it did, and why."""

        def get(path, port=server.http_port, body=None):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", body, PATIENCE_S) as got:
                return got.read()

        self.parameters = json.loads(get("/v2/models/m/config"))["parameters"]
        [row] = json.loads(get("/v2/repository/index", body=b"{}"))
        self.index_reason = row.get("reason", "")
        [stats] = json.loads(get("/v2/models/m/stats"))["model_stats"]
        self.largest = max(one["batch_size"] for one in stats["batch_stats"])
        lines = get("/metrics", server.metrics_port).decode().splitlines()
        self.metrics = {
            line.partition("{")[0]: float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith(("inferd_join", "inferd_model_joined", "inferd_request_rerun"))
        }


def serve(tmp_path, is_over, backend="rows", rows="apart", batching="", more=""):
    """Return what CLIENTS got, each asking for other values, until `is_over(asked, engine)`."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    text = CONFIG.format(backend=backend, rows=rows, batching=batching) + more
    (tmp_path / "m" / "config.pbtxt").write_text(text)
    asked = Asked()

    async def whole():
        config = ServerConfig(
            http_port=0, grpc_port=0, metrics_port=0, model_repository=(str(tmp_path),)
        )
        async with Server(config) as server:
            async with asyncio.timeout(4 * PATIENCE_S):
                clients = (asked.client(server, number, is_over) for number in range(CLIENTS))
                await asyncio.gather(*clients)
            await asyncio.to_thread(asked.look, server)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(whole())
    return asked


@pytest.fixture(autouse=True)
def _plugins_in_workers(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support"))


def after(count):
    return lambda asked, _engine: asked.count >= count


def state_of(asked):
    return asked.parameters["inferd_joined"]["string_value"]


def reason_of(asked):
    return asked.parameters["inferd_joining_reason"]["string_value"]


@pytest.mark.parametrize("backend", ["rows", pytest.param("hosted_rows", marks=pytest.mark.slow)])
def test_a_model_that_mixes_rows_gives_no_client_a_wrong_answer_and_is_found_out(tmp_path, backend):
    asked = serve(tmp_path, after(400), backend, "mixed")
    assert (asked.wrong, asked.largest) == (0, 1)
    assert state_of(asked) == "alone"
    assert "a request got another answer than alone: output 'Y'" in reason_of(asked)
    assert asked.index_reason == f"its requests are not joined: {reason_of(asked)}"
    assert asked.metrics["inferd_model_joined"] == 0
    assert asked.metrics["inferd_join_disagreement_total"] > 0


def test_requests_that_a_test_holds_back_are_compared_as_well(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "4")
    asked = serve(tmp_path, after(400), rows="mixed")
    assert (asked.count >= 400, asked.wrong) == (True, 0)
    assert state_of(asked) in ("alone", "compared")


def test_a_model_that_answers_at_random_is_told_from_it(tmp_path):
    asked = serve(tmp_path, after(300), rows="random")
    assert state_of(asked) == "alone"
    assert "two answers to the same request" in reason_of(asked)


@pytest.mark.slow
def test_a_model_that_keeps_rows_apart_is_joined_once_that_was_seen(tmp_path):
    def is_over(asked, engine):
        is_joined = engine.find("m", "").shown_config().parameters["inferd_joined"] == "joined"
        if is_joined and not asked.end:
            asked.end = asked.count + 3000
        return 0 < asked.end <= asked.count

    asked = serve(tmp_path, is_over, "hosted_rows")
    sys.stdout.write(f"{asked.count} requests, {asked.metrics}\n")
    assert (asked.wrong, asked.largest) == (0, 4)
    assert asked.metrics["inferd_join_comparison_total"] >= 3000
    assert asked.metrics["inferd_join_disagreement_total"] == 0
    assert asked.metrics["inferd_model_joined"] == 1
    assert asked.index_reason == ""


def test_who_gives_numbers_gets_what_they_ask_for(tmp_path):
    asked = serve(tmp_path, after(300), rows="mixed", batching="max_queue_delay_microseconds: 5000")
    assert asked.largest > 1
    assert (state_of(asked), reason_of(asked)) == ("joined", "dynamic_batching gives numbers")
    assert asked.metrics["inferd_join_comparison_total"] == 0


@pytest.mark.parametrize(("word", "largest"), [("always", 4), ("never", 1)])
def test_a_parameter_decides(tmp_path, word, largest):
    asked = serve(tmp_path, after(300), more=FORCED.format(word))
    assert asked.wrong == 0
    assert asked.largest == largest
    assert reason_of(asked) == f"parameter inferd_join is {word}"
