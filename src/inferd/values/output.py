"""Answers as text for people, and as files.

The text has their kind, their values shortened, and what they range over. Files are .npz, .npy,
.json, .csv or .bin, written whole or not at all.
"""

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Sequence
from math import prod
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from inferd.errors import InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd.tensor.halves import bf16_to_float32
from inferd.tensor.tensor import Tensor, dims_text
from inferd.values.value import objects

MOST_SHOWN = 60
MOST_STRINGS = 20
LONGEST_STRING = 200


def tensor_text(tensor: Tensor, width: int = 80) -> str:
    """Return lines: name, datatype and dims, then the values; of many only those at the ends."""
    array = plain_array(tensor)
    head = f"{tensor.name}  {tensor.datatype.value} {dims_text(tensor.shape)}"
    if tensor.datatype is DataType.BYTES:
        lines = _string_lines(array, width)
    else:
        text = np.array2string(
            array,
            max_line_width=max(20, width - 2),
            threshold=MOST_SHOWN,
            edgeitems=3,
            precision=6,
            # At most six digits, fewer where these say it all.
            floatmode="maxprec",
            separator=", ",
        )
        lines = text.splitlines()
        if array.size > MOST_SHOWN:
            head += _range_text(array)
    return "\n".join([head, *(f"  {line}" for line in lines)]) + "\n"


def plain_array(tensor: Tensor) -> Array:
    """Return the elements as numpy has them: of BF16 float32 values, of BYTES `bytes` objects."""
    array = tensor.numpy()
    return bf16_to_float32(array) if tensor.datatype is DataType.BF16 else array


def json_value(tensor: Tensor) -> object:
    """Return the elements as nested lists; strings that are no UTF-8 with escapes, NaN as null."""
    array = plain_array(tensor)
    if tensor.datatype is DataType.BYTES:
        # JSON has no bytes, and a replacement character would not tell which they were.
        texts = [one.decode(errors="backslashreplace") for one in array.ravel()]
        return objects(texts).reshape(array.shape).tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        values = [one if np.isfinite(one) else None for one in array.ravel().tolist()]
        return objects(values).reshape(array.shape).tolist()
    if array.dtype == np.float32:  # the shortest decimals that are these floats, not their doubles
        shortest = np.array([float(str(one)) for one in array.ravel()], np.float64)
        return shortest.reshape(array.shape).tolist()
    return array.tolist()


def json_document(tensors: Iterable[Tensor]) -> dict[str, dict[str, object]]:
    """Return datatype, shape and elements of each tensor, by its name."""
    return {
        one.name: {
            "datatype": one.datatype.value,
            "shape": list(one.shape),
            "data": json_value(one),
        }
        for one in tensors
    }


def _range_text(array: Array) -> str:
    if array.dtype.kind == "b":
        return f"  {int(array.sum())} of {array.size} true"
    # The sum of an FP16 array overflows at 65,504.
    values = array.astype(np.float64) if array.dtype.kind == "f" else array
    odd = int(array.size - np.isfinite(values).sum()) if array.dtype.kind == "f" else 0
    if odd == array.size:
        return f"  none of {array.size} is finite"
    finite = values[np.isfinite(values)] if odd else values
    note = f", {odd} not finite" if odd else ""
    return f"  {finite.min():.6g} to {finite.max():.6g}, mean {finite.mean():.6g}{note}"


