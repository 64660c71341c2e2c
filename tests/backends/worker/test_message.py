"""What packets say, read by the server: nothing that a worker writes is believed unseen."""

import json
import math

import msgspec
import numpy as np
import pytest

from inferd.backends.worker.document import (
    Answers,
    Command,
    Described,
    DescribedAnswer,
    DescribedBatch,
    DescribedCall,
    Failed,
    Logged,
    Metered,
    Said,
    Started,
)
from inferd.backends.worker.message import (
    ERRORS,
    BatchReader,
    ResultReader,
    describe_request,
    described,
    placed,
    places_of,
    reshapes_of,
    response_of,
)
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.request import InferRequest, WantedOutput
from inferd.errors import BackendFailed, Code, InferdError
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.trtis.infer import status_of
from inferd_worker.packet import Payload


def config(max_batch_size=0):
    one = {"datatype": DataType.FP32}
    return ModelConfig(
        "m",
        max_batch_size=max_batch_size,
        input=(ModelInput("x", dims=(2, 3), reshape=(6,), **one),),
        output=(ModelOutput("y", dims=(2, 3), reshape=(6,), **one),),
    )


def inputs_seen(config, shape):
    inputs = [("x", "FP32", shape, 0, 24), ("other", "FP32", shape, 0, 24)]
    reshapes_of(config).apply_to_inputs(inputs)
    return [one[2] for one in inputs]


def test_an_input_that_has_a_reshape_gets_it():
    assert inputs_seen(config(), (2, 3)) == [(6,), (2, 3)]


def test_the_batch_is_left_alone():
    assert inputs_seen(config(8), (4, 2, 3)) == [(4, 6), (4, 2, 3)]


def test_a_shape_that_is_not_the_configured_one_is_left_alone():
    assert inputs_seen(config(), (3, 2)) == [(3, 2), (3, 2)]
    assert inputs_seen(config(8), (2, 3)) == [(2, 3), (2, 3)]


def test_an_output_gets_the_shape_that_clients_expect():
    outputs = [Tensor("y", DataType.FP32, (6,), np.arange(6, dtype=np.float32))]
    reshapes_of(config()).apply_to_outputs(outputs)
    assert outputs[0].shape == (2, 3)
    assert outputs[0].numpy().ravel().tolist() == list(range(6))


def test_a_model_without_reshape_has_none():
    assert reshapes_of(ModelConfig("m")) is None


KINDS = (Answers, DescribedCall, Command, Failed, Logged, Metered, Said, Started)


def written(*tensors):
    """Return how a packet describes `tensors`, and its data."""
    payload = Payload()
    documents = [described(tensor, payload) for tensor in tensors]
    return json.loads(msgspec.json.encode(documents)), b"".join(payload.parts)


def read(documents):
    return msgspec.json.decode(json.dumps(documents), type=list[Described])


def test_a_parameter_that_json_cannot_say_spoils_no_request():
    odd = {"none": math.nan, "far": -math.inf, "half": 0.5}
    request = InferRequest("m", parameters=odd)
    asked = describe_request(request, Payload())
    [got] = asking(asked).requests(b"", "m")
    assert got.parameters == {"half": 0.5}
    assert request.parameters is odd


def asking(*asked):
    """Return what a packet asks for whose requests are described so."""
    return BatchReader(
        msgspec.json.decode(msgspec.json.encode([[7], asked, []]), type=DescribedBatch)
    )


def test_what_is_asked_again_is_read_from_other_data():
    wanted = [WantedOutput("y")]
    tensors = [
        Tensor("x", DataType.INT8, (2,), b"\1\2"),
        Tensor("none", DataType.FP32, (0, 3), b""),
    ]
    request = InferRequest("m", "", "7", tensors, wanted, {"p": 1})
    read_once = asking(describe_request(request, Payload()))
    assert read_once.released == [7]
    for data in b"\1\2", b"\3\4":
        [got] = read_once.requests(data, "m")
        assert (got.id, got.model, got.parameters) == ("7", "m", {"p": 1})
        assert [one.name for one in got.outputs] == ["y"]
        assert got.inputs[0].numpy().tolist() == list(data)
        assert got.inputs[1].numpy().shape == (0, 3)
        got.parameters.clear()  # those of the next are its own


def test_inputs_that_are_not_there_are_not_read():
    request = InferRequest("m", inputs=[Tensor("x", DataType.INT8, (2,), b"\1\2")])
    with pytest.raises(ValueError, match=r"tensor 'x' \[2\] has 2 bytes at 0"):
        asking(describe_request(request, Payload())).requests(b"\1", "m")


def test_tensors_are_read_as_they_were_written():
    given = [
        Tensor.from_numpy("a", np.arange(6, dtype=np.float32).reshape(2, 3), DataType.FP32),
        Tensor("none", DataType.INT8, (0, 7), b""),
        Tensor("b", DataType.BYTES, (1,), b"\x03\x00\x00\x00abc"),
        Tensor("scalar", DataType.INT64, (), bytes(8)),
    ]
    documents, data = written(*given)
    found = placed(places_of(read(documents)), data)
    assert [(t.name, t.datatype, t.shape, bytes(t.view())) for t in found] == [
        (t.name, t.datatype, t.shape, bytes(t.view())) for t in given
    ]


