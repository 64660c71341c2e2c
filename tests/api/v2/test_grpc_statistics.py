"""The gRPC method of the statistics extension: bytes in, buffers or an error out."""

import asyncio

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.api.v2.grpc_statistics import StatisticsMethods
from inferd.errors import InvalidRequest


@pytest.fixture
def ask(models):
    """ask(request) returns the rows the method answers with."""
    engine, _ = models()

    def call(request):
        method = StatisticsMethods(engine).methods()["ModelStatistics"]
        answer = asyncio.run(method.handler(request.SerializeToString(), None))
        return pb.ModelStatisticsResponse.FromString(b"".join(answer)).model_stats

    return call


@pytest.mark.parametrize(
    ("name", "version", "versions"), [("id", "", ["1", "3"]), ("id", "3", ["3"])]
)
def test_a_model_and_a_version_may_be_named(ask, name, version, versions):
    rows = ask(pb.ModelStatisticsRequest(name=name, version=version))
    assert [(row.name, row.version) for row in rows] == [("id", one) for one in versions]


def test_without_a_name_all_models_are_told_of(ask):
    assert {row.name for row in ask(pb.ModelStatisticsRequest())} >= {"id", "held", "failing"}


@pytest.mark.parametrize(("name", "version"), [("nope", ""), ("id", "9")])
def test_what_is_not_there_is_an_invalid_request(ask, name, version):
    with pytest.raises(InvalidRequest, match=name):
        ask(pb.ModelStatisticsRequest(name=name, version=version))
