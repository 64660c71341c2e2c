"""Health messages, read with the official classes."""

import pytest
from grpc_health.v1 import health_pb2

from inferd.errors import InvalidRequest
from inferd.wire import grpc_services
from inferd.wire.grpc_services import Serving
from inferd.wire.proto import parse


def test_a_check_names_a_service():
    data = health_pb2.HealthCheckRequest(service="s").SerializeToString()
    assert grpc_services.decode_check_request(data) == "s"
    assert grpc_services.decode_check_request(b"") == ""


def test_garbage_is_invalid():
    with pytest.raises(InvalidRequest):
        grpc_services.decode_check_request(b"\xff")
    with pytest.raises(InvalidRequest):
        grpc_services.decode_list_request(b"\xff")


@pytest.mark.parametrize("status", Serving)
def test_a_status_has_the_official_number(status):
    answer = health_pb2.HealthCheckResponse.FromString(grpc_services.encode_check_response(status))
    assert health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status) == status.name


def test_a_list_has_every_service():
    statuses = {"": Serving.SERVING, "s": Serving.NOT_SERVING}
    answer = parse(
        "grpc.health.v1.HealthListResponse", grpc_services.encode_list_response(statuses)
    )
    assert {name: one.status for name, one in answer.statuses.items()} == {"": 1, "s": 2}
