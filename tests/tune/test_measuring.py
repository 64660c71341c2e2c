"""A server under test, and what is made of what was measured."""

import os

import pytest

from inferd.bench.figures import Distribution, Estimate
from inferd.bench.result import PointResult
from inferd.bench.saturation import Trust, TrustVerdict
from inferd.errors import LoadFailed, Unavailable
from inferd.tune.measuring import TuneLoad, cost_of, memory_of, served


def test_a_server_has_the_model_with_the_configuration_that_is_tried(repository):
    config = (
        '{"backend":"identity","max_batch_size":9,'
        '"input":[{"name":"x","data_type":"TYPE_FP32","dims":[2]}],'
        '"output":[{"name":"y","data_type":"TYPE_FP32","dims":[2]}]}'
    )
    for load, scheme in ((TuneLoad(), "http"), (TuneLoad(grpc=True), "grpc")):
        with served(repository, "slow", config, load) as client:
            assert client.url.startswith(scheme)
            assert client.config("slow")["max_batch_size"] == 9


def test_a_configuration_that_does_not_load_is_told_in_the_servers_words(repository):
    with (
        pytest.raises(LoadFailed, match="nonsense"),
        served(repository, "slow", '{"backend":"nonsense"}', TuneLoad()),
    ):
        pass


def test_a_server_that_does_not_start_is_told(tmp_path):
    with (
        pytest.raises(Unavailable, match="does not start"),
        served(tmp_path / "none", "slow", None, TuneLoad()),
    ):
        pass


def result(latency, reason=""):
    verdict = TrustVerdict(Trust.FULL if latency else Trust.NONE, 1.0, 0.1, reason)
    return PointResult("16", 16, 0.0, 1.0, 100, 100.0, {}, verdict, latency)


def test_the_slowest_answer_stands_for_a_quantile_of_which_too_few_tell():
    known = {"p50": Estimate(2000.0, 1900.0, 2100.0), "p90": Estimate(3000.0, 2900.0, 3100.0)}
    cost = cost_of(result(Distribution(10, 2100.0, 1000.0, 5000.0, known, [])), 7.0)
    assert cost.latency_ms == {"p50": 2.0, "p90": 3.0, "p95": 5.0, "p99": 5.0}
    assert (cost.per_s, cost.memory_bytes) == (100.0, 7.0)


def test_without_a_latency_settings_cannot_be_told_apart():
    with pytest.raises(Unavailable, match=r"its limit.*cannot be told apart"):
        cost_of(result(None, "the load generator is at its limit"), 0.0)


def test_memory_is_that_of_processes_that_are_there():
    assert memory_of([os.getpid(), 2**30]) > 1e6
