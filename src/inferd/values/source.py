"""Inputs as people write them: NAME=VALUE on the command line, files of many kinds as arrays."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from inferd.errors import InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DATATYPES, DataType
from inferd.values.picture import SUFFIXES as PICTURES
from inferd.values.picture import read_picture
from inferd.values.table import SUFFIXES as TABLES
from inferd.values.table import is_text_table, joined_columns, read_table
from inferd.values.value import InputValue, cast, objects

_MOST_DIMS = 64  # what NumPy's arrays have at most


def read_json(body: bytes, source: str) -> dict[str, InputValue]:
    """Read a V2 request, an object of arrays by name, or one array."""
    try:
        document = json.loads(body, parse_float=_float)
    except ValueError as error:
        raise InvalidRequest(f"{source} is no JSON: {error}") from None
    except OverflowError as error:
        raise _too_large(source, error) from None
    except RecursionError:
        raise InvalidRequest(f"{source} is nested too deeply") from None
    # An inference request as the protocol has it, copied from a log or from documentation.
    if isinstance(document, dict) and isinstance(document.get("inputs"), list):
        return _v2_inputs(document["inputs"], source)
    if isinstance(document, dict):
        return {
            str(name): InputValue(source, json_array(values, f"{source}: '{name}'"))
            for name, values in document.items()
        }
    return {"": InputValue(source, json_array(document, source))}


def _float(text: str) -> float:
    """Return a number of JSON with a point or an exponent."""
    number = float(text)
    # JSON's own words for infinity do not come here.
    if math.isinf(number):
        raise OverflowError(text[:50])
    return number


def _too_large(source: str, error: OverflowError) -> InvalidRequest:
    return InvalidRequest(f"{source} has {error}, a number beyond what float64 can say")


def _v2_inputs(entries: list[object], source: str) -> dict[str, InputValue]:
    found: dict[str, InputValue] = {}
    for entry in entries:
        name, value = _v2_input(entry, source)
        if name in found:
            raise InvalidRequest(f"{source} has input '{name}' twice")
        found[name] = value
    return found


def _v2_input(entry: object, source: str) -> tuple[str, InputValue]:
    """Return the name and value of an entry of a V2 request's inputs."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise InvalidRequest(f"{source}: each of the inputs is to be an object with a name")
    name = entry["name"]
    datatype = DATATYPES.get(str(entry.get("datatype")))
    if datatype is None:
        msg = f"{source}: input '{name}' has datatype '{entry.get('datatype')}', which there is not"
        raise InvalidRequest(msg)
    if "data" not in entry:
        raise InvalidRequest(f"{source}: input '{name}' has no data")
    array = json_array(entry["data"], f"{source}: '{name}'")
    try:
        array = cast(array, datatype).reshape(entry.get("shape", -1))
    except (ValueError, TypeError, OverflowError) as error:
        msg = f"{source}: input '{name}' does not fit its datatype and shape: {error}"
        raise InvalidRequest(msg) from None
    return name, InputValue(source, array, datatype)


def json_array(values: Any, what: str) -> Array:
    """Return nested lists of numbers, booleans or strings as an array; a scalar has dims [1].

    Numbers are int64, uint64 or float64; strings are objects. Raises InvalidRequest for rows of
    different lengths, and for objects and null.
    """
    flat, shape = _flat(values, what)
    # By the exact type and not isinstance, for which True is an int.
    kinds = {type(one) for one in flat}
    if kinds <= {str}:
        # JSON may escape a lone surrogate; the model is to get it as it is written.
        array = objects([one.encode(errors="surrogatepass") for one in flat])
    # Before the numbers: a bool is an int in Python, and NumPy would mix them.
    elif kinds == {bool}:
        array = np.array(flat, bool)
    elif kinds <= {int, float}:
        array = _numbers(flat, what)
    else:
        names = ", ".join(sorted(_JSON_KINDS.get(kind, kind.__name__) for kind in kinds))
        msg = f"{what} mixes or has {names}: an input is all numbers, all booleans or all strings"
        raise InvalidRequest(msg)
    return array.reshape(shape or (1,))


_JSON_KINDS = {type(None): "null", dict: "objects", str: "strings", bool: "booleans"}
_JSON_KINDS |= {int: "numbers", float: "numbers"}


