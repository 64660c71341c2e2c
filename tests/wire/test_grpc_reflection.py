"""Reflection answers, read with the official classes."""

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2 as official

from inferd.errors import InvalidRequest
from inferd.wire.grpc_services import VERSIONS, answer_reflection

SERVICES = ["inference.GRPCInferenceService", "grpc.health.v1.Health"]


def answer(version="v1alpha", **question):
    request = official.ServerReflectionRequest(host="h", **question)
    data = answer_reflection(version, request.SerializeToString(), SERVICES)
    response = official.ServerReflectionResponse.FromString(data)
    assert response.valid_host == "h" and response.original_request == request
    return response


def files(response):
    return [
        FileDescriptorProto.FromString(data)
        for data in response.file_descriptor_response.file_descriptor_proto
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_services_are_listed(version):
    listed = answer(version, list_services="").list_services_response
    assert [service.name for service in listed.service] == SERVICES


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "symbol",
    [
        "inference.GRPCInferenceService",
        "inference.GRPCInferenceService.ModelInfer",
        "inference.ModelInferRequest.InferInputTensor",
    ],
)
def test_a_symbol_gives_its_file_and_the_files_it_imports(version, symbol):
    found = files(answer(version, file_containing_symbol=symbol))
    assert [file.name for file in found] == ["grpc_service.proto", "model_config.proto"]
    assert [len(service.method) for service in found[0].service] == [20]


def test_a_file_is_found_by_its_name():
    [file] = files(answer(file_by_filename="health.proto"))
    assert file.package == "grpc.health.v1"


@pytest.mark.parametrize(
    "question",
    [
        {"file_by_filename": "nope.proto"},
        {"file_containing_symbol": "inference.Nope"},
        {"file_containing_symbol": ""},
        {"file_containing_symbol": "inference.GRPCInferenceService.Nope"},
        {"all_extension_numbers_of_type": "inference.Nope"},
        {"file_containing_extension": {"containing_type": "x", "extension_number": 1}},
    ],
)
def test_what_is_not_known_is_not_found(question):
    assert answer(**question).error_response.error_code == 5


def test_our_messages_have_no_extensions():
    found = answer(all_extension_numbers_of_type="inference.ModelConfig")
    assert found.all_extension_numbers_response.base_type_name == "inference.ModelConfig"
    assert not found.all_extension_numbers_response.extension_number


def test_a_request_that_asks_nothing_is_not_implemented():
    assert answer().error_response.error_code == 12


def test_garbage_is_invalid():
    with pytest.raises(InvalidRequest):
        answer_reflection("v1", b"\xff", SERVICES)
