import msgspec
import pytest

from inferd.errors import InferdError
from inferd.observe.log_lines import LogLine
from inferd.ui.figures.history import Row
from inferd.ui.figures.notable import NotableRequest
from inferd.ui.figures.part import (
    DetailPart,
    FigureQuestion,
    GpuPart,
    ModelPart,
    ProcessPart,
    Seen,
    StepPart,
    decode_part,
    decode_question,
    encode_part,
    encode_question,
)

REQUEST = NotableRequest(5, "m", "1", "id", "failed", "no", "OTHER", 1, 2, 3, 4, 5, 6, 7, 8)


def test_a_question_arrives():
    question = FigureQuestion({"k y": Seen(1, 2, 3, 4)}, models=True, details=[("a b\n", "1")])
    assert decode_question(encode_question(question)) == question


def test_a_part_arrives():
    part = ProcessPart(
        "key",
        7,
        seconds=[Row(5, 1, gpu=0.5, durations={3: 4})],
        models=[ModelPart("<m>", "1", "READY", sums=[1] * 7, batch_sizes={8: 1}, memory=None)],
        gone=[("x", "")],
        lines=[LogLine(1, "info", "text", 7, "m:1")],
        requests=[REQUEST],
        details=[DetailPart("m", "1", {1: 2}, {}, {"OTHER": 1}, [REQUEST], None, 0, [], ["input"])],
        gpus=[GpuPart("H100", None, 5, 6)],
        seen=Seen(9, 8, 7, 6),
    )
    part.details[0].steps.append(StepPart("s", "1", 2, 3))
    assert decode_part(encode_part(part)) == part


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x90", msgspec.msgpack.encode({"key": 1})])
def test_what_is_no_part_is_refused(data):
    with pytest.raises(InferdError, match="figures of a process cannot be read"):
        decode_part(data)


def test_what_is_no_question_is_refused():
    with pytest.raises(InferdError, match="no question"):
        decode_question("{")