def _numbers(flat: list[Any], what: str) -> Array:
    if all(type(one) is int for one in flat):
        # Signed first, as that is what most models have.
        for kind in (np.int64, np.uint64):
            try:
                return np.array(flat, kind)
            except OverflowError:
                continue
        raise InvalidRequest(f"{what} has an integer beyond 64 bits")
    try:
        # Whole numbers stay what they are, also those that are written with a point.
        if any(one != float(one) for one in flat) and all(one == one // 1 for one in flat):
            return _numbers([int(one) for one in flat], what)
        return np.array(flat, np.float64)
    except OverflowError:
        raise InvalidRequest(f"{what} has a number beyond what float64 can say") from None


def _flat(values: Any, what: str) -> tuple[list[Any], tuple[int, ...]]:
    """Return the elements of nested lists in row-major order, and the dims."""
    shape: list[int] = []
    level = [values]
    while level and all(isinstance(one, list) for one in level):
        # NumPy would take all this over, but says nothing of where lists have
        # different lengths, and guesses a type.
        lengths = {len(one) for one in level}
        if len(lengths) > 1:
            raise InvalidRequest(f"{what} has rows of different lengths: {_some(sorted(lengths))}")
        shape.append(lengths.pop())
        if len(shape) > _MOST_DIMS:
            raise InvalidRequest(f"{what} is nested too deeply")
        level = [inner for one in level for inner in one]
    if any(isinstance(one, list) for one in level):
        raise InvalidRequest(f"{what} mixes lists and values")
    return level, tuple(shape)


def _some(values: list[int]) -> str:
    return ", ".join(map(str, values[:5])) + (", ..." if len(values) > 5 else "")


STDIN = "-"


def read_inputs(
    words: Iterable[str], stdin: Callable[[], bytes] = lambda: sys.stdin.buffer.read()
) -> dict[str, InputValue]:
    """Return the inputs that `words` give: NAME=@FILE, NAME=JSON, or @FILE for several at once.

    NAME:DATATYPE says the datatype, for models that declare none.

    The name is "" for the only input of a model. Raises InvalidRequest.
    """
    found: dict[str, InputValue] = {}
    for word in words:
        for name, value in _read_word(word, stdin).items():
            if name in found:
                msg = f"input '{name}' is given twice: in {found[name].source} and {value.source}"
                raise InvalidRequest(msg)
            found[name] = value
    return found


def _read_word(word: str, stdin: Callable[[], bytes]) -> Mapping[str, InputValue]:
    if word.startswith("@"):
        return read_file(word[1:], stdin)
    name, equals, text = word.partition("=")
    plain, _, kind = name.rpartition(":")
    # Only known datatypes: TensorFlow's names of tensors have a colon, too.
    if plain and kind in DATATYPES:
        [value] = _read_word(f"{plain}={text}", stdin).values()
        return {plain: _typed(value, DATATYPES[kind])}
    if not equals or not name:
        raise InvalidRequest(f"--input {word} is neither NAME=VALUE nor NAME=@FILE nor @FILE")
    if not text.startswith("@"):
        return {name: InputValue(f"--input {name}", _inline(text))}
    path, member = text[1:], ""
    # Not at any colon: names of files may have some.
    if ".npz:" in path:
        path, _, member = path.rpartition(":")
    values = read_file(path, stdin)
    # A name for a whole table: its columns side by side are one input.
    if len(values) > 1 and Path(path).suffix.lower() in TABLES:
        columns = {column: value.array for column, value in values.items()}
        return {name: InputValue(path, joined_columns(columns, path), texts=_texts(Path(path)))}
    if member:
        if member not in values:
            raise InvalidRequest(f"{path} has no array '{member}', but {_names(values)}")
        return {name: values[member]}
    if len(values) != 1:
        msg = f"{path} has {_names(values)}: give it as --input @{path}"
        msg += f", or one of them as --input {name}=@{path}:NAME" if path.endswith(".npz") else ""
        raise InvalidRequest(msg)
    return {name: next(iter(values.values()))}


def _typed(value: InputValue, datatype: DataType) -> InputValue:
    """Return a value in the datatype that the command line says."""
    if value.array is None:
        return value
    if datatype is DataType.BYTES and value.texts is not None:
        return value._replace(array=value.texts(), datatype=datatype)
    try:
        return value._replace(array=cast(value.array, datatype), datatype=datatype)
    except (ValueError, OverflowError, TypeError) as error:
        raise InvalidRequest(f"{value.source} cannot be {datatype.value}: {error}") from None


def _names(values: Mapping[str, InputValue]) -> str:
    shown = ", ".join(f"'{name}'" for name in list(values)[:8])
    more = len(values) - 8
    return f"{len(values)} arrays, {shown}{f' and {more} more' if more > 0 else ''}"


def _inline(text: str) -> Array:
    """Return what is written on the command line: JSON, and what is none is a string."""
    try:
        return json_array(json.loads(text, parse_float=_float), "the value")
    except OverflowError as error:
        raise _too_large("the value", error) from None
    except RecursionError:
        raise InvalidRequest("the value is nested too deeply") from None
    except ValueError:
        # What was typed, also if it is no UTF-8.
        return np.array([text.encode(errors="surrogateescape")], object)


def read_file(path: str, stdin: Callable[[], bytes]) -> dict[str, InputValue]:
    """Return the arrays of a file; "" is the name of one that has none. Raises InvalidRequest.

    The suffix says what it is; what has none of ours is bytes, for a model that takes such.
    """
    if path == STDIN:
        return read_json(stdin(), "standard input")
    file = Path(path)
    suffix = file.suffix.lower()
    try:
        if file.is_dir():
            raise InvalidRequest(f"{path or '.'} is a folder: name a file in it")
        if not file.is_file() and file.exists():  # whose size says nothing
            msg = f"{path} is a pipe or a device, no file: @- reads JSON from standard input"
            raise InvalidRequest(msg)
        # Said here, as each reader has its own, less plain, error for it.
        if not file.stat().st_size:
            raise InvalidRequest(f"{path} is empty (0 bytes)")
        return _read_known(file, path, suffix)
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise InvalidRequest(f"{path} does not fit into memory: send fewer rows at once") from error


def _read_known(file: Path, path: str, suffix: str) -> dict[str, InputValue]:
    if suffix in (".npy", ".npz"):
        return _read_numpy(file, path)
    if suffix in (".json", ".jsonl"):
        return read_json(file.read_bytes(), path)
    if suffix in TABLES:
        columns = read_table(file)
        if not columns:
            raise InvalidRequest(f"{path} has no columns")
        return {
            name: InputValue(path, column, texts=_texts(file, name))
            for name, column in columns.items()
        }
    if suffix in PICTURES:
        return {
            "": InputValue(path, read_picture(file), is_picture=True, content=file.read_bytes())
        }
    if suffix == ".txt":
        lines = file.read_bytes().splitlines()
        return {"": InputValue(path, objects(lines))}
    return {"": InputValue(path, None, content=file.read_bytes())}


def _texts(file: Path, column: str | None = None) -> Callable[[], Array] | None:
    """Return what reads a column, or all of them, as strings; None if the file tells its kinds."""
    if not is_text_table(file):
        return None

    def texts() -> Array:
        cells = read_table(file, as_texts=True)
        return joined_columns(cells, str(file)) if column is None else cells[column]

    return texts


def _read_numpy(file: Path, path: str) -> dict[str, InputValue]:
    """Return the array of a .npy file, mapped and not read, or the arrays of a .npz file."""
    try:
        if file.suffix.lower() == ".npy":
            # np.load refuses pickles, which run code, unless it is told otherwise.
            return {"": InputValue(path, np.load(file, mmap_mode="r"))}
        # Opened here, as np.load leaves the file open if it is no archive.
        with file.open("rb") as opened, np.load(opened) as arrays:
            return {name: InputValue(f"{path}:{name}", arrays[name]) for name in arrays.files}
    except (OSError, MemoryError):
        raise
    # NumPy lets through what its parts raise: zipfile, the decompressors, Python's tokenizer.
    except Exception as error:
        raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> InvalidRequest:
    text = str(error)
    if "allow_pickle" in text or "pickle" in text.lower():
        text = "it holds Python objects, which would have to be unpickled; save numbers or bytes"
    return InvalidRequest(f"{path} cannot be read as NumPy's file: {text}")
