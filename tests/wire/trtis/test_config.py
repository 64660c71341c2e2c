"""The configuration of a model as the old API shows it."""

import pytest

from inferd.config.defaults import normalised
from inferd.config.model import (
    Control,
    ControlInput,
    DynamicBatching,
    ModelConfig,
    ModelInput,
    ModelOutput,
    SequenceBatching,
    Warmup,
    WarmupInput,
)
from inferd.tensor.dtype import DataType
from inferd.wire.proto import message_class
from inferd.wire.trtis.config import write_config


def shown(**settings):
    """What is shown of a model with these settings."""
    config = normalised(ModelConfig("m", **settings), "m")
    told = message_class("nvidia.inferenceserver.ModelConfig")()
    write_config(config, told)
    return told


@pytest.mark.parametrize(
    ("most", "sizes"), [(2, []), (4, [4]), (7, [4]), (8, [4, 8]), (64, [4, 8])]
)
@pytest.mark.parametrize("delay_us", [0, 100])
def test_preferred_sizes_that_nobody_gave_are_4_and_8(most, sizes, delay_us):
    batching = DynamicBatching(max_queue_delay_microseconds=delay_us)
    told = shown(max_batch_size=most, dynamic_batching=batching).dynamic_batching
    assert list(told.preferred_batch_size) == sizes
    assert told.max_queue_delay_microseconds == delay_us


def test_those_that_were_given_are_shown():
    batching = DynamicBatching(preferred_batch_size=(8,))
    told = shown(max_batch_size=8, dynamic_batching=batching).dynamic_batching
    assert list(told.preferred_batch_size) == [8]


def test_a_model_that_does_not_gather_says_nothing_of_it():
    assert not shown(max_batch_size=8).HasField("dynamic_batching")


def test_what_the_old_layout_lacks_is_left_out():
    control = Control("CONTROL_SEQUENCE_CORRID", datatype=DataType.BF16)
    told = shown(
        input=(ModelInput("a", DataType.BF16, (2,), optional=True),),
        output=(ModelOutput("b", DataType.FP32, (2,), reshape=()),),
        sequence_batching=SequenceBatching(
            control_input=(ControlInput("c", (control,)),), iterative_sequence=True
        ),
        model_warmup=(Warmup("w", inputs={"a": WarmupInput(DataType.BF16, (2,))}, count=3),),
        response_cache=True,
    )
    [given], [taken] = told.input, told.output
    assert (given.name, given.data_type, list(given.dims)) == ("a", 0, [2])
    assert (taken.data_type, taken.HasField("reshape")) == (11, True)
    assert told.sequence_batching.control_input[0].control[0].data_type == 0
    assert told.model_warmup[0].inputs["a"].data_type == 0
    sent = told.SerializeToString()
    told.DiscardUnknownFields()
    assert told.SerializeToString() == sent
