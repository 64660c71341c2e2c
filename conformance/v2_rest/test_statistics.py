"""The statistics extension over REST and gRPC: what a known number of requests adds."""

from typing import Any

import grpc
from conformance.bodies import ok_body
from conformance.checks import check_ok, check_refused
from conformance.points import point
from conformance.rest import Rest
from conformance.rpc import Rpc
from tritonclient.grpc import service_pb2 as pb

ONE_BATCH = point(
    108,
    "SHOULD",
    "GET .../stats after one batch of three: inference_count 3, execution_count 1, success 1",
)
ALL = point(109, "SHOULD", "GET /v2/models/stats: a row for each ready version")
PHASES = ["success", "queue", "compute_input", "compute_infer", "compute_output"]
VERSIONS = {("m", "1"), ("m", "3"), ("mymodel", "1"), ("mymodel", "2"), ("all", "1")}


def told(rest: Rest, path: str = "m/versions/3/stats") -> dict[str, Any]:
    """Return the only row at a path."""
    [row] = check_ok(rest.get(f"/v2/models/{path}"))["model_stats"]
    return dict(row)


def ask_three(rest: Rest) -> None:
    """Send a batch of three to version 3 of m."""
    body = ok_body()
    for tensor in body["inputs"]:
        tensor.update(shape=[3, 4], data=tensor["data"] * 3)
    check_ok(rest.infer("m/versions/3", body))


def executions_of_three(row: dict[str, Any]) -> int:
    """Return how often the model ran with a batch of three."""
    sizes = {one["batch_size"]: one["compute_infer"]["count"] for one in row["batch_stats"]}
    return int(sizes.get(3, 0))


@ONE_BATCH
def test_a_batch_of_three_is_three_inferences_and_one_execution(rest: Rest):
    before = told(rest)
    ask_three(rest)
    after = told(rest)
    assert (after["name"], after["version"]) == ("m", "3")
    assert after["inference_count"] - before["inference_count"] == 3
    assert after["execution_count"] - before["execution_count"] == 1
    assert executions_of_three(after) - executions_of_three(before) == 1
    assert (
        after["last_inference"] >= before["last_inference"] > 1.6e12 or not before["last_inference"]
    )
    for phase in PHASES:
        then, now = (row["inference_stats"][phase] for row in (before, after))
        assert now["count"] - then["count"] == 1, phase
        assert now["ns"] >= then["ns"], phase
    assert after["inference_stats"]["success"]["ns"] > before["inference_stats"]["success"]["ns"]


@ONE_BATCH
def test_what_is_refused_before_it_runs_is_neither_success_nor_failure(rest: Rest):
    before = told(rest)
    check_refused(rest.infer("m/versions/3", {"inputs": []}))
    assert told(rest) == before


@ONE_BATCH
def test_statistics_over_grpc(rest: Rest, rpc: Rpc):
    ask_three(rest)
    row = told(rest)
    [message] = rpc.call(
        "ModelStatistics", pb.ModelStatisticsRequest(name="m", version="3")
    ).model_stats
    assert (message.name, message.version) == ("m", "3")
    assert message.inference_count == row["inference_count"]
    assert message.inference_stats.success.ns == row["inference_stats"]["success"]["ns"]
    assert {one.batch_size for one in message.batch_stats} == {
        one["batch_size"] for one in row["batch_stats"]
    }


@ALL
def test_statistics_of_all_models(rest: Rest):
    rows = check_ok(rest.get("/v2/models/stats"))["model_stats"]
    assert {(row["name"], row["version"]) for row in rows} >= VERSIONS


@ALL
def test_statistics_of_one_model_are_those_of_its_versions(rest: Rest):
    rows = check_ok(rest.get("/v2/models/m/stats"))["model_stats"]
    assert sorted((row["name"], row["version"]) for row in rows) == [("m", "1"), ("m", "3")]


@ALL
def test_statistics_of_all_models_over_grpc(rpc: Rpc):
    rows = rpc.call("ModelStatistics", pb.ModelStatisticsRequest()).model_stats
    assert {(row.name, row.version) for row in rows} >= VERSIONS


@ALL
def test_statistics_of_a_model_that_is_not_there_are_refused(rest: Rest, rpc: Rpc):
    check_refused(rest.get("/v2/models/nope/stats"), naming="nope")
    refusal = rpc.refusal("ModelStatistics", pb.ModelStatisticsRequest(name="nope"))
    assert refusal.code() is grpc.StatusCode.INVALID_ARGUMENT
