"""The forms of InferResponseHeader say the same, and NV-Status fits into a header."""

import numpy as np
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.proto import message_class
from inferd.wire.trtis.answer import MAX_LINE_BYTES, Answer, head_piece, joined, raw_piece
from inferd.wire.trtis.classes import classes_piece
from inferd.wire.trtis.http import CODE_NAMES, StatusLine

HEADER = message_class("nvidia.inferenceserver.InferResponseHeader")
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)
sizes = st.integers(0, 2**62)


def parsed(text):
    return text_format.Parse(text.decode("ascii"), HEADER())


@given(names, st.integers(0, 9), st.integers(0, 2**64 - 1), st.lists(sizes, max_size=3), sizes)
def test_all_forms_say_the_same(name, version, number, dims, size):
    pieces = [head_piece(name, str(version), 3), raw_piece(name, tuple(dims), size)]
    values = np.float32([[1.5, np.inf, -0.0], [np.nan, 1e-40, 2]])
    tensor = Tensor.from_numpy(name, values, DataType.FP32)
    pieces.append(classes_piece(tensor, 2, [name.encode(), b"", b"\xff"], 1))
    answer = Answer(joined(pieces), number, [b"", None])
    message = HEADER.FromString(answer.message())
    expected = str(message)  # which has nan as a word
    assert b"\n" not in answer.line()
    assert str(parsed(answer.line())) == str(parsed(answer.lines())) == expected
    assert (message.model_name, message.id, message.batch_size) == (name, number, 3)
    assert list(message.output[0].raw.dims) == dims
    assert message.output[0].raw.batch_byte_size == size


def test_a_line_that_grew_too_long_leaves_the_classes_to_the_body():
    values = np.arange(2000, dtype=np.float32)
    piece = classes_piece(Tensor.from_numpy("O", values, DataType.FP32), 2000, (), 0)
    answer = Answer(joined([head_piece("m", "1", 1), piece]), 9, [None])
    assert len(answer.lines()) > MAX_LINE_BYTES
    told = parsed(answer.line())
    assert (told.model_name, told.output[0].name, told.id) == ("m", "O", 9)
    assert not told.output[0].batch_classes
    assert len(parsed(answer.lines()).output[0].batch_classes[0].cls) == 2000


@given(names, st.text(max_size=3000), st.integers(2, 8), st.integers(1, 2**63))
def test_a_status_is_a_line_of_ascii(server, text, code, number):
    for line in (
        StatusLine(server).success(number),
        StatusLine(server).failure(code, text, number),
    ):
        assert line.endswith(b"\r\n")
        name, value = line[:-2].decode("ascii").split(": ", 1)
        assert name == "NV-Status"
        assert value.isprintable()
        status = message_class("nvidia.inferenceserver.RequestStatus")()
        text_format.Parse(value, status)
        assert (status.server_id, status.request_id) == (server, number)
        assert status.code in (1, code)
    assert CODE_NAMES[code] in value
