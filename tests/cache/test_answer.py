import msgspec
import numpy as np
import pytest

from inferd.cache.store import CachedAnswer, unpacked
from inferd.core.request import InferResponse
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

VALUES = {
    DataType.BOOL: np.array([[True, False, True]]),
    DataType.BF16: np.array([[1, 2, 3]], np.uint16),
    DataType.BYTES: np.array([[b"a", b"", b"\xff" * 99]], object),
}


def sample(datatype):
    values = VALUES.get(datatype)
    array = np.array([[1, 2, 3]], datatype.numpy) if values is None else values
    return Tensor.from_numpy("Y", array, datatype)


def pieces(response):
    answer = CachedAnswer(response)
    return [answer.packed(), answer.packed_in_thread()]


@pytest.mark.parametrize("datatype", DataType)
def test_every_type_comes_back_as_it_was(datatype):
    given = sample(datatype)
    for packed in pieces(InferResponse("m", "1", outputs=[given])):
        [found] = unpacked(packed).outputs
        assert (found.name, found.datatype, found.shape) == ("Y", datatype, (1, 3))
        assert found.numpy().tolist() == given.numpy().tolist()


def test_parameters_of_the_answer_and_of_outputs_come_back(answer):
    given = answer()
    given.parameters = {"a": 1, "b": "x", "c": True, "d": 0.5}
    given.outputs[0].parameters = {"e": False}
    for packed in pieces(given):
        found = unpacked(packed)
        assert found.parameters == given.parameters
        assert found.outputs[0].parameters == {"e": False}


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_outputs_come_back(shape):
    given = Tensor.from_numpy("Y", np.zeros(shape, np.float32), DataType.FP32)
    for packed in pieces(InferResponse("m", "1", outputs=[given, sample(DataType.INT8)])):
        first, second = unpacked(packed).outputs
        assert first.shape == shape
        assert second.numpy().tolist() == [[1, 2, 3]]


def test_an_answer_without_outputs_comes_back():
    for packed in pieces(InferResponse("m", "1")):
        assert unpacked(packed).outputs == []


def test_the_size_is_known_before_anything_is_copied(answer):
    assert {len(packed) for packed in pieces(answer())} == {CachedAnswer(answer()).size_bytes}


def test_what_is_kept_is_a_copy_that_nobody_can_write_to(answer):
    given = answer([1, 2])
    kept = pieces(given)
    given.outputs[0].data[:] = 9
    for packed in kept:
        [found] = unpacked(packed).outputs
        assert found.numpy().tolist() == [1, 2]
        with pytest.raises(ValueError, match="read-only"):
            found.numpy()[0] = 3
        with pytest.raises(TypeError):
            found.view()[0] = 3


def test_outputs_are_aligned_for_frameworks(answer):
    given = answer()
    given.outputs += [sample(DataType.INT8), sample(DataType.FP64)]
    for tensor in unpacked(CachedAnswer(given).packed()).outputs:
        assert tensor.numpy().flags.aligned


@pytest.mark.parametrize("length", [0, 1, 3, 4, 20, -1])
def test_half_an_answer_is_none(answer, length):
    whole = CachedAnswer(answer()).packed()
    with pytest.raises(ValueError, match="kept answer"):
        unpacked(whole[:length])


@pytest.mark.parametrize(
    "output",
    [
        ("Y", "INT32", (-1, -4), 16, None),
        ("Y", "BYTES", (1,), -4, None),
        ("Y", "BYTES", (1,), 64, None),
    ],
)
def test_an_output_that_cannot_be_is_none(output):
    head = msgspec.msgpack.encode([[output], {}])
    start = len(head).to_bytes(4, "little") + head
    with pytest.raises(ValueError, match="output 'Y' of a kept answer has"):
        unpacked(start + bytes(-len(start) % 16) + bytes(16))


def test_more_than_an_answer_is_none(answer):
    with pytest.raises(ValueError, match=r"a kept answer has .* bytes, its head says"):
        unpacked(CachedAnswer(answer()).packed() + b"x")


@pytest.mark.parametrize(
    "head",
    [
        b"\xc1",
        msgspec.msgpack.encode([[], {}, []]) + b"x",
        msgspec.msgpack.encode([[["Y", "INT32", [-1], 4, None]], {}]),
        msgspec.msgpack.encode([[["Y", "INT32", [2**62, 2**62], 4, None]], {}]),
        msgspec.msgpack.encode([[["Y", "INT9", [1], 4, None]], {}]),
        msgspec.msgpack.encode([[["Y", "INT32", [1], -4, None]], {}]),
    ],
)
def test_a_head_that_lies_is_noticed(head):
    with pytest.raises(ValueError, match="kept answer"):
        unpacked(len(head).to_bytes(4, "little") + head + bytes(64))
