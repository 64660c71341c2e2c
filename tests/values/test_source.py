"""NAME=VALUE and files of every kind as inputs."""

import json

import numpy as np
import pytest

from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.values.source import read_inputs


def read(*words, stdin=b""):
    return read_inputs(words, lambda: stdin)


def only(*words, stdin=b""):
    [value] = read(*words, stdin=stdin).values()
    return value.array


def refused(*words, stdin=b""):
    with pytest.raises(InvalidRequest) as caught:
        read(*words, stdin=stdin)
    return str(caught.value)


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("x=3", [3]),
        ("x=[1, 2.5]", [1, 2.5]),
        ("x=[[1],[2]]", [[1], [2]]),
        ("x=true", [True]),
        ("x=hello", [b"hello"]),
        ('x="3"', [b"3"]),
        ("x=a=b", [b"a=b"]),
        ("x=", [b""]),
    ],
)
def test_values_are_json_and_else_a_string(word, values):
    assert read(word)["x"].array.tolist() == values


def test_a_npy_file_is_mapped_and_a_member_of_npz_is_named(tmp_path):
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "rows.npy", rows)
    np.savez(tmp_path / "all.npz", a=rows, b=rows[0])
    assert (only(f"x=@{tmp_path}/rows.npy") == rows).all()
    assert isinstance(only(f"x=@{tmp_path}/rows.npy"), np.memmap)
    assert (only(f"x=@{tmp_path}/all.npz:b") == rows[0]).all()
    assert sorted(read(f"@{tmp_path}/all.npz")) == ["a", "b"]
    said = refused(f"x=@{tmp_path}/all.npz")
    assert "2 arrays, 'a', 'b'" in said and f"x=@{tmp_path}/all.npz:NAME" in said
    assert "has no array 'c'" in refused(f"x=@{tmp_path}/all.npz:c")


def test_a_v2_request_says_datatypes_and_dims(tmp_path):
    entry = {"name": "x", "datatype": "INT8", "shape": [1, 2], "data": [1, 2]}
    (tmp_path / "r.json").write_text(json.dumps({"inputs": [entry]}))
    value = read(f"@{tmp_path}/r.json")["x"]
    assert value.datatype is DataType.INT8 and value.array.dtype == np.int8
    assert value.array.tolist() == [[1, 2]]


def test_a_name_may_have_a_datatype():
    value = read("x:FP16=[1,2]")["x"]
    assert value.datatype is DataType.FP16 and value.array.dtype == np.float16
    assert read("a:b=1")["a:b"].datatype is None
    assert "2.5 is no INT8" in refused("x:INT8=2.5")


def test_standard_input_is_json():
    assert only("x=@-", stdin=b"[1,2]").tolist() == [1, 2]
    assert read("@-", stdin=b'{"a": [1], "b": ["t"]}')["b"].array.tolist() == [b"t"]


def test_lines_are_strings_and_other_files_are_bytes(tmp_path):
    (tmp_path / "w.txt").write_text("one\ntwo\n")
    assert only(f"x=@{tmp_path}/w.txt").tolist() == [b"one", b"two"]
    (tmp_path / "w.raw").write_bytes(b"\0\1")
    assert read(f"x=@{tmp_path}/w.raw")["x"].content == b"\0\1"


