"""The message classes of every gRPC service that inferd speaks, from one private descriptor pool.

Nothing is added to protobuf's default pool, where tritonclient and others register the same names,
so that both can live in one process.
"""

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from inferd.config.proto import config_descriptors, load_pool
from inferd.errors import InferdError, InvalidRequest
from inferd.memory.buffer import Buffer


def proto_folders() -> list[Traversable]:
    """Return the folders with descriptors: this one, and proto/ in those of other formats."""
    # Whatever has a proto folder is one, so that this module need not know which formats there are.
    formats = sorted(files("inferd.wire").iterdir(), key=lambda folder: folder.name)
    others = [folder / "proto" for folder in formats if folder.is_dir()]
    return [files(__name__), *(folder for folder in others if folder.is_dir())]


@cache
def pool() -> DescriptorPool:
    """Return the pool that holds all our descriptors, including those of ModelConfig."""
    found = (file for folder in proto_folders() for file in folder.iterdir())
    sets = sorted((file.name, file.read_bytes()) for file in found if file.name.endswith(".binpb"))
    return load_pool(config_descriptors(), *(read for _, read in sets))


@cache
def message_class(name: str) -> Any:
    """Return the class of the message with the full name `name`, generated at run time."""
    return GetMessageClass(pool().FindMessageTypeByName(name))


def serialized(message: Any) -> bytes:
    """Return the bytes of `message`."""
    encoded: bytes = message.SerializeToString()
    return encoded


def encode(name: str, /, **fields: Any) -> bytes:
    """Return the bytes of a message with the full name `name` and these fields.

    Messages in it may be given as dicts of their fields, also in lists and as values of maps.
    """
    return serialized(message_class(name)(**fields))


def parse(name: str, data: Buffer) -> Any:
    """Parse `data` as the message with the full name `name`; unknown fields are ignored.

    Raises InvalidRequest when that is impossible.
    """
    try:
        return message_class(name).FromString(data)
    except DecodeError as error:
        raise InvalidRequest(f"the message cannot be read as {name}: {error}") from error


def parse_answer(name: str, data: Buffer) -> Any:
    """Parse `data`, which a server sent, like `parse`. Raises InferdError."""
    try:
        return parse(name, data)
    except InvalidRequest as error:
        raise malformed(error) from error


def malformed(error: InvalidRequest) -> InferdError:
    """Return the client's error for an answer that cannot be read."""
    return InferdError(f"the server's answer is malformed: {error.message}")
