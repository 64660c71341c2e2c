"""Files whose numbers point to nothing: LiteRT itself is not needed to refuse them."""

import random
import struct
from pathlib import Path

import pytest

from inferd.backends.litert.backend import LitertBackend
from inferd.backends.litert.file import MAX_ITEMS, FlatTable, check_file
from inferd.config.model import ModelConfig
from inferd.core.interfaces import ModelFiles
from inferd.errors import InvalidConfig

ROOT = Path(__file__).parents[3]
FILES = [
    ROOT / "examples" / "platforms" / "digits.tflite",
    ROOT / "tests" / "platforms" / "files" / "types.tflite",
    ROOT / "tests" / "platforms" / "files" / "signatures.tflite",
]
FAR = 999
TENSORS, INPUTS, OUTPUTS, OPERATORS = 0, 1, 2, 3


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def content(request):
    return bytearray(request.param.read_bytes())


def model(content):
    return FlatTable(bytes(content), struct.unpack_from("<I", content)[0], [MAX_ITEMS])


def graph(content):
    return next(model(content).tables(2))


def write(content, table, field, number, at=0):
    """Write a number of a table, or one of a vector's."""
    place = table._at(field)
    if at is not None and field in (INPUTS, OUTPUTS):
        place = table._vector(field)[0] + 4 * at
    struct.pack_into("<i", content, place, number)


def refused(content):
    with pytest.raises(InvalidConfig) as caught:
        check_file(bytes(content), "model 'm', 'model.tflite'")
    return caught.value.message


def test_sound_files_pass(content):
    check_file(bytes(content), "m")


@pytest.mark.parametrize("number", [FAR, -1, -(2**31)])
@pytest.mark.parametrize("field", [INPUTS, OUTPUTS])
def test_a_graph_names_tensors_that_are_there(content, field, number):
    write(content, graph(content), field, number)
    assert f"graph 0: it names tensor {number} of" in refused(content)


def test_an_operator_takes_and_gives_tensors_that_are_there(content):
    operator = next(graph(content).tables(OPERATORS))
    before = bytes(content)
    write(content, operator, INPUTS, FAR)
    assert f"operator 0 takes tensor {FAR} of" in refused(content)
    content[:] = before
    write(content, operator, OUTPUTS, -1)
    assert "operator 0 gives tensor -1 of" in refused(content)
    content[:] = before
    write(content, operator, INPUTS, -1)
    assert "operator 0 lacks an input" in refused(content)


def test_only_a_bias_may_be_missing():
    content = bytearray(FILES[0].read_bytes())
    [operator, *_] = [one for one in graph(content).tables(OPERATORS) if len(one.numbers(1)) == 3]
    before = bytes(content)
    write(content, operator, INPUTS, -1, at=2)
    check_file(bytes(content), "m")
    content[:] = before
    write(content, operator, INPUTS, -1, at=1)
    assert "lacks an input" in refused(content)


def test_a_tensor_lies_in_a_buffer_that_is_there():
    content = bytearray(FILES[0].read_bytes())
    tensor = next(one for one in graph(content).tables(TENSORS) if one.number(2))
    struct.pack_into("<I", content, tensor._at(2), FAR)
    assert f"lies in buffer {FAR} of" in refused(content)


@pytest.mark.parametrize("keep", [8, 40, 0.3, 0.9])
def test_what_is_cut_off_is_told_or_left_to_litert(content, keep):
    size = keep if isinstance(keep, int) else int(keep * len(content))
    try:
        check_file(bytes(content[:size]), "m")
    except InvalidConfig as error:
        assert "cut off" in error.message or "no graph" in error.message  # noqa: PT017


def test_a_file_that_says_the_same_again_and_again_is_refused():
    content = bytearray(FILES[0].read_bytes())
    operator = next(graph(content).tables(OPERATORS))
    start, _ = operator._vector(INPUTS)
    struct.pack_into("<I", content, start - 4, MAX_ITEMS + 1)
    assert f"more than {MAX_ITEMS} parts" in refused(content)


def test_another_file_is_told():
    assert "is no TensorFlow Lite file" in refused(b"PK\x03\x04" + b"\0" * 99)
    assert "is no TensorFlow Lite file" in refused(b"")


def test_damage_of_any_kind_is_told_or_passes(content):
    dice, before = random.Random(7), bytes(content)
    for _ in range(500):
        content[:] = before
        for _ in range(dice.choice([1, 2, 9])):
            place = dice.randrange(len(content) - 4)
            content[place : place + 4] = dice.choice([b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0" * 4])
        try:
            check_file(bytes(content), "m")
        except InvalidConfig as error:
            assert error.message.startswith("m")  # noqa: PT017


def test_without_litert_the_file_is_checked(tmp_path):
    def report(file):
        return LitertBackend().read_offline(
            ModelFiles(tmp_path, 1, tmp_path, file), ModelConfig("m")
        )

    assert not report(FILES[0]).is_complete
    (tmp_path / "model.tflite").write_bytes(FILES[0].read_bytes()[:200])
    with pytest.raises(InvalidConfig, match=r"'model\.tflite'"):
        report(tmp_path / "model.tflite")
