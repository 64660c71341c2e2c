"""Trace files: traces in Triton's JSON form, written by a thread of their own.

A file is a complete JSON array between two writes: new traces go before its closing
bracket. So nothing has to be kept in memory until the server ends.
"""

import json
import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import prod
from pathlib import Path

import numpy as np
import orjson

from inferd import system
from inferd.errors import InvalidRequest
from inferd.observe.allowed import open_plain
from inferd.observe.complaints import Complaints
from inferd.observe.log import printable
from inferd.observe.tracing.backlog import LOGGER, Backlog
from inferd.observe.tracing.trace import Trace, TracedTensor
from inferd.tensor.dtype import DataType
from inferd.tensor.halves import half_to_float32
from inferd.tensor.tensor import Tensor


class TraceWriter(Backlog):
    """Writes finished traces to the files that their settings name.

    `own_file` is named by the operator; clients named all others, which are opened with more care.
    Other processes write to the same file if it `is_shared`, and have numbered files of their own.
    """

    def __init__(self, own_file: Path | None, *, is_shared: bool = False) -> None:
        super().__init__(self._write)
        self._is_shared = is_shared
        self._own_file = own_file
        self._files: dict[Path, TraceFile] = {}
        self._failed = Complaints(LOGGER, "traces were lost, because their file cannot be written")

    def _write(self, traces: Sequence[Trace]) -> None:
        for path, of_path in groupby(traces, lambda trace: trace.settings.file):
            some = list(of_path)
            try:
                # Tracer begins no trace without a file; the type allows for one.
                self._file(path or Path(os.devnull)).write(some)
            except OSError as error:
                self._failed.add(len(some), f": {error.strerror}")

    def _file(self, path: Path) -> "TraceFile":
        found = self._files.get(path)
        if found is None:
            by_client = path != self._own_file
            kind = SharedTraceFile if self._is_shared else TraceFile
            found = kind(path, is_named_by_client=by_client)
            self._files[path] = found
        return found


class TraceFile:
    """One trace file, or a series of numbered ones.

    An existing file is overwritten if the operator named it, and never if a client did.
    """

    def __init__(self, path: Path, *, is_named_by_client: bool) -> None:
        self._path = path
        self._is_named_by_client = is_named_by_client
        # What was opened once is there, even if nothing could be written to it.
        self._is_begun = False
        self._has_numbered = False
        self._number = 0
        self._count = 0  # traces in the numbered file being written

    def write(self, traces: Sequence[Trace]) -> None:
        """Write `traces`, whose settings name this file. Raises OSError."""
        texts = [(trace.settings.log_frequency, encode_trace(trace)) for trace in traces]
        for frequency, some in groupby(texts, lambda pair: pair[0]):
            of_frequency = [text for _, text in some]
            if frequency:
                self._write_numbered(of_frequency, frequency)
            else:
                descriptor = self._open(self._path, is_new=not self._is_begun)
                self._is_begun = True
                _append(descriptor, of_frequency)

    def _write_numbered(self, texts: Sequence[bytes], frequency: int) -> None:
        while texts:
            # A frequency that was lowered meanwhile must not stop the file from ending.
            room = max(1, frequency - self._count)
            now, texts = texts[:room], texts[room:]
            descriptor = self._open(self._numbered(), is_new=not self._has_numbered)
            self._has_numbered = True
            _append(descriptor, now)
            self._count += len(now)
            if self._count >= frequency:
                self._number += 1
                self._count = 0
                self._has_numbered = False

    def _numbered(self) -> Path:
        return self._path.with_name(f"{self._path.name}.{self._number}")

    def _open(self, path: Path, *, is_new: bool) -> int:
        if self._is_named_by_client:
            # A file that somebody has put there between the naming and now is not written to.
            return open_plain(path, os.O_EXCL if is_new else 0)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if is_new else 0)
        return os.open(path, flags, 0o666)


