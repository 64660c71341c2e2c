"""Tables as columns."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from inferd.errors import InvalidRequest
from inferd.values.table import joined_columns, read_table
from inferd.values.value import objects


def columns(tmp_path, text, name="t.csv"):
    (tmp_path / name).write_text(text)
    return {name: one.tolist() for name, one in read_table(tmp_path / name).items()}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a,b\n1,x\n2,y\n", {"a": [1, 2], "b": [b"x", b"y"]}),
        ("a;b\n1;2.5\n", {"a": [1], "b": [2.5]}),
        ("1,2\n3,4\n", {"": [[1, 2], [3, 4]]}),
        ("a\ntrue\nFalse\n", {"a": [True, False]}),
        ("a\n1\n\n2\n", {"a": [1, 2]}),
        (f"a\n{2**64 - 1}\n{2**63 + 1}\n", {"a": [2**64 - 1, 2**63 + 1]}),
        ('"a, b"\n"1"\n', {"a, b": [1]}),
    ],
)
def test_a_csv_file_has_columns_or_only_rows(tmp_path, text, found):
    assert columns(tmp_path, text) == found


def test_what_is_missing_is_nan_or_an_empty_string(tmp_path):
    found = columns(tmp_path, "a,b\n1,x\n ,\n")
    assert found["b"] == [b"x", b""] and found["a"][0] == 1 and np.isnan(found["a"][1])


def test_cells_can_be_had_as_they_are_written(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("a,b\n007,\n1_0,2.50\n")
    found = {name: one.tolist() for name, one in read_table(file, as_texts=True).items()}
    assert found == {"a": [b"007", b"1_0"], "b": [b"", b"2.50"]}


def test_a_number_that_no_float_can_say_is_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="has -1e400, a number beyond"):
        columns(tmp_path, "a\n2\n-1e400\n")
    assert columns(tmp_path, "a\ninf\n-Infinity\n") == {"a": [np.inf, -np.inf]}
    assert columns(tmp_path, "a\n1e400\nx\n") == {"a": [b"1e400", b"x"]}


def test_tabs_part_the_columns_of_tsv(tmp_path):
    assert columns(tmp_path, "a,b\tc\n1\t2\n", "t.tsv") == {"a,b": [1], "c": [2]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1\n", "row 2 has 1 values, the first has 2"),
        ("a,a\n1,2\n", "names a column twice"),
        ("a,b\n", "but no rows"),
        ("\n\n", "has no rows"),
        ("\udcff", "cannot be read as a table"),
    ],
)
def test_files_that_are_no_table_are_refused(tmp_path, text, said):
    (tmp_path / "t.csv").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InvalidRequest, match=said):
        read_table(tmp_path / "t.csv")


def test_columns_are_joined_as_numbers_or_as_strings():
    numbers = {"a": np.array([1, 2]), "b": np.array([0.5, 1])}
    assert joined_columns(numbers, "it").tolist() == [[1, 0.5], [2, 1]]
    mixed = {"a": np.array([1]), "b": objects([b"x"])}
    assert joined_columns(mixed, "it").tolist() == [[b"1", b"x"]]
    with pytest.raises(InvalidRequest, match="more than one value a row"):
        joined_columns({"a": np.ones((2, 2))}, "it")


def test_parquet_has_columns_of_numbers_strings_and_lists(tmp_path):
    table = {"a": [1, 2], "b": [0.5, None], "t": ["x", "ä"], "v": [[1.0, 2.0], [3.0, 4.0]]}
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet")
    assert found["a"].tolist() == [1, 2] and found["v"].tolist() == [[1, 2], [3, 4]]
    assert found["b"][0] == 0.5 and np.isnan(found["b"][1])
    assert found["t"].tolist() == [b"x", "ä".encode()]


def test_parquet_of_other_kinds_is_refused(tmp_path):
    file = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"v": [[1.0], [2.0, 3.0]]}), file)
    with pytest.raises(InvalidRequest, match="column 'v' holds list"):
        read_table(file)
    file.write_bytes(b"no Parquet")
    with pytest.raises(InvalidRequest, match="cannot be read as Parquet"):
        read_table(file)


def test_categories_of_parquet_are_what_they_stand_for(tmp_path):
    file = tmp_path / "t.parquet"
    column = pyarrow.array(["x", "y", "x"]).dictionary_encode()
    pyarrow.parquet.write_table(pyarrow.table({"a": column}), file)
    assert read_table(file)["a"].tolist() == [b"x", b"y", b"x"]
