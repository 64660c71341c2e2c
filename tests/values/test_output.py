"""Tensors as text."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.values.output import is_stream, json_value, plain_array, save, tensor_text, write_whole


def tensor(values, datatype=DataType.FP32):
    return Tensor.from_numpy("y", np.asarray(values, datatype.numpy), datatype)


def test_a_small_tensor_is_shown_whole():
    assert (
        tensor_text(tensor([[0.1, 2], [3, 4]])) == "y  FP32 [2,2]\n  [[0.1, 2. ],\n   [3. , 4. ]]\n"
    )


def test_of_a_large_one_the_ends_and_the_range_are_shown():
    text = tensor_text(tensor(np.arange(1000)))
    assert (
        text
        == "y  FP32 [1000]  0 to 999, mean 499.5\n  [  0.,   1.,   2., ..., 997., 998., 999.]\n"
    )
    values = np.zeros(1000)
    values[3] = np.nan
    assert "0 to 0, mean 0, 1 not finite" in tensor_text(tensor(values))
    assert "none of 100 is finite" in tensor_text(tensor(np.full(100, np.inf)))
    assert "1 of 100 true" in tensor_text(tensor(np.arange(100) == 1, DataType.BOOL))


def test_strings_are_lines_and_bytes_are_marked():
    text = tensor_text(tensor([b"a\nb", b"\xff"], DataType.BYTES))
    assert text == "y  BYTES [2]\n  'a\\nb'\n  b'\\xff'\n"
    many = tensor_text(tensor([b"%d" % one for one in range(100)], DataType.BYTES))
    assert "  ... 80 more\n" in many and many.count("\n") == 22
    assert "... (1000 bytes)" in tensor_text(tensor([b"x" * 1000], DataType.BYTES))


@pytest.mark.parametrize("width", [20, 40, 80])
def test_lines_are_no_longer_than_the_terminal(width):
    text = tensor_text(tensor(np.linspace(0, 1, 50)), width)
    assert max(map(len, text.splitlines())) <= max(width, 22)


def test_json_has_the_shortest_decimals_and_null_for_nan():
    assert json_value(tensor([0.1, 2])) == [0.1, 2.0]
    assert json_value(tensor([np.nan, 1])) == [None, 1.0]
    assert json_value(tensor([[b"a", b"\xff"]], DataType.BYTES)) == [["a", "\\xff"]]
    assert json_value(tensor([True], DataType.BOOL)) == [True]


def test_bf16_are_shown_as_floats():
    assert plain_array(Tensor("y", DataType.BF16, (1,), np.array([0x3F80], "<u2"))).tolist() == [1]


def test_outputs_may_be_called_as_numpys_own_words_are(tmp_path):
    names = ("file", "allow_pickle", "a/b", "args")
    file = tmp_path / "o.npz"
    ones = np.ones(2, np.float32)
    save(str(file), [Tensor.from_numpy(one, ones, DataType.FP32) for one in names])
    with np.load(file) as found:
        assert sorted(found.files) == sorted(names) and found["file"].tolist() == [1, 1]


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
@pytest.mark.parametrize("values", [[b"a\0"], [b"\xff\0"], [b"\0", b"b"]])
def test_strings_that_numpy_would_cut_are_refused(tmp_path, suffix, values):
    with pytest.raises(InvalidRequest, match="end in NUL"):
        save(str(tmp_path / f"o{suffix}"), [tensor(values, DataType.BYTES)])
    save(str(tmp_path / f"p{suffix}"), [tensor([b"a\0b"], DataType.BYTES)])


def test_a_pipe_is_written_and_a_link_followed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", b"abc")
    assert os.read(reading, 9) == b"abc" and (tmp_path / "pipe").is_fifo()
    os.close(reading)
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to("kept/file")
    for content in (b"1", b"2"):
        write_whole(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "kept/file").read_bytes() == content
    assert is_stream(Path("/dev/null")) and not is_stream(tmp_path)
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as shared:
        assert not is_stream(Path(shared.name))
