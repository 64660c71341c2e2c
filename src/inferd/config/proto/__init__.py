"""The schema of ModelConfig: its descriptor set, and the private pools for its messages.

Other libraries in the process (tritonclient, say) register files and messages of the same names
in protobuf's default pool. inferd registers nothing there, so both coexist in any order.
"""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

MODEL_CONFIG = "inference.ModelConfig"
"""The full name of the message that config.pbtxt holds."""

_retained: list[Any] = []
"""Descriptors and message classes of all pools.

protobuf caches them by address without holding a reference. A thread could find an object there
that garbage collection in another thread is about to free, which crashes the process. So all of
them are kept alive for good.
"""


def config_descriptors() -> bytes:
    """Return the serialized FileDescriptorSet of model_config.proto."""
    return resources.files(__name__).joinpath("model_config.binpb").read_bytes()


def load_pool(*descriptor_sets: bytes) -> DescriptorPool:
    """Return a new pool with the files of `descriptor_sets`, which have imported files first."""
    pool = DescriptorPool()
    for descriptor_set in descriptor_sets:
        for file in FileDescriptorSet.FromString(descriptor_set).file:
            pool.Add(file)
            _hold(pool.FindFileByName(file.name).message_types_by_name)
    return pool


def _hold(messages: Mapping[str, Any]) -> None:
    """Hold the descriptors of `messages` and of all they contain, and their classes."""
    for message in messages.values():
        enums = [field.enum_type for field in message.fields if field.enum_type is not None]
        # Members too: each is an object with a cached wrapper of its own.
        _retained.extend((message, GetMessageClass(message), *message.fields, *message.oneofs))
        _retained.extend((*enums, *(value for enum in enums for value in enum.values)))
        _hold(message.nested_types_by_name)


# Some milliseconds, spent only by a process that reads configurations.
@cache
def config_pool() -> DescriptorPool:
    """Return the pool with only the messages of ModelConfig; built at the first call."""
    return load_pool(config_descriptors())


def message_class(pool: DescriptorPool, name: str) -> type[Message]:
    """Return the class of the message `name`, a full name such as "inference.ModelConfig"."""
    return GetMessageClass(pool.FindMessageTypeByName(name))
