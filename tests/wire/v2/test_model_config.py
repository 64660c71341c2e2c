"""The configuration of a model in both encodings."""

import orjson
from tritonclient.grpc import service_pb2 as pb

from inferd.config.message import read_message
from inferd.config.model import ModelConfig, ModelInput, ModelOutput, VersionPolicy
from inferd.config.pbtxt import parse_json
from inferd.tensor.dtype import DataType
from inferd.wire.proto import parse
from inferd.wire.v2 import model_config as wire

CONFIG = ModelConfig(
    "m",
    backend="onnxruntime",
    max_batch_size=8,
    version_policy=VersionPolicy(specific=(1, 2**40)),
    input=(ModelInput("X", DataType.FP32, (-1,)),),
    output=(ModelOutput("Y", DataType.BYTES, (1,)),),
)


def test_a_configuration_survives_both_encodings():
    assert parse_json(wire.encode_config(CONFIG), "the answer") == CONFIG
    message = parse("inference.ModelConfigResponse", wire.encode_config_message(CONFIG))
    assert read_message(message.config) == CONFIG


def test_a_configuration_in_json_has_tritons_layout():
    reported = orjson.loads(wire.encode_config(CONFIG))
    assert reported["version_policy"] == {"specific": {"versions": [1, 2**40]}}
    assert reported["max_batch_size"] == 8
    assert reported["input"][0]["data_type"] == "TYPE_FP32"
    assert reported["input"][0]["format"] == "FORMAT_NONE"
    assert reported["output"][0]["data_type"] == "TYPE_STRING"
    assert reported["model_warmup"] == []
    assert reported["metric_tags"] == {}
    assert "sequence_batching" not in reported
    assert "model_transaction_policy" not in reported


def test_a_configuration_message_is_that_of_tritons_client():
    config = pb.ModelConfigResponse.FromString(wire.encode_config_message(CONFIG)).config
    assert (config.name, config.max_batch_size) == ("m", 8)
    assert list(config.version_policy.specific.versions) == [1, 2**40]
    assert not config.HasField("model_transaction_policy")
