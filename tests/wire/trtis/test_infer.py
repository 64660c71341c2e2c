"""A Form remembers what requests in the same words mean, and takes nothing for granted by that."""

import numpy as np
import pytest

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.request import InferResponse
from inferd.errors import BackendFailed, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.shared_memory import no_regions
from inferd.wire.trtis.http import Body, decode_request_header
from inferd.wire.trtis.infer import Form

WORDS = (
    'batch_size: 2 input { name: "A" dims: 2 } input { name: "B" } '
    'output { name: "D" } output { name: "C" }'
)
VALUES = np.arange(10, dtype=np.int32)


@pytest.fixture
def form():
    """Inputs INT32 A [2] and B [3], outputs C [2] and D [-1], batches of up to 4."""
    config = ModelConfig(
        name="m",
        max_batch_size=4,
        input=(
            ModelInput(name="A", datatype=DataType.INT32, dims=(2,)),
            ModelInput(name="B", datatype=DataType.INT32, dims=(3,)),
        ),
        output=(
            ModelOutput(name="C", datatype=DataType.INT32, dims=(2,)),
            ModelOutput(name="D", datatype=DataType.INT32, dims=(-1,)),
        ),
    )
    return Form(config, {})


def asked(form, text, values=VALUES, version=""):
    """The header of `text`, and the request it makes."""
    header = decode_request_header(text.encode())
    body = Body(memoryview(values.tobytes()))
    return header, form.decode_request(version, header, body, no_regions)


def answered(form, header, request, columns, version="1"):
    """What the answer says of its outputs, with D of so many columns, and its bytes."""
    outputs = [
        Tensor.from_numpy(name, np.ones((2, count), np.int32), DataType.INT32)
        for name, count in (("C", 2), ("D", columns))
    ]
    response = InferResponse("m", version, outputs=outputs)
    answer = form.encode_response(header, request, response)
    return answer.line().decode(), [len(data) for data in answer.buffers]


def test_each_request_has_its_own_ids_and_values(form):
    for number in range(1, 4):
        text = f"{WORDS} correlation_id: {number} id: {number + 5} flags: 1"
        _, request = asked(form, text, VALUES * number)
        assert request.id == str(number + 5)
        assert (request.sequence.id, request.sequence.start, request.sequence.end) == (
            number, True, False,
        )  # fmt: skip
        assert [one.name for one in request.outputs] == ["D", "C"]
        a, b = request.inputs
        assert (a.name, a.shape, b.name, b.shape) == ("A", (2, 2), "B", (2, 3))
        assert a.numpy().ravel().tolist() == (VALUES[:4] * number).tolist()
        assert b.numpy().ravel().tolist() == (VALUES[4:] * number).tolist()
    header, request = asked(form, WORDS)
    assert (request.id, request.sequence, request.priority, request.timeout_us) == ("", None, 0, 0)
    header.priority, header.timeout_us = 2, 9
    request = form.decode_request("", header, Body(memoryview(VALUES.tobytes())), no_regions)
    assert (request.priority, request.timeout_us) == (2, 9)


@pytest.mark.parametrize(
    ("count", "complaint"),
    [(9, "beyond the end"), (11, "more than"), (0, "the request has no body")],
)
def test_known_words_do_not_make_up_for_a_body_of_another_size(form, count, complaint):
    asked(form, WORDS)
    with pytest.raises(InvalidRequest, match=complaint):
        asked(form, WORDS, np.zeros(count, np.int32))
    assert asked(form, WORDS)[1].inputs[0].shape == (2, 2)


def test_an_answer_says_what_this_one_is_like(form):
    lines = []
    for columns, version in ((1, "1"), (3, "1"), (3, "2"), (1, "1")):
        header, request = asked(form, f"{WORDS} id: 7")
        line, sizes = answered(form, header, request, columns, version)
        assert sizes == [8 * columns, 16]
        assert f"model_version: {version} " in line
        said = (
            f'"D" raw {{ dims: {columns} batch_byte_size: {8 * columns} }} }} output {{ name: "C"'
        )
        assert said in line
        assert line.endswith(" id: 7")
        lines.append(line)
    assert lines[0] == lines[3]


@pytest.mark.parametrize("more", ["", ' output { name: "C" cls { count: 1 } }'])
def test_an_answer_that_this_api_cannot_tell_is_refused(form, more):
    wanted = 'output { name: "D" }' + (more or ' output { name: "C" }')
    text = f'batch_size: 2 input {{ name: "A" }} input {{ name: "B" }} {wanted}'
    values = Tensor.from_numpy("D", np.ones((2, 1), np.int32), DataType.INT32)
    other = Tensor.from_numpy("D", np.ones((2, 1), np.float32), DataType.FP32)
    classes = Tensor.from_numpy("C", np.ones((2, 2), np.int32), DataType.INT32)
    for outputs, complaint in (
        ([classes, values], ""),
        ([classes, other], "produced output 'D' as FP32, its configuration says INT32"),
        ([values], "model 'm' gave no output 'C'"),
        ([], "model 'm' gave no output 'D', 'C'"),
    ):
        header, request = asked(form, text)
        response = InferResponse("m", "1", outputs=outputs)
        if not complaint:
            assert form.encode_response(header, request, response).line()
            continue
        with pytest.raises(BackendFailed, match=complaint):
            form.encode_response(header, request, response)


def test_no_more_words_are_remembered_than_there_is_room_for(form):
    for number in range(200):
        text = WORDS.replace("batch_size", " " * number + "batch_size")
        assert asked(form, text)[1].inputs[0].shape == (2, 2)
    asked(form, WORDS)
    assert len(form._templates) <= 64
