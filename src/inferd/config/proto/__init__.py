"""The schema of ModelConfig: its descriptor set, and the private pools messages are built in.

Other libraries in the process (tritonclient, say) register files and messages of the same names
in protobuf's default pool. Nothing of ours goes there, so both live side by side in any order.
"""

from functools import cache
from importlib import resources

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

MODEL_CONFIG = "inference.ModelConfig"
"""The full name of the message config.pbtxt holds."""


def config_descriptors() -> bytes:
    """Return the serialized FileDescriptorSet of model_config.proto."""
    return resources.files(__name__).joinpath("model_config.binpb").read_bytes()


def load_pool(*descriptor_sets: bytes) -> DescriptorPool:
    """Return a new pool with the files of `descriptor_sets`, imported files before importers."""
    pool = DescriptorPool()
    for descriptor_set in descriptor_sets:
        for file in FileDescriptorSet.FromString(descriptor_set).file:
            pool.Add(file)
    return pool


@cache
def config_pool() -> DescriptorPool:
    """Return the pool that holds the ModelConfig family alone; built at the first call."""
    return load_pool(config_descriptors())


def message_class(pool: DescriptorPool, name: str) -> type[Message]:
    """Return the class of the message `name`, a full name such as "inference.ModelConfig"."""
    return GetMessageClass(pool.FindMessageTypeByName(name))
