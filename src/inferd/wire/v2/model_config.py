"""V2's model configuration extension over REST and gRPC, for server and client."""

import orjson

from inferd.config.message import read_message, write_message
from inferd.config.model import ModelConfig
from inferd.config.pbtxt import parse_json, to_json
from inferd.wire.proto import message_class, parse, serialized


def encode_config(config: ModelConfig) -> bytes:
    """Return `config` as JSON (Model Configuration extension), including plain default values."""
    return orjson.dumps(to_json(config))


def decode_config(body: bytes) -> ModelConfig:
    """Return the configuration in a server's answer. Raises InvalidConfig."""
    return parse_json(body, "the server's answer")


def encode_config_message(config: ModelConfig) -> bytes:
    """Return a ModelConfigResponse."""
    message = message_class("inference.ModelConfigResponse")()
    write_message(config, message.config)
    return serialized(message)


def decode_config_message(data: bytes) -> ModelConfig:
    """Return the configuration in a ModelConfigResponse. Raises InferdError."""
    return read_message(parse("inference.ModelConfigResponse", data).config)
