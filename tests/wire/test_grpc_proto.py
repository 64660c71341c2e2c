"""Our descriptors: those of the protocol, and in nobody else's pool."""

import subprocess
import sys

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import Default
from tritonclient.grpc import service_pb2

from inferd.wire.proto import message_class, pool

OURS = "from inferd.wire.proto import message_class; message_class('inference.ModelInferRequest')()"
OURS_WITH_SOCKETS = "import inferd.transport.grpc_server"
THEIRS = "import tritonclient.grpc; tritonclient.grpc.service_pb2.ModelInferRequest()"
OTHERS = "import grpc_health.v1.health_pb2, grpc_reflection.v1alpha.reflection_pb2"


def fields(descriptor):
    return {
        (field.number, field.name, field.type, field.is_repeated, field.containing_oneof is None)
        for field in descriptor.fields
    }


def descriptors(file):
    found = {}
    pending = list(file.message_types_by_name.values())
    while pending:
        descriptor = pending.pop()
        found[descriptor.full_name] = descriptor
        pending += descriptor.nested_types
    return found


def test_every_message_and_rpc_is_the_one_tritons_client_has():
    theirs = service_pb2.DESCRIPTOR
    ours = pool().FindFileByName("grpc_service.proto")
    ours_by_name = descriptors(ours)
    for name, descriptor in descriptors(theirs).items():
        assert fields(ours_by_name[name]) == fields(descriptor), name
    assert set(ours_by_name) == set(descriptors(theirs))
    ours_proto, theirs_proto = (
        descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb) for file in (ours, theirs)
    )
    assert {
        (rpc.name, rpc.input_type, rpc.output_type, rpc.client_streaming, rpc.server_streaming)
        for rpc in ours_proto.service[0].method
    } == {
        (rpc.name, rpc.input_type, rpc.output_type, rpc.client_streaming, rpc.server_streaming)
        for rpc in theirs_proto.service[0].method
    }


def test_our_classes_are_not_those_of_the_default_pool():
    assert pool() is not Default()
    assert message_class("inference.ModelInferRequest") is not service_pb2.ModelInferRequest


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [
        (OURS, OURS_WITH_SOCKETS, THEIRS, OTHERS),
        (THEIRS, OTHERS, OURS_WITH_SOCKETS, OURS),
    ],
    ids=["ours first", "theirs first"],
)
def test_ours_and_theirs_live_in_one_process(order):
    subprocess.run([sys.executable, "-c", "\n".join(order)], check=True, timeout=60)


@pytest.mark.slow
def test_nothing_of_ours_enters_the_default_pool():
    check = """
from google.protobuf.descriptor_pool import Default
for name in ("grpc_service.proto", "model_config.proto", "health.proto"):
    try:
        Default().FindFileByName(name)
    except KeyError:
        continue
    raise SystemExit(name)
"""
    subprocess.run([sys.executable, "-c", OURS + check], check=True, timeout=60)