@pytest.mark.parametrize(
    "document",
    [
        ["x", "INT32", [4], 0, 12],
        ["x", "INT32", [4], 0, 20],
        ["x", "INT32", [4], -16, 16],
        ["x", "INT32", [4], 56, 16],
        ["x", "INT32", [4], 1 << 70, 16],
        ["x", "INT32", [4], 0, -16],
        ["x", "INT32", [-4], 0, -16],
        ["x", "INT32", [-2, -2], 0, 16],
        ["x", "INT32", [1 << 40, 0, -1], 0, 0],
        ["x", "INT32", [1 << 62], 0, 1 << 64],
        ["x", "BYTES", [1], 0, -1],
        ["x", "BYTES", [1], 60, 8],
        ["x", "BYTES", [-1], 0, 8],
    ],
)
def test_bytes_that_are_not_there_or_do_not_fit_are_refused(document):
    with pytest.raises(ValueError, match="tensor 'x'"):
        placed(places_of(read([document])), bytes(64))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "null", "[]", "[null]", "[[]", "[[]]]", '["x"]', "[[1.5]]", '[["1"]]', "[[[]]]",
        "[[], {}, {}, {}, {}, {}]", "[[]," * 20_000, "\x00", "[[], \ud800]",
    ],
)  # fmt: skip
def test_what_is_no_document_of_its_kind_is_refused(kind, text):
    with pytest.raises((msgspec.MsgspecError, RecursionError)):
        msgspec.json.decode(text.encode(errors="surrogatepass"), type=kind)


@pytest.mark.parametrize(
    "answer",
    [
        [1],
        ["1", [], None, None, True, 1],
        [1, [["x", "INT32", [1], 0]], None, None, True, 1],
        [1, [["x", "NONE", [1], 0, 4]], None, None, True, 1],
        [1, [["x", "INT32", 1, 0, 4]], None, None, True, 1],
        [1, [["x", "INT32", [1.5], 0, 4]], None, None, True, 1],
        [1, [[7, "INT32", [1], 0, 4]], None, None, True, 1],
        [1, [], [3], None, True, 1],
        [1, [], ["3", "text"], None, True, 1],
        [1, [], None, {"a": [1]}, True, 1],
        [1, [], None, [], True, 1],
        [1, [], None, None, 1, 1],
        [1, [], None, None, True, "1"],
    ],
)
def test_what_is_no_answer_is_refused(answer):
    with pytest.raises(msgspec.MsgspecError):
        msgspec.json.decode(json.dumps(answer), type=DescribedAnswer)


@pytest.mark.parametrize("code", [*range(len(ERRORS)), -1, 8, 1 << 70])
def test_an_error_has_the_code_that_the_worker_says_or_a_plain_one(code):
    answer = DescribedAnswer(1, None, (code, "so it is"), None, True, 1)
    error = response_of(answer, b"", InferRequest("m"), "1")
    assert isinstance(error, InferdError)
    assert error.message == "so it is"
    expected = ERRORS[code] if code in range(len(ERRORS)) else BackendFailed
    assert type(error) is expected
    assert isinstance(error.code, Code)


OUTPUT = ["Y", "FP32", [2], 64, 8]


def reading(answers):
    return ResultReader(msgspec.convert([[7], answers], Answers))


def test_over_the_old_api_an_error_has_the_code_that_the_model_gave():
    assert [status_of(kind("told so"))[0] for kind in ERRORS] == [2, 3, 4, 5, 6, 7, 8, 2]


def test_a_usual_result_is_read_once_for_all_that_say_the_same():
    one = reading([[0, [OUTPUT], None, None, True, 1]])
    assert one.released == [7]
    assert one.plain == [("Y", DataType.FP32, (2,), 64, 72, -1)]
    assert one.blocks == set()


def test_a_result_that_names_a_block_is_read_once_as_well():
    one = reading([[0, [[*OUTPUT, 4096]], None, None, True, 1]])
    assert one.blocks == {4096}
    assert one.plain == [("Y", DataType.FP32, (2,), 64, 72, 4096)]
    block = np.zeros(128, np.uint8)
    block[64:72] = 7
    [tensor] = placed(one.plain, b"", {4096: block})
    assert bytes(tensor.data) == b"\7" * 8


@pytest.mark.parametrize(("data", "loans"), [(bytes(71), {}), (b"", {4096: bytes(71)})])
@pytest.mark.parametrize("block", [-1, 4096])
def test_what_is_read_once_has_to_be_there_each_time(data, loans, block):
    one = reading([[0, [[*OUTPUT, block]], None, None, True, 1]])
    with pytest.raises(ValueError, match=r"tensor 'Y' \[2\] has 8 bytes at 64"):
        placed(one.plain, data, loans)


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [[0, [OUTPUT], None, None, True, 1], [1, [OUTPUT], None, None, True, 1]],
        [[1, [OUTPUT], None, None, True, 1]],
        [[0, [OUTPUT], None, {"a": 1}, True, 1]],
        [[0, [OUTPUT], None, None, False, 1]],
        [[0, None, [1, "no"], None, True, 1]],
        [[0, [], None, None, True, 1]],
    ],
)
def test_what_is_not_the_usual_result_is_looked_at_each_time(answers):
    assert reading(answers).plain is None


@pytest.mark.parametrize("output", [["Y", "FP32", [3], 64, 8], ["Y", "FP32", [2], -64, 8]])
def test_a_usual_result_whose_bytes_do_not_fit_is_refused(output):
    with pytest.raises(ValueError, match="tensor 'Y'"):
        reading([[0, [output], None, None, True, 1]])


def test_an_empty_output_has_no_bytes_wherever_it_is_said_to_be():
    one = reading([[0, [["Y", "FP32", [0], 640, 0]], None, None, True, 1]])
    [tensor] = placed(one.plain, b"")
    assert (tensor.shape, tensor.data) == ((0,), b"")
