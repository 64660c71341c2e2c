"""Requests from a file."""

import base64
import json

import numpy as np
import pytest

from inferd.bench.recorded import read_requests
from inferd.core.metadata import TensorMetadata
from inferd.errors import InvalidRequest
from inferd.observe.payloads.event import REQUEST, PayloadEvent
from inferd.observe.payloads.files import EventTable
from inferd.tensor.dtype import DataType

DECLARED = [TensorMetadata("x", DataType.FP32, (-1, 2))]


def request(*values):
    entry = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": values}
    return {"inputs": [entry]}


def test_each_line_is_a_request(tmp_path):
    lines = [request(1, 2), {"time": 3, "request": request(3, 4)}]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    found = read_requests(str(tmp_path / "r.jsonl"), DECLARED, "m")
    assert [one.numpy().tolist() for [one] in found.inputs] == [[[1, 2]], [[3, 4]]]
    assert found.times_s == []


def test_requests_with_times_are_in_their_order(tmp_path):
    lines = [{"time": 3.5, "request": request(3, 4)}, {"time": 3, "request": request(1, 2)}]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = read_requests(str(tmp_path / "r.jsonl"), DECLARED, "m")
    assert [one.numpy().tolist() for [one] in found.inputs] == [[[1, 2]], [[3, 4]]]
    assert found.times_s == [3, 3.5]


def test_a_payload_log_says_when_requests_came(tmp_path):
    times = ["2026-11-28T11:00:01.500Z", "2026-11-28T11:00:00.250Z"]
    lines = [event(request(at, 2), time=text) for at, text in enumerate(times)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    found = read_requests(str(tmp_path / "log.jsonl"), DECLARED, "m")
    assert [one.numpy().tolist() for [one] in found.inputs] == [[[1, 2]], [[0, 2]]]
    assert found.times_s[1] - found.times_s[0] == 1.25


def test_a_payload_log_may_be_a_table(tmp_path):
    path = tmp_path / "log.parquet"
    table = EventTable(path, 1 << 20, 1)
    table.open()
    for at in range(3):
        body = json.dumps(request(at, 2)).encode()
        size = len(body)
        one = PayloadEvent(str(at), REQUEST, 9.0 - at, "http", "m", "1", body, None, size)
        table.write(one, one.attributes())
    table.close()
    found = read_requests(str(path), DECLARED, "m")
    assert [one.numpy().tolist() for [one] in found.inputs] == [[[2, 2]], [[1, 2]], [[0, 2]]]
    assert found.times_s == [7, 8, 9]


def event(data, model="m", **more):
    kind = "org.kubeflow.serving.inference.request"
    made = {"specversion": "1.0", "id": "1", "type": kind, "modelname": model, **more}
    return made | ({"data": data} if isinstance(data, dict) else {"data_base64": data})


def test_a_payload_log_gives_the_whole_requests_of_the_model(tmp_path):
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "x",
                    "datatype": "FP32",
                    "shape": [1, 2],
                    "parameters": {"binary_data_size": 8},
                }
            ]
        }
    ).encode()
    body = base64.b64encode(head + np.array([5, 6], np.float32).tobytes()).decode()
    lines = [
        event(request(1, 2)),
        event(request(3, 4), model="other"),
        event(body, inferenceheadercontentlength=str(len(head))),
        event(request(7, 8), truncated="true"),
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    found = read_requests(str(tmp_path / "log.jsonl"), DECLARED, "m")
    assert [one.numpy().tolist() for [one] in found.inputs] == [[[1, 2]], [[5, 6]]]
    with pytest.raises(InvalidRequest, match="no whole request of model 'nobody'"):
        read_requests(str(tmp_path / "log.jsonl"), DECLARED, "nobody")
    (tmp_path / "log.jsonl").write_text(json.dumps(event({"inputs": 1})))
    with pytest.raises(InvalidRequest, match=r"log.jsonl:1: "):
        read_requests(str(tmp_path / "log.jsonl"), DECLARED, "m")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no requests"),
        ("{}\n{", "line 1: no input"),
        ("[", "line 1: no JSON"),
        ("[" * 100_000, "line 1: no JSON"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path, text, said):
    (tmp_path / "r.jsonl").write_text(text)
    with pytest.raises(InvalidRequest, match=said):
        read_requests(str(tmp_path / "r.jsonl"), DECLARED, "m")
    with pytest.raises(InvalidRequest, match="No such file"):
        read_requests(str(tmp_path / "none"), DECLARED, "m")
