"""V2's model configuration extension over REST and gRPC."""

import orjson

from inferd.config.message import write_message
from inferd.config.model import ModelConfig
from inferd.config.pbtxt import to_json
from inferd.wire.proto import message_class, serialized


def encode_config(config: ModelConfig) -> bytes:
    """Return `config` as JSON (Model Configuration extension), including plain default values."""
    return orjson.dumps(to_json(config))


def encode_config_message(config: ModelConfig) -> bytes:
    """Return a ModelConfigResponse."""
    message = message_class("inference.ModelConfigResponse")()
    write_message(config, message.config)
    return serialized(message)
