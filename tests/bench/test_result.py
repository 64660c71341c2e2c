"""The document of a run."""

import json

import msgspec
from bench_results import UNKNOWN, point, run

from inferd.bench.result import RunResult, as_json


def test_a_document_is_read_again():
    result = run(point("1", errors={"x": 2}), point("2", verdict=UNKNOWN))
    assert msgspec.json.decode(as_json(result), type=RunResult) == result
    assert result.points[0].error_count == 2


def test_scripts_find_percentiles_with_their_intervals():
    document = json.loads(as_json(run(point("1"), point("2", verdict=UNKNOWN))))
    first, second = document["points"]
    median = first["latency"]["percentiles"]["p50"]
    assert median["low"] <= median["value"] <= median["high"] and document["format"] == 1
    assert second["latency"] is None and second["verdict"]["trust"] == "none"
