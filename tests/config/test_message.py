"""ModelConfig to its protobuf message and back."""

import operator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferd.config.message import read_message, write_message
from inferd.config.model import DynamicBatching, ModelConfig, ModelInput, ModelOutput, VersionPolicy
from inferd.config.proto import MODEL_CONFIG, config_descriptors, load_pool, message_class
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType


@pytest.mark.parametrize("choice", range(3))
def test_a_message_that_says_everything_comes_back_whole(full_message, empty_message, choice):
    message, again = full_message(choice), empty_message()
    write_message(read_message(message), again)
    assert again == message


@settings(max_examples=40)
@given(seed=st.integers(0))
def test_a_config_survives_the_message(random_message, empty_message, seed):
    config, message = read_message(random_message(seed)), empty_message()
    write_message(config, message)
    assert read_message(message) == config


def test_an_empty_message_is_a_config_of_defaults(empty_message):
    assert read_message(empty_message()) == ModelConfig("")


def test_what_is_set_but_empty_is_not_what_is_unset(empty_message):
    config = ModelConfig(
        "m",
        input=(ModelInput("x", DataType.FP32, (1,), reshape=()),),
        version_policy=VersionPolicy(latest=0),
        dynamic_batching=DynamicBatching(),
    )
    message = empty_message()
    write_message(config, message)
    assert message.input[0].HasField("reshape")
    assert message.version_policy.WhichOneof("policy_choice") == "latest"
    assert message.HasField("dynamic_batching")
    assert read_message(message) == config


@pytest.mark.parametrize(
    "path",
    [
        "optimization",
        "optimization.graph",
        "optimization.execution_accelerators",
        "model_operations",
        "model_transaction_policy",
        "model_repository_agents",
        "response_cache",
        "model_metrics",
    ],
)
def test_a_message_that_says_nothing_is_shown_where_it_was_given(empty_message, path):
    message, again = empty_message(), empty_message()
    operator.attrgetter(path)(message).SetInParent()
    write_message(replace(read_message(message), name="m"), again)
    message.name = "m"
    assert again == message


@pytest.mark.parametrize("datatype", DataType)
def test_every_datatype_has_its_name_in_the_schema(empty_message, datatype):
    message = empty_message()
    config = ModelConfig("m", output=(ModelOutput("y", datatype, (1,)),))
    write_message(config, message)
    assert read_message(message) == config


def test_bytes_are_called_string(empty_message):
    message = empty_message()
    write_message(ModelConfig("m", input=(ModelInput("x", DataType.BYTES, (1,)),)), message)
    assert message.input[0].data_type == 13


def test_messages_of_another_pool_are_filled_alike():
    message = message_class(load_pool(config_descriptors()), MODEL_CONFIG)()
    config = ModelConfig("m", max_batch_size=4, decoupled=True, parameters={"a": "b"})
    write_message(config, message)
    assert read_message(message) == config


def test_maps_are_read_in_one_order_in_every_process(empty_message):
    message = empty_message()
    parameters = {chr(code): "x" for code in range(ord("z"), ord("a") - 1, -1)}
    write_message(ModelConfig("m", parameters=parameters), message)
    assert list(read_message(message).parameters) == sorted(parameters)


def test_an_enum_number_without_a_name_is_refused(empty_message):
    message = empty_message()
    message.instance_group.add(kind=9)
    with pytest.raises(
        InvalidConfig,
        match=r"^kind is 9, expected one of KIND_AUTO, KIND_GPU, KIND_CPU, KIND_MODEL$",
    ):
        read_message(message)


@pytest.mark.parametrize("field", ["input", "output"])
def test_a_tensor_without_datatype_is_refused(empty_message, field):
    message = empty_message()
    getattr(message, field).add(name="x")
    with pytest.raises(InvalidConfig, match=f"^{field} 'x' has no data_type$"):
        read_message(message)
