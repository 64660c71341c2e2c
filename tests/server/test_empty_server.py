"""A server without a model: when it is ready, told over every protocol."""

import http.client
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from server_thread import server_in_thread
from tritonclient.grpc import InferenceServerClient

from inferd.config.server import ServerConfig
from inferd.core.metadata import IndexEntry
from inferd.server.process import why_empty

REASON = "the server is not ready for inference: it has no model to serve"


@pytest.fixture
def ready_of():
    """ready_of(server) tells what REST, gRPC, grpc.health.v1 and TRTIS say of it."""

    def tell(server):
        target = f"127.0.0.1:{server.grpc_port}"
        with InferenceServerClient(target) as client, grpc.insecure_channel(target) as channel:
            assert client.is_server_live()
            asked = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=30
            )
            return [
                status(server, "/v2/health/ready") == 200,
                client.is_server_ready(),
                asked.status == health_pb2.HealthCheckResponse.SERVING,
                status(server, "/api/health/ready") == 200,
            ]

    return tell


def status(server, path):
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def config(path, **more):
    given = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, "repository_poll_secs": 0.0}
    return ServerConfig(**(given | {"model_repository": (str(path),)} | more))


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_without_a_model_it_is_live_and_not_ready(repository, ready_of, ask, mode):
    with server_in_thread(config(repository(), model_control_mode=mode)) as server:
        assert ready_of(server) == [False] * 4
        code, body = ask(server.http_port, "/v2/health/ready")
        assert (code, body["error"]) == (400, REASON)


@pytest.mark.parametrize(
    "options",
    [{"allow_empty": True}, {"strict_readiness": False}, {"model_control_mode": "explicit"}],
)
def test_where_that_is_accepted_it_is_ready(repository, ready_of, options):
    with server_in_thread(config(repository(), **options)) as server:
        assert ready_of(server) == [True] * 4


def test_the_first_model_that_polling_finds_makes_it_ready(repository, echo, ready_of, ask):
    options = {"model_control_mode": "poll", "repository_poll_secs": 0.01}
    with server_in_thread(config(repository(), **options)) as server:
        assert ready_of(server) == [False] * 4
        repository(m=echo())
        while ask(server.http_port, "/v2/health/ready")[0] != 200:
            time.sleep(0.001)
        assert ready_of(server) == [True] * 4


def test_allow_empty_does_not_excuse_a_model_that_failed(repository, broken, ready_of):
    with server_in_thread(config(repository(m=broken), allow_empty=True)) as server:
        assert ready_of(server) == [False] * 4


@pytest.mark.parametrize(
    ("options", "begin"),
    [
        ({}, "not ready: "),
        ({"model_control_mode": "poll"}, "not ready: "),  # with an interval of 0, nobody looks
        (
            {"model_control_mode": "poll", "repository_poll_secs": 1.0},
            "not ready until a model appears: ",
        ),
    ],
)
def test_the_log_says_where_no_model_was_found(options, begin):
    assert why_empty(config("a\nb", **options), []) == (
        f"{begin}no model was found in a\\nb; --allow-empty accepts that"
    )
    assert why_empty(config("a\nb", **options), [IndexEntry("m")]) == (
        f"{begin}no model could be read in a\\nb; --allow-empty accepts that"
    )