def _string_lines(array: Array, width: int) -> list[str]:
    flat = array.ravel().tolist()
    shown = flat if len(flat) <= MOST_STRINGS else flat[: MOST_STRINGS // 2]
    lines = [_string(one, width) for one in shown]
    if len(shown) < len(flat):
        lines.append(f"... {len(flat) - MOST_STRINGS} more")
        lines += [_string(one, width) for one in flat[-MOST_STRINGS // 2 :]]
    return lines


def _string(value: bytes, width: int) -> str:
    """Return a string in quotes, on one line; what is no text as bytes are written in Python."""
    try:
        # repr keeps control characters from reaching the terminal.
        text = repr(value.decode())
    except UnicodeDecodeError:
        text = repr(value)
    most = max(20, min(LONGEST_STRING, width * 2))
    if len(text) > most:
        return f"{text[:most]}... ({len(value)} bytes)"
    return text


SUFFIXES = (".npz", ".npy", ".json", ".csv", ".bin")


def check_suffix(file: str) -> None:
    """Raise InvalidRequest unless `file` can be written: known by its suffix, in a folder there."""
    path = Path(file)
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidRequest(f"--output {file}: the name is to end in one of {', '.join(SUFFIXES)}")
    folder = path.parent
    if not folder.is_dir():
        raise InvalidRequest(f"--output {file}: there is no folder {folder}")
    # Before the request is sent: an answer that took minutes should not be lost for that.
    if not os.access(folder, os.W_OK):
        msg = f"--output {file}: the folder {folder} cannot be written; name another"
        raise InvalidRequest(msg)


def save(file: str, tensors: Sequence[Tensor]) -> int:
    """Write `tensors` and return the size in bytes. Raises InvalidRequest."""
    path = Path(file)
    content = _WRITERS[path.suffix.lower()](tensors)
    write_whole(path, content)
    return len(content)


_DEVICES = (Path("/dev"), Path("/dev/fd"))


def is_stream(path: Path) -> bool:
    """Return whether `path` is a pipe or a device, or a name of one, such as /dev/stdout."""
    if not path.exists() or path.is_dir():
        return False
    # /dev/stdout may be a file; what lies in /dev/shm is one like any other.
    return not path.is_file() or path.absolute().parent in _DEVICES


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, or a device as it is. Raises InvalidRequest."""
    # What a link leads to; in the same folder, as replace() is atomic only within a file system.
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if is_stream(path):  # which a file in its place would end for all
            path.write_bytes(content)
            return
        try:
            beside.write_bytes(content)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}; name another place"
        raise InvalidRequest(msg) from error


def _npz(tensors: Sequence[Tensor]) -> bytes:
    out = io.BytesIO()
    # Not np.savez, which takes arrays as keywords: an output may be called as one of its own.
    with ZipFile(out, "w") as archive:
        for one in tensors:
            archive.writestr(f"{one.name}.npy", _saved(one))
    return out.getvalue()


def _npy(tensors: Sequence[Tensor]) -> bytes:
    return _saved(_only(tensors, ".npy", ".npz"))


def _saved(tensor: Tensor) -> bytes:
    out = io.BytesIO()
    # allow_pickle=False: a file that has to be unpickled runs code, and
    # NumPy refuses to read it by default.
    np.save(out, _storable(tensor), allow_pickle=False)
    return out.getvalue()


def _bin(tensors: Sequence[Tensor]) -> bytes:
    return bytes(_only(tensors, ".bin", ".npz").view())


def _storable(tensor: Tensor) -> Array:
    """Return an array that can be saved without pickling: strings with a fixed length."""
    array = plain_array(tensor)
    if tensor.datatype is not DataType.BYTES:
        return array
    flat = array.ravel().tolist()
    if any(one.endswith(b"\0") for one in flat):  # NumPy would drop it, of texts as of bytes
        msg = f"output '{tensor.name}' has strings that end in NUL, which NumPy's files cannot hold"
        raise InvalidRequest(f"{msg}: write .json or .bin")
    try:
        # Text if it can be, so that whoever reads the file gets str.
        return np.array([one.decode() for one in flat], np.str_).reshape(array.shape)
    except UnicodeDecodeError:
        return np.array(flat, np.bytes_).reshape(array.shape)


def _only(tensors: Sequence[Tensor], suffix: str, better: str) -> Tensor:
    if len(tensors) != 1:
        names = ", ".join(f"'{one.name}'" for one in tensors)
        msg = f"{suffix} holds one array, and the answer has {len(tensors)} ({names}): "
        msg += f"write {better}, or ask for one with --outputs NAME"
        raise InvalidRequest(msg)
    return tensors[0]


def _json(tensors: Sequence[Tensor]) -> bytes:
    return json.dumps(json_document(tensors), ensure_ascii=False).encode() + b"\n"


def _csv(tensors: Sequence[Tensor]) -> bytes:
    """Return a column for each value of a row: NAME, or NAME_0, NAME_1 ... of several."""
    names: list[str] = []
    columns: list[list[object]] = []
    for one in tensors:
        flat = plain_array(one)
        # Counted, as -1 is refused where there are no rows.
        rows = flat.reshape(flat.shape[0] if flat.ndim else 1, prod(flat.shape[1:]))
        for at in range(rows.shape[1]):
            names.append(one.name if rows.shape[1] == 1 else f"{one.name}_{at}")
            columns.append([_cell(each) for each in rows[:, at].tolist()])
    if len({len(column) for column in columns}) > 1:
        raise InvalidRequest("the outputs have different numbers of rows: write .npz")
    out = io.StringIO()
    # RFC 4180 says CRLF, but tools of a Unix shell would keep the CR in the last column.
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(zip(*columns, strict=True))
    return out.getvalue().encode()


def _cell(value: object) -> object:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


_WRITERS: dict[str, Callable[[Sequence[Tensor]], bytes]] = {
    ".npz": _npz,
    ".npy": _npy,
    ".json": _json,
    ".csv": _csv,
    ".bin": _bin,
}