class SharedTraceFile(TraceFile):
    """A trace file that other processes of the server append to as well.

    No file is overwritten: who has to do it did before. A numbered one belongs to the process that
    made it; one that takes the place of another begins with the next number that is free.
    """

    def _numbered(self) -> Path:
        if not self._has_numbered:
            # By O_EXCL, which one process alone can win.
            while not _is_made(super()._numbered()):
                self._number += 1
            self._has_numbered = True
        return super()._numbered()

    def _open(self, path: Path, *, is_new: bool) -> int:
        del is_new
        descriptor = super()._open(path, is_new=False)
        # Advisory, between processes of one server, until it is closed: what they read of the end
        # must not change before they write.
        system.lock_file(descriptor, waits=True)
        return descriptor


def _is_made(path: Path) -> bool:
    """Make an empty file; return False if there is one. Raises OSError."""
    try:
        os.close(open_plain(path, os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _append(descriptor: int, texts: Sequence[bytes]) -> None:
    """Add the objects `texts` to the array in a file, and close that."""
    try:
        _put_before_the_bracket(descriptor, b",\n".join(texts))
    finally:
        os.close(descriptor)


def _put_before_the_bracket(descriptor: int, text: bytes) -> None:
    """Turn `[a]` into `[a,text]`; if writing fails, restore the file."""
    end = os.fstat(descriptor).st_size
    try:
        # The comma last: if the text cannot be written, the file is cut and is what it was.
        _write_all(descriptor, b"\n%b]" % text if end else b"[%b]" % text, end)
    except OSError:
        os.ftruncate(descriptor, end)
        raise
    if end:
        _write_all(descriptor, b",", end - 1)


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count


def encode_trace(trace: Trace) -> bytes:
    """Return the JSON objects of a trace and its children, separated by commas.

    The format is that of Triton's JSON Trace Output.
    """
    return b",".join(json.dumps(one, separators=(",", ":")).encode() for one in _objects(trace))


def _objects(trace: Trace, parent: Trace | None = None) -> Iterator[dict[str, object]]:
    head = {
        "id": trace.id,
        "model_name": trace.model,
        # Triton's model versions are numbers here, and -1 the latest: none has been chosen yet.
        "model_version": int(trace.version) if trace.version.isdigit() else -1,
        "request_id": trace.request_id,
    }
    yield head | {"parent_id": parent.id} if parent else head
    # Threads add stamps in any order; readers expect time.
    for name, ns in sorted(trace.stamps, key=lambda stamp: stamp[1]):
        yield {"id": trace.id, "timestamps": [{"name": name, "ns": ns}]}
    for one in trace.tensors:
        yield {"id": trace.id, "activity": one.activity, "tensor": _as_json(one)}
    for child in trace.children:
        yield from _objects(child, trace)


def _as_json(one: TracedTensor) -> dict[str, str]:
    tensor = one.tensor
    return {
        # Clients choose names, and people read this in terminals.
        "name": printable(tensor.name),
        "data": _data_text(tensor) if one.has_data else "",
        "shape": ",".join(map(str, tensor.shape)),
        "dtype": tensor.datatype.value,
    }


def _data_text(tensor: Tensor) -> str:
    """Return the elements, separated by commas; those of BYTES tensors as text, unquoted."""
    if tensor.datatype is DataType.BYTES:
        try:
            return ",".join(one.decode(errors="backslashreplace") for one in tensor.strings())
        except InvalidRequest:  # a model may return wrong lengths
            return ""
    array = tensor.numpy().reshape(prod(tensor.shape))
    if tensor.datatype in (DataType.FP16, DataType.BF16):
        # numpy and JSON have no such numbers.
        array = half_to_float32(array, tensor.datatype)
    elif tensor.datatype is DataType.BOOL:
        # The format has 0 and 1 for true and false.
        array = array.view(np.uint8)
    # orjson would write null.
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return ",".join(map(str, array.tolist()))
    # In C, where str() would be called for each element.
    return orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].decode()
