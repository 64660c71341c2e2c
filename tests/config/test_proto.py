"""The private descriptor pool of the ModelConfig schema."""

import gc
import subprocess
import sys
import weakref

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass

from inferd.config.proto import (
    MODEL_CONFIG,
    config_descriptors,
    config_pool,
    load_pool,
    message_class,
)

OURS = (
    "from inferd.config.pbtxt import parse_pbtxt\nassert parse_pbtxt('name: \"m\"', '').name == 'm'"
)
THEIRS = "from tritonclient.grpc import model_config_pb2\nmodel_config_pb2.ModelConfig(name='m')"


def test_nothing_enters_the_default_pool():
    program = (
        "from inferd.config.proto import config_pool\n"
        "from google.protobuf import descriptor_pool\n"
        "config_pool()\n"
        "try:\n"
        "    descriptor_pool.Default().FindMessageTypeByName('inference.ModelConfig')\n"
        "except KeyError:\n"
        "    print('clean')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("clean\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("order", [(OURS, THEIRS), (THEIRS, OURS)])
def test_tritonclient_lives_in_the_same_process_in_either_order(order):
    program = "\n".join((*order, OURS))
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_the_schema_is_that_of_the_clients():
    from tritonclient.grpc import model_config_pb2

    ours = config_pool().FindMessageTypeByName(MODEL_CONFIG)
    theirs = model_config_pb2.ModelConfig.DESCRIPTOR
    assert _signature(ours, {}) == _signature(theirs, {})


def test_what_a_pool_holds_is_never_garbage():
    # Else a thread may find it while another's garbage collection takes it to pieces.
    pool = load_pool(config_descriptors())
    of = "inference.ModelQueuePolicy"
    message_type = weakref.ref(GetMessageClass(pool.FindMessageTypeByName(of)))
    gc.collect()
    assert message_type() is not None
    descriptor = pool.FindMessageTypeByName(of)
    things = [*descriptor.fields, *descriptor.enum_types, *descriptor.enum_types[0].values]
    thing = object()
    used_here = sys.getrefcount(thing)
    while things:
        thing = things.pop()
        assert sys.getrefcount(thing) > used_here, thing.name


def test_a_pool_knows_the_files_it_was_given_and_no_others():
    pool = load_pool(config_descriptors())
    assert message_class(pool, MODEL_CONFIG).DESCRIPTOR.full_name == MODEL_CONFIG
    assert pool is not config_pool()
    assert pool is not descriptor_pool.Default()
    with pytest.raises(KeyError):
        load_pool().FindMessageTypeByName(MODEL_CONFIG)


def test_the_descriptor_set_holds_the_one_file():
    [file] = FileDescriptorSet.FromString(config_descriptors()).file
    assert (file.name, file.package, file.syntax) == ("model_config.proto", "inference", "proto3")


def _signature(message, seen):
    """Return every field below `message`: number, type, repetition, oneof and enum values."""
    if message.full_name not in seen:
        seen[message.full_name] = None
        seen[message.full_name] = {
            field.name: (
                field.number,
                field.type,
                field.is_repeated,
                field.containing_oneof and field.containing_oneof.name,
                field.enum_type and {v.name: v.number for v in field.enum_type.values},
                field.message_type and _signature(field.message_type, seen) and None,
            )
            for field in message.fields
        }
    return seen
