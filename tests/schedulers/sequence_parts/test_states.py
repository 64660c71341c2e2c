import numpy as np
import pytest

from inferd.config.model import (
    InitialState,
    ModelConfig,
    ModelOutput,
    SequenceBatching,
    SequenceState,
)
from inferd.core.request import InferResponse
from inferd.errors import BackendFailed, InvalidConfig
from inferd.schedulers.sequence_parts.tensors import States, hidden_outputs, state_inputs
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import encode_strings
from inferd.tensor.tensor import Tensor


def config(datatype=DataType.INT32, dims=(2,), *, shown=False, max_batch_size=4, **initial):
    first = InitialState("first", datatype, initial.pop("first_dims", dims), **initial)
    given = (first,) if initial else ()
    state = SequenceState("IN", "OUT", datatype, dims, given)
    return ModelConfig(
        "m",
        max_batch_size=max_batch_size,
        output=(ModelOutput("OUT", datatype, dims),) if shown else (),
        sequence_batching=SequenceBatching(state=(state,)),
    )


def answer(values, datatype=DataType.INT32):
    array = np.array(values, datatype.numpy)
    outputs = [Tensor("OUT", datatype, array.shape, array), Tensor("Y", datatype, (0,), b"")]
    return InferResponse("m", "1", outputs=outputs)


@pytest.mark.parametrize(("max_batch_size", "shape"), [(0, (1, 3)), (4, (1, 1, 3))])
@pytest.mark.parametrize("said", [{}, {"zero_data": True, "first_dims": (1, 3)}])
def test_a_state_begins_as_zeros_with_variable_dims_of_one(tmp_path, max_batch_size, shape, said):
    made = config(DataType.FP32, (-1, 3), max_batch_size=max_batch_size, **said)
    [first] = States(made, tmp_path).initial
    assert (first.name, first.shape, first.numpy().tolist()) == (
        "IN",
        shape,
        np.zeros(shape).tolist(),
    )


def test_a_state_of_texts_begins_with_empty_ones(tmp_path):
    [first] = States(config(DataType.BYTES), tmp_path).initial
    assert first.strings() == [b"", b""]


@pytest.mark.parametrize(
    ("datatype", "content", "seen"),
    [
        (DataType.INT32, np.array([4, 5], np.int32).tobytes(), [[4, 5]]),
        (DataType.BYTES, bytes(encode_strings(["a", "bc"], "x")), [[b"a", b"bc"]]),
    ],
)
def test_a_state_begins_with_its_file(tmp_path, datatype, content, seen):
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state" / "file").write_bytes(content)
    [first] = States(config(datatype, data_file="file"), tmp_path).initial
    assert first.numpy().tolist() == seen


@pytest.mark.parametrize(
    ("datatype", "name", "text"),
    [
        (DataType.INT32, "none", "there is no file 'none' in initial_state"),
        (DataType.INT32, "out", "'out' leads out of the model's folder"),
        (DataType.INT32, "nul\0", "cannot be read"),
        (DataType.INT32, "long", "'long' has more, expected 8 bytes"),
        (DataType.INT32, "short", "'short' has 7, expected 8 bytes"),
        (DataType.BYTES, "short", "'short': incomplete string data for tensor 'IN'"),
        (DataType.BYTES, "texts", "'texts' has 1, expected 2 elements"),
    ],
)
def test_a_file_that_is_no_state_is_refused(tmp_path, datatype, name, text):
    folder = tmp_path / "model" / "initial_state"
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(8))
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "long").write_bytes(bytes(9))
    (folder / "short").write_bytes(b"\xff" * 7)
    (folder / "texts").write_bytes(bytes(4))
    with pytest.raises(InvalidConfig) as caught:
        States(config(datatype, data_file=name), tmp_path / "model")
    assert text in caught.value.message
    assert str(tmp_path) not in caught.value.message


@pytest.mark.parametrize("shown", [False, True])
def test_what_is_state_alone_is_kept_from_clients(tmp_path, shown):
    made = config(shown=shown)
    response = answer([[1, 2]])
    [kept] = States(made, tmp_path).taken_from(response)
    assert (kept.name, kept.numpy().tolist()) == ("IN", [[1, 2]])
    assert [one.name for one in response.outputs] == ["OUT", "Y"][not shown :]
    assert [one.name for one in hidden_outputs(made)] == ["OUT"][shown:]
    assert [one.name for one in state_inputs(made)] == ["IN"]


def test_a_state_is_a_copy_that_nobody_else_writes_to(tmp_path):
    response = answer([[1, 2]])
    [kept] = States(config(), tmp_path).taken_from(response)
    response.outputs = []
    array = answer([[1, 2]]).outputs[0].data
    array[:] = 9
    assert kept.numpy().tolist() == [[1, 2]]
    assert isinstance(kept.data, bytes)


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (InferResponse("m", "1"), r"state 'OUT' is missing, expected INT32 \[1, 2\]"),
        (answer([[1, 2, 3]]), r"state 'OUT' is INT32 \[1, 3\]"),
        (answer([1, 2]), r"state 'OUT' is INT32 \[2\]"),
        (answer([[1, 2]], DataType.FP32), r"state 'OUT' is FP32 \[1, 2\]"),
    ],
)
def test_a_model_that_breaks_its_state_is_told(tmp_path, response, text):
    with pytest.raises(BackendFailed, match=text):
        States(config(), tmp_path).taken_from(response)