def test_a_table_by_one_name_is_its_rows_and_else_its_columns(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2.5\n3,4\n")
    assert only(f"x=@{tmp_path}/t.csv").tolist() == [[1, 2.5], [3, 4]]
    assert read(f"@{tmp_path}/t.csv")["b"].array.tolist() == [2.5, 4]


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.json", "x.csv", "x.png", "x.raw"])
def test_empty_and_missing_files_are_named(tmp_path, name):
    file = tmp_path / name
    assert refused(f"x=@{file}") == f"cannot read {file}: No such file or directory"
    file.touch()
    assert refused(f"x=@{file}") == f"{file} is empty (0 bytes)"


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.json"])
def test_files_of_another_kind_are_named(tmp_path, name):
    file = tmp_path / name
    file.write_bytes(b"\x93NUMPY or not")
    assert str(file) in refused(f"x=@{file}")


def test_damaged_files_of_numpy_are_named(tmp_path):
    header = b"{'descr': '<f8', 'fortran_order': Fal#e, 'shape': (3,), }".ljust(117) + b"\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00" + header + bytes(24))
    assert f"{tmp_path}/x.npy cannot be read" in refused(f"x=@{tmp_path}/x.npy")
    np.savez_compressed(tmp_path / "x.npz", a=np.arange(100.0))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    at = content.index(b"a.npy") + 40
    content[at : at + 40] = b"\xff" * 40
    (tmp_path / "x.npz").write_bytes(content)
    assert f"{tmp_path}/x.npz cannot be read" in refused(f"x=@{tmp_path}/x.npz")
    np.savez(tmp_path / "x.npz", a=np.arange(3.0))
    content = (tmp_path / "x.npz").read_bytes()
    at = content.index(b"PK\x01\x02") + 10  # the method of compression
    (tmp_path / "x.npz").write_bytes(content[:at] + b"\x63" + content[at + 1 :])
    assert "compression method" in refused(f"x=@{tmp_path}/x.npz")


@pytest.mark.parametrize("depth", [65, 100_000])
def test_what_is_nested_too_deeply_is_refused(tmp_path, depth):
    text = "[" * depth + "]" * depth
    (tmp_path / "x.json").write_text(text)
    for word in (f"x={text}", f"x=@{tmp_path}/x.json"):
        assert "is nested too deeply" in refused(word)


def test_nothing_is_unpickled(tmp_path):
    np.save(tmp_path / "x.npy", np.array([object], object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", a=np.array([object], object))
    assert "unpickled" in refused(f"x=@{tmp_path}/x.npy")
    assert "unpickled" in refused(f"@{tmp_path}/x.npz")


def test_a_folder_a_word_without_a_name_and_a_name_twice_are_refused(tmp_path):
    assert "is a folder" in refused(f"x=@{tmp_path}")
    assert "neither NAME=VALUE" in refused("x")
    assert "given twice" in refused("x=1", "x=2")


@pytest.mark.parametrize("word", ["x=1e400", "x=[1, -1e999]"])
def test_numbers_of_json_that_no_float_can_say_are_refused(word):
    assert "a number beyond what float64 can say" in refused(word)
    assert read("x=[Infinity]")["x"].array.tolist() == [np.inf]


def test_whole_numbers_beside_one_with_a_point_stay_what_they_are():
    assert read("x=[9007199254740993, 1.0]")["x"].array.tolist() == [9007199254740993, 1]
    assert read("x=[9007199254740993, 0.5]")["x"].array.dtype == np.float64


def test_an_input_that_a_request_has_twice_is_refused(tmp_path):
    entry = {"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}
    (tmp_path / "r.json").write_text(json.dumps({"inputs": [entry, entry]}))
    assert refused(f"@{tmp_path}/r.json").endswith("has input 'x' twice")


def test_no_elements_are_of_any_datatype(tmp_path):
    entry = {"name": "x", "datatype": "FP32", "shape": [0, 3], "data": []}
    (tmp_path / "r.json").write_text(json.dumps({"inputs": [entry]}))
    array = only(f"@{tmp_path}/r.json")
    assert (array.shape, array.dtype) == ((0, 3), np.float32)


def test_cells_of_csv_are_strings_as_they_are_written_where_strings_are_wanted(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\nx,007\ny,1.50\n")
    texts = read(f"x=@{tmp_path}/t.csv")["x"].texts()
    assert texts.tolist() == [[b"x", b"007"], [b"y", b"1.50"]]
    assert read(f"@{tmp_path}/t.csv")["b"].texts().tolist() == [b"007", b"1.50"]
    (tmp_path / "b.csv").write_text("b\n007\n")
    assert only(f"b:BYTES=@{tmp_path}/b.csv").tolist() == [b"007"]
    assert only(f"b:INT32=@{tmp_path}/b.csv").tolist() == [7]


def test_what_is_no_file_is_not_said_to_be_empty():
    assert "/dev/null is a pipe or a device" in refused("x=@/dev/null")
