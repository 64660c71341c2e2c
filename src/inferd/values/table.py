"""Tables as inputs: CSV, and Parquet with the extra inferd[tables]."""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from inferd.errors import InvalidRequest
from inferd.tensor.array import Array
from inferd.values.value import objects

SUFFIXES = (".csv", ".tsv", ".parquet", ".pq")


def read_table(file: Path, *, as_texts: bool = False) -> dict[str, Array]:
    """Return a column [rows] for each name; without names one array [rows, columns] as "".

    Columns are int64, float64, bool or strings (objects); what is missing is NaN, or "" among
    strings. With `as_texts`, all cells of text files are strings as they are written there, such
    as 007. Raises InvalidRequest and OSError.
    """
    if not is_text_table(file):
        return _read_parquet(file)
    try:
        return _read_csv(file, _strings if as_texts else _column)
    except OverflowError as error:
        msg = f"{file} has {error}, a number beyond what float64 can say"
        raise InvalidRequest(msg) from None


def is_text_table(file: Path) -> bool:
    """Return whether cells are written as text, so that nothing tells numbers from strings."""
    return file.suffix.lower() in (".csv", ".tsv")


def joined_columns(columns: Mapping[str, Array | None], source: str) -> Array:
    """Return columns as one array [rows, columns]: of numbers, or of strings if one has such.

    Raises InvalidRequest for columns that are not one number or string a row.
    """
    arrays = [one for one in columns.values() if one is not None]
    if any(one.ndim != 1 for one in arrays):
        raise InvalidRequest(f"{source} has columns with more than one value a row")
    if any(one.dtype.kind == "O" for one in arrays):
        arrays = [one if one.dtype.kind == "O" else _texts(one) for one in arrays]
    return np.stack(arrays, axis=1)


def _texts(column: Array) -> Array:
    return objects([str(one).encode() for one in column.tolist()])


def _read_csv(file: Path, made: Callable[[list[str]], Array]) -> dict[str, Array]:
    try:
        # utf-8-sig: Excel writes a byte order mark. newline="" leaves
        # line ends in quotes alone (csv).
        with file.open(encoding="utf-8-sig", newline="") as opened:
            delimiter = "\t" if file.suffix.lower() == ".tsv" else _delimiter(opened.readline())
            opened.seek(0)
            rows = [row for row in csv.reader(opened, delimiter=delimiter) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidRequest(f"{file} cannot be read as a table: {error}") from error
    if not rows:
        raise InvalidRequest(f"{file} has no rows")
    width = len(rows[0])
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            msg = f"{file}: row {number} has {len(row)} values, the first has {width}"
            raise InvalidRequest(msg)
    # A first row of numbers has no names of columns.
    if all(_number(cell) is not None for cell in rows[0]):
        columns = [made([row[index] for row in rows]) for index in range(width)]
        return {"": joined_columns(dict(zip(map(str, range(width)), columns, strict=True)), "")}
    names = [name.strip() for name in rows[0]]
    if len(set(names)) < width:
        raise InvalidRequest(f"{file}: the first row names a column twice")
    if len(rows) == 1:
        raise InvalidRequest(f"{file} has names of columns, but no rows")
    return {name: made([row[at] for row in rows[1:]]) for at, name in enumerate(names)}


def _delimiter(line: str) -> str:
    """Return what parts the columns: the one of , ; and tab that is there most often."""
    # Semicolons are what Excel writes where the comma is the decimal point.
    return max(",;\t", key=line.count)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _column(cells: list[str]) -> Array:
    filled = [cell for cell in cells if cell.strip()]
    if filled and all(cell.strip().lower() in ("true", "false") for cell in filled):
        if len(filled) == len(cells):
            return np.array([cell.strip().lower() == "true" for cell in cells])
        return _strings(cells)
    # An empty cell is a missing number, as in pandas.
    numbers = [_number(cell) if cell.strip() else float("nan") for cell in cells]
    if not filled or any(one is None for one in numbers):
        return _strings(cells)
    if len(filled) == len(cells):
        # Signed first, as that is what most models have.
        for kind in (np.int64, np.uint64):
            try:
                return np.array([int(cell) for cell in cells], kind)
            except (ValueError, OverflowError):
                continue
    for cell, number in zip(cells, numbers, strict=True):
        # The words for infinity have an n, numbers have none.
        if number in (float("inf"), float("-inf")) and "n" not in cell.lower():
            raise OverflowError(cell.strip()[:50])
    return np.array(numbers, np.float64)


def _strings(cells: list[str]) -> Array:
    return objects([cell.encode() for cell in cells])


def _read_parquet(file: Path) -> dict[str, Array]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        msg = f"reading {file} needs pyarrow: pip install 'inferd[tables]'"
        raise InvalidRequest(msg) from error
    import pyarrow

    try:
        table = pyarrow.parquet.read_table(file)
    except (pyarrow.ArrowException, ValueError) as error:
        raise InvalidRequest(f"{file} cannot be read as Parquet: {error}") from error
    return {name: _arrow_column(table.column(name), name, file) for name in table.column_names}


def _arrow_column(column: Any, name: str, file: Path) -> Array:
    import pyarrow

    # Categories, as pandas writes them, are numbers with a list of what they mean.
    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    is_text = pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)
    if is_text or pyarrow.types.is_binary(kind):
        cells = column.to_pylist()
        return objects([one.encode() if isinstance(one, str) else one or b"" for one in cells])
    array: Array = column.to_numpy()
    if array.dtype.kind == "O":  # lists: rows of one length, as embeddings are
        try:
            array = np.stack([np.asarray(one) for one in array])
        except ValueError:
            array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        msg = f"{file}: column '{name}' holds {kind}, which is neither numbers nor strings"
        raise InvalidRequest(msg)
    return array
