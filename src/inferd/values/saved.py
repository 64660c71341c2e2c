"""Answers as files: .npz, .npy, .json, .csv, .txt, written whole or not at all."""

import csv
import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from inferd.errors import InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.values.shown import json_value, plain_array

SUFFIXES = (".npz", ".npy", ".json", ".csv", ".bin")


def check_suffix(file: str) -> None:
    """Raise InvalidRequest unless `file` can be written: known by its suffix, in a folder there."""
    path = Path(file)
    if path.suffix.lower() not in SUFFIXES:
        msg = f"--output {file}: the name is to end in one of {', '.join(SUFFIXES)}"
        raise InvalidRequest(msg)
    folder = path.parent
    if not folder.is_dir():
        msg = f"--output {file}: there is no folder {folder}"
        raise InvalidRequest(msg)
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


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all. Raises InvalidRequest."""
    # In the same folder, since replace() is atomic only within a file system.
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            beside.write_bytes(content)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}; name another place"
        raise InvalidRequest(msg) from error


def _npz(tensors: Sequence[Tensor]) -> bytes:
    out = io.BytesIO()
    # The ignore: NumPy's stubs take the names of outputs for its own keyword, allow_pickle.
    np.savez(out, **{one.name: _storable(one) for one in tensors})  # type: ignore[arg-type,unused-ignore]
    return out.getvalue()


def _npy(tensors: Sequence[Tensor]) -> bytes:
    out = io.BytesIO()
    # allow_pickle=False: a file that has to be unpickled runs code, and
    # NumPy refuses to read it by default.
    np.save(out, _storable(_only(tensors, ".npy", ".npz")), allow_pickle=False)
    return out.getvalue()


def _bin(tensors: Sequence[Tensor]) -> bytes:
    return bytes(_only(tensors, ".bin", ".npz").view())


def _storable(tensor: Tensor) -> Array:
    """Return an array that can be saved without pickling: strings with a fixed length."""
    array = plain_array(tensor)
    if tensor.datatype is not DataType.BYTES:
        return array
    flat = array.ravel().tolist()
    try:
        # Text if it can be, so that whoever reads the file gets str.
        return np.array([one.decode() for one in flat], np.str_).reshape(array.shape)
    except UnicodeDecodeError:
        if any(one.endswith(b"\0") for one in flat):  # numpy would drop it
            msg = f"output '{tensor.name}' has bytes that .npz cannot hold: write .json or .bin"
            raise InvalidRequest(msg) from None
        return np.array(flat, np.bytes_).reshape(array.shape)


def _only(tensors: Sequence[Tensor], suffix: str, better: str) -> Tensor:
    if len(tensors) != 1:
        names = ", ".join(f"'{one.name}'" for one in tensors)
        msg = f"{suffix} holds one array, and the answer has {len(tensors)} ({names}): "
        msg += f"write {better}, or ask for one with --outputs NAME"
        raise InvalidRequest(msg)
    return tensors[0]


def _json(tensors: Sequence[Tensor]) -> bytes:
    document = {
        one.name: {
            "datatype": one.datatype.value,
            "shape": list(one.shape),
            "data": json_value(one),
        }
        for one in tensors
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _csv(tensors: Sequence[Tensor]) -> bytes:
    """Return a column for each value of a row: NAME, or NAME_0, NAME_1 ... of several."""
    names: list[str] = []
    columns: list[list[object]] = []
    for one in tensors:
        flat = plain_array(one)
        rows = flat.reshape(flat.shape[0] if flat.ndim else 1, -1)
        for at in range(rows.shape[1]):
            names.append(one.name if rows.shape[1] == 1 else f"{one.name}_{at}")
            columns.append([_cell(each) for each in rows[:, at].tolist()])
    if len({len(column) for column in columns}) > 1:
        msg = "the outputs have different numbers of rows: write .npz"
        raise InvalidRequest(msg)
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
