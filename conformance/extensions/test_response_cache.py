"""The response cache: what a request like one before it costs, and what makes it another one."""

import random
from typing import Any

from conformance.bodies import ok_body
from conformance.checks import check_ok, values
from conformance.points import point
from conformance.rest import Rest


def new_body(**fields: Any) -> dict[str, Any]:
    """Return a request that no server has seen."""
    body = ok_body(**fields)
    for tensor in body["inputs"]:
        tensor["data"] = [float(random.randrange(2**20)) for _ in tensor["data"]]
    return body


def told(rest: Rest) -> dict[str, int]:
    """Return the counts of model kept."""
    [row] = check_ok(rest.get("/v2/models/kept/stats"))["model_stats"]
    stats = {name: one["count"] for name, one in row["inference_stats"].items()}
    return {**stats, "inference": row["inference_count"], "execution": row["execution_count"]}


@point(
    "S230",
    "SHOULD",
    "response_cache, the second of two equal requests: success, queue and cache_hit count it, "
    "inference_count and execution_count do not",
)
def test_an_equal_request_is_answered_without_the_model(rest: Rest):
    body = new_body()
    before = told(rest)
    with rest.on_one_connection() as kept:  # a server of several processes has several caches
        first = values(kept.infer("kept", body), "OUTPUT0")
        assert values(kept.infer("kept", body), "OUTPUT0") == first
    more = {name: count - before[name] for name, count in told(rest).items()}
    assert more == {
        "success": 2, "queue": 2, "cache_hit": 1, "cache_miss": 1, "fail": 0, "inference": 1,
        "execution": 1, "compute_input": 1, "compute_infer": 1, "compute_output": 1,
    }  # fmt: skip


@point("S231", "MUST", "response_cache, one output and then all: the second answer has all")
def test_a_request_for_more_outputs_gets_them(rest: Rest):
    body = new_body()
    one = check_ok(rest.infer("kept", body | {"outputs": [{"name": "OUTPUT1"}]}))
    assert [output["name"] for output in one["outputs"]] == ["OUTPUT1"]
    both = check_ok(rest.infer("kept", body))
    assert [output["name"] for output in both["outputs"]] == ["OUTPUT0", "OUTPUT1"]
