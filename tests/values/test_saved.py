"""Answers as files."""

import json

import numpy as np
import pytest

from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.values.output import check_suffix, save

FLOATS = Tensor.from_numpy("y", np.array([[0.5], [2]], np.float32), DataType.FP32)
TEXTS = Tensor.from_numpy("t", np.array([b"a", b"\xc3\xa4"], object), DataType.BYTES)


def saved(tmp_path, name, *tensors):
    file = str(tmp_path / name)
    check_suffix(file)
    assert save(file, tensors) == (tmp_path / name).stat().st_size
    assert [one.name for one in tmp_path.iterdir()] == [name]
    return tmp_path / name


def test_npz_has_every_output_and_needs_no_pickle(tmp_path):
    with np.load(saved(tmp_path, "o.npz", FLOATS, TEXTS)) as arrays:
        assert arrays["y"].tolist() == [[0.5], [2]] and arrays["t"].tolist() == ["a", "ä"]


def test_bytes_that_numpy_would_cut_are_refused(tmp_path):
    odd = Tensor.from_numpy("t", np.array([b"\xff\0"], object), DataType.BYTES)
    with pytest.raises(InvalidRequest, match=r"write .json or .bin"):
        save(str(tmp_path / "o.npz"), [odd])


def test_npy_and_bin_have_one(tmp_path):
    assert np.load(saved(tmp_path, "o.npy", FLOATS)).tolist() == [[0.5], [2]]
    (tmp_path / "o.npy").unlink()
    assert saved(tmp_path, "o.bin", FLOATS).read_bytes() == FLOATS.view()
    with pytest.raises(InvalidRequest, match=r"the answer has 2 \('y', 't'\): write .npz"):
        save(str(tmp_path / "o.npy"), [FLOATS, TEXTS])


def test_json_says_datatype_and_dims(tmp_path):
    document = json.loads(saved(tmp_path, "o.json", FLOATS, TEXTS).read_text())
    assert document["y"] == {"datatype": "FP32", "shape": [2, 1], "data": [[0.5], [2.0]]}
    assert document["t"]["data"] == ["a", "ä"]


@pytest.mark.parametrize(("shape", "header"), [((0,), "n"), ((0, 2), "n_0,n_1")])
def test_csv_of_no_rows_has_the_names(tmp_path, shape, header):
    none = Tensor.from_numpy("n", np.empty(shape, np.float32), DataType.FP32)
    assert saved(tmp_path, "o.csv", none).read_text() == f"{header}\n"


def test_csv_has_a_column_for_each_value_of_a_row(tmp_path):
    wide = Tensor.from_numpy("w", np.array([[1, 2], [3, 4]]), DataType.INT64)
    text = saved(tmp_path, "o.csv", FLOATS, TEXTS, wide).read_text()
    assert text == "y,t,w_0,w_1\n0.5,a,1,2\n2.0,ä,3,4\n"
    short = Tensor.from_numpy("s", np.array([1]), DataType.INT64)
    with pytest.raises(InvalidRequest, match="different numbers of rows"):
        save(str(tmp_path / "o.csv"), [FLOATS, short])


def test_a_place_that_cannot_be_written_is_named_before_and_after(tmp_path):
    with pytest.raises(InvalidRequest, match=r"end in one of .npz, .npy"):
        check_suffix(str(tmp_path / "o.xyz"))
    with pytest.raises(InvalidRequest, match="there is no folder"):
        check_suffix(str(tmp_path / "none" / "o.npz"))
    (tmp_path / "o.npz").mkdir()
    with pytest.raises(InvalidRequest, match="cannot write"):
        save(str(tmp_path / "o.npz"), [FLOATS])
    assert [one.name for one in tmp_path.iterdir()] == ["o.npz"]
