"""Requests from a file."""

import json

import pytest

from inferd.bench.recorded import read_requests
from inferd.core.metadata import TensorMetadata
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType

DECLARED = [TensorMetadata("x", DataType.FP32, (-1, 2))]


def request(*values):
    entry = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": values}
    return {"inputs": [entry]}


def test_each_line_is_a_request(tmp_path):
    lines = [request(1, 2), {"time": 3, "request": request(3, 4)}]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    found = read_requests(str(tmp_path / "r.jsonl"), DECLARED)
    assert [one.numpy().tolist() for [one] in found] == [[[1, 2]], [[3, 4]]]


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "has no requests"), ("{}\n{", "line 1: no input"), ("[", "line 1: no JSON")],
)
def test_a_line_that_is_none_is_named(tmp_path, text, said):
    (tmp_path / "r.jsonl").write_text(text)
    with pytest.raises(InvalidRequest, match=said):
        read_requests(str(tmp_path / "r.jsonl"), DECLARED)
    with pytest.raises(InvalidRequest, match="No such file"):
        read_requests(str(tmp_path / "none"), DECLARED)
