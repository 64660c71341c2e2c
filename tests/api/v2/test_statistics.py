"""The calls of V2's statistics: HTTP over a real socket, gRPC by bytes alone."""

import asyncio

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.api.call import V2_SERVICE, grpc_handlers
from inferd.api.v2.calls import CALLS
from inferd.errors import InvalidRequest

SECTION = [call for call in CALLS if call.section == "statistics"]


def get(path):
    return f"GET {path} HTTP/1.1\r\n\r\n".encode()


def rows_of(answer):
    assert answer.status == 200
    return {(row["name"], row["version"]): row for row in answer.json["model_stats"]}


async def test_a_request_shows_in_the_statistics_of_its_version(serving, infer):
    async with serving() as site:
        assert (await site.ask(infer())).status == 200
        rows = rows_of(await site.ask(get("/v2/models/id/stats")))
        assert list(rows) == [("id", "1"), ("id", "3")]
        assert rows["id", "3"]["inference_count"] == 1
        assert rows["id", "3"]["inference_stats"]["success"]["count"] == 1
        assert rows["id", "1"]["inference_count"] == 0
        assert list(rows_of(await site.ask(get("/v2/models/id/versions/3/stats")))) == [("id", "3")]


async def test_all_models_are_told_of_and_one_named_stats_is_hidden(serving):
    async with serving() as site:
        names = {name for name, _ in rows_of(await site.ask(get("/v2/models/stats")))}
        assert names == {"id", "a/b c", "held", "failing", "crashing"}


@pytest.mark.parametrize("path", ["/v2/models/nope/stats", "/v2/models/id/versions/9/stats"])
async def test_what_is_not_there_is_a_bad_request(serving, path):
    async with serving() as site:
        answer = await site.ask(get(path))
        assert answer.status == 400
        assert "model" in answer.error


async def test_another_verb_is_not_allowed(serving):
    async with serving() as site:
        answer = await site.ask(b"POST /v2/models/stats HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


# --- over gRPC ---


@pytest.fixture
def ask(models):
    """ask(request) returns the rows the method answers with."""
    engine, _ = models()

    def call(request):
        method = grpc_handlers(SECTION, engine, {})[f"/{V2_SERVICE}/ModelStatistics"]
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
