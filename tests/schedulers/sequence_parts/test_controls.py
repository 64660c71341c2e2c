import pytest

from inferd.config.model import Control, ControlInput, ModelConfig, SequenceBatching
from inferd.core.request import Sequence
from inferd.errors import InvalidConfig, InvalidRequest
from inferd.schedulers.sequence_parts.tensors import MAX_ID_BYTES, Controls
from inferd.tensor.dtype import DataType


def controls(*given, max_batch_size=4):
    batching = SequenceBatching(
        control_input=tuple(ControlInput(name, (control,)) for name, control in given)
    )
    return Controls(ModelConfig("m", max_batch_size=max_batch_size, sequence_batching=batching))


def correlation_id(datatype):
    return ("ID", Control("CONTROL_SEQUENCE_CORRID", datatype=datatype))


START = ("S", Control("CONTROL_SEQUENCE_START", int32_false_true=(3, 9)))
END = ("E", Control("CONTROL_SEQUENCE_END", fp32_false_true=(-1.5, 2.5)))
READY = ("R", Control("CONTROL_SEQUENCE_READY", bool_false_true=(True, False)))


def shown(tensors):
    return {one.name: one.numpy().ravel().tolist()[0] for one in tensors}


def test_each_control_says_its_own_value_for_false_and_true():
    made = controls(START, END, READY)
    assert shown(made.of(Sequence(1, start=True))) == {"S": 9, "E": -1.5, "R": False}
    assert shown(made.of(Sequence(1, end=True))) == {"S": 3, "E": 2.5, "R": False}
    assert shown(made.absent) == {"S": 3, "E": -1.5, "R": True}


@pytest.mark.parametrize(("max_batch_size", "shape"), [(0, (1,)), (1, (1, 1))])
def test_a_control_has_the_batch_dim_if_the_model_has(max_batch_size, shape):
    made = controls(START, correlation_id(DataType.BYTES), max_batch_size=max_batch_size)
    assert {one.shape for one in made.of(Sequence("a"))} == {shape}
    assert [one.dims for one in made.inputs] == [(1,), (1,)]


@pytest.mark.parametrize(
    ("datatype", "id", "seen"),
    [
        (DataType.UINT64, 2**64 - 1, 2**64 - 1),
        (DataType.UINT64, 2**64 + 1, 1),
        (DataType.INT64, 2**64 - 1, -1),
        (DataType.UINT32, 2**32 + 7, 7),
        (DataType.INT32, 2**32 - 1, -1),
        (DataType.BYTES, "ä", "ä".encode()),
    ],
)
def test_an_id_keeps_the_bits_that_fit(datatype, id, seen):
    made = controls(correlation_id(datatype))
    made.check_id(id)
    assert shown(made.of(Sequence(id))) == {"ID": seen}
    assert shown(made.absent) == {"ID": b"" if datatype is DataType.BYTES else 0}


@pytest.mark.parametrize(
    ("datatype", "id", "text"),
    [
        (DataType.UINT64, "5", "control 'ID' data-type is 'BYTES', but model 'm' expects 'UINT64'"),
        (DataType.BYTES, 5, "the sequence_id is a number, expected a string"),
        (DataType.BYTES, "ä" * 65, f"has 130 bytes, expected {MAX_ID_BYTES} at most"),
    ],
)
def test_an_id_of_another_type_or_too_long_is_refused(datatype, id, text):
    with pytest.raises(InvalidRequest, match=text):
        controls(correlation_id(datatype)).check_id(id)


def test_without_a_control_for_it_an_id_is_a_number_or_a_text():
    made = controls()
    made.check_id(5)
    made.check_id("five")
    assert made.of(Sequence("five")) == []


def test_a_control_without_a_kind_is_no_control():
    batching = SequenceBatching(control_input=(ControlInput("S"),))
    with pytest.raises(InvalidConfig, match="control 'S' has no kind"):
        Controls(ModelConfig("m", sequence_batching=batching))
