"""Forests as their own libraries have written them (write_files.py), and damaged ones."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.errors import InferdError, InvalidConfig, Unsupported
from inferd.formats.trees.ensemble import check_trees, encode_ensemble
from inferd.formats.trees.treelite import read_treelite
from inferd.formats.trees.xgboost import read_xgboost_binary

FILES = Path(__file__).resolve().parent / "files"
ANSWERS = dict(np.load(FILES / "answers.npz"))
READERS = {"model": read_xgboost_binary, "tl": read_treelite}
NAMES = sorted(name for name in ANSWERS if not name.endswith("asked"))


def read(name, content=None):
    return READERS[name.rpartition(".")[2]](content or (FILES / name).read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_a_forest_answers_as_its_library_does(name):
    model = encode_ensemble(read(name), "x", "y")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    [got] = session.run(None, {"x": ANSWERS[f"{name} asked"]})
    np.testing.assert_allclose(got, ANSWERS[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["dart.model", "random.tl"])
def test_a_file_that_is_cut_off_is_told(name):
    content = (FILES / name).read_bytes()
    end = len(content) if name.endswith(".tl") else 1567  # what follows in the other is not read
    for size in range(0, end, 7):
        with pytest.raises(InvalidConfig, match=r"^the file is no (binary model of|checkpoint of)"):
            read(name, content[:size] or b"\0")


@given(name=st.sampled_from(["dart.model", "lightgbm.tl", "kinds_xgboost.tl"]), data=st.data())
def test_damaged_files_are_read_or_refused(name, data):
    content = bytearray((FILES / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InferdError):
        check_trees(read(name, bytes(content)))


def test_a_value_that_damage_made_no_number_is_refused():
    """A signalling NaN, of which NumPy warns where it is multiplied."""
    content = bytearray((FILES / "dart.model").read_bytes())
    content[1382] = 127
    with pytest.raises(InferdError):
        check_trees(read("dart.model", bytes(content)))


def test_an_old_score_is_as_trees_sum_it():
    content = bytearray((FILES / "binary.model").read_bytes().removeprefix(b"binf"))
    content[:4] = np.float32(0.25).tobytes()
    assert read("binary.model", bytes(content)).base == [pytest.approx(np.log(0.25 / 0.75))]
    content[20:24] = bytes(4)  # the major version that wrote it
    assert read("binary.model", bytes(content)).base == [0.25]


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("binary.model", b"binary:logistic", b"binary:logistix", "objective 'binary:logistix'"),
        ("binary.model", b"gbtree", b"gblime", "booster 'gblime' of XGBoost"),
        ("xgboost.tl", b"sigmoid", b"sigmund", "the transformation 'sigmund' of Treelite"),
        ("xgboost.tl", b"\1\0\0\0\1\0\0\0", b"\2\0\0\0\1\0\0\0", "2 targets of [1] classes"),
        ("xgboost.tl", b"\2\2\2\0\0\0\0", b"\2\3\2\0\0\0\0", "comparisons other than all <"),
    ],
)
def test_what_is_not_exact_is_refused(name, old, new, told):
    content = (FILES / name).read_bytes()
    assert old in content
    with pytest.raises(Unsupported) as refused:
        read(name, content.replace(old, new, 1))
    assert told in refused.value.message


def test_another_version_of_checkpoints_is_told():
    content = (FILES / "xgboost.tl").read_bytes()
    with pytest.raises(InvalidConfig, match=r"it says version 3\..* of the format, expected 4"):
        read("xgboost.tl", b"\3" + content[1:])
