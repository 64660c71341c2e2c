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
    QueuePolicy,
    SequenceBatching,
    Warmup,
    WarmupInput,
)
from inferd.tensor.dtype import DataType
from inferd.wire.proto import message_class
from inferd.wire.trtis.status import write_config


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


@pytest.mark.parametrize("most", [2**32 - 1, 2**32, 2**33 + 3])
def test_priority_levels_that_the_old_layout_cannot_hold_are_left_out(most):
    policies = {1: QueuePolicy(max_queue_size=1), most: QueuePolicy(max_queue_size=2)}
    batching = DynamicBatching(
        priority_levels=most, default_priority_level=most, priority_queue_policy=policies
    )
    seen = shown(max_batch_size=8, dynamic_batching=batching).dynamic_batching
    fits = most < 2**32
    assert seen.priority_levels == seen.default_priority_level == (most if fits else 0)
    assert list(seen.priority_queue_policy) == ([1, most] if fits else [1])


def pairs(old, new, seen):
    """Yield the fields of both layouts that have the same number, in all messages below."""
    for field in old.fields:
        twin = new.fields_by_number.get(field.number)
        if twin is None:
            assert field.name not in new.fields_by_name, f"{field.full_name} has another number"
            continue
        yield field, twin
        if field.message_type is not None and field.message_type.full_name not in seen:
            seen.add(field.message_type.full_name)
            yield from pairs(field.message_type, twin.message_type, seen)


def test_both_layouts_are_the_same_on_the_wire_where_they_meet():
    old = message_class("nvidia.inferenceserver.ModelConfig").DESCRIPTOR
    new = message_class("inference.ModelConfig").DESCRIPTOR
    unlike, values = set(), set()
    for field, twin in pairs(old, new, set()):
        if (field.name, field.type) != (twin.name, twin.type):
            unlike.add(field.full_name.partition(".ModelDynamicBatching.")[2] or field.full_name)
        if field.enum_type is not None:
            known = {value.number: value.name for value in field.enum_type.values}
            values |= {v.name for v in twin.enum_type.values if known.get(v.number) != v.name}
    # These are dealt with one by one.
    assert unlike == {"priority_levels", "default_priority_level", "PriorityQueuePolicyEntry.key"}
    assert values == {"TYPE_BF16"}
