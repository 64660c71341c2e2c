"""Files of events: lines of JSON, or rows of Parquet, limited in size and number."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from inferd.errors import InvalidConfig
from inferd.observe.payloads.event import PayloadEvent, as_line


class EventFile:
    """Appends to the file `path`; full, it becomes PATH.1, that one PATH.2, up to `count` files."""

    def __init__(self, path: Path, file_bytes: int, count: int) -> None:
        self._path = path
        self._file_bytes = file_bytes
        self._count = count
        self._descriptor = -1
        self._size = 0

    def open(self) -> None:
        """See PayloadSink."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        # Payloads are what clients sent in confidence.
        self._descriptor = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def write(self, event: PayloadEvent, attributes: dict[str, str]) -> None:
        """See PayloadSink."""
        line = as_line(event, attributes)
        size = sum(map(len, line))
        if self._descriptor < 0:
            self.open()
        if self._size and self._size + size > self._file_bytes:
            self._rotate()
        start = self._size
        try:
            self._size += os.writev(self._descriptor, line)  # as one, and without joining them
            if missing := start + size - self._size:
                view = memoryview(b"".join(line))[-missing:]
                while view:
                    count = os.write(self._descriptor, view)
                    self._size += count
                    view = view[count:]
        except OSError:
            os.ftruncate(self._descriptor, start)  # no half lines
            self._size = start
            raise

    def _rotate(self) -> None:
        self.close()
        shift(self._path, self._count)
        self.open()

    def close(self) -> None:
        """See PayloadSink."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def shift(path: Path, count: int) -> None:
    """Make room for a new file `path`: it becomes PATH.1, that one PATH.2, up to `count` files."""
    files = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, count))]
    files[-1].unlink(missing_ok=True)
    # From the oldest on, or each would overwrite the next.
    for newer, older in reversed(list(pairwise(files))):
        if newer.exists():
            newer.replace(older)


COLUMNS = (
    "id",
    "type",
    "source",
    "time",
    "datacontenttype",
    "modelname",
    "modelversion",
    "protocol",
    "inferenceheadercontentlength",
    "truncated",
    "fullsize",
    "inferenceservicename",
    "namespace",
    "component",
    "endpoint",
)
"""The attributes that have a column, all of them texts."""

# Larger groups compress and read better, but their rows are in memory, and lost if the process is
# killed.
_GROUP_BYTES = 8 << 20
"""With about so much, rows are written to the file."""

_ROW_BYTES = 200


class PartLost(Exception):
    """A file could not be written to, and is lost with all that is in it."""


class EventTable:
    """Writes to PATH.part, which becomes `path` when it is full, or closed; see EventFile."""

    suffix: ClassVar[str] = ".parquet"

    def __init__(self, path: Path, file_bytes: int, count: int) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        self._file_bytes = file_bytes
        self._count = count
        self._writer: Any = None
        self._rows: list[dict[str, Any]] = []
        self._row_bytes = 0
        self._written_bytes = 0
        self._written_count = 0

    def open(self) -> None:
        """See PayloadSink."""
        try:
            # pyarrow is large, and most servers do not write Parquet.
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            msg = "--payload-log: Parquet needs pyarrow: pip install 'inferd[tables]'"
            raise InvalidConfig(msg) from error
        texts = [pyarrow.field(name, pyarrow.string()) for name in COLUMNS]
        schema = pyarrow.schema([*texts, pyarrow.field("data", pyarrow.binary())])
        # Made before ParquetWriter does, for the rights that it would not give.
        self._part.touch(mode=0o600)
        self._writer = pyarrow.parquet.ParquetWriter(self._part, schema)
        self._written_bytes = self._written_count = 0

    def write(self, event: PayloadEvent, attributes: dict[str, str]) -> None:
        """See PayloadSink."""
        if self._writer is None:
            self.open()
        row: dict[str, Any] = {name: attributes.get(name) for name in COLUMNS}
        self._rows.append(row | {"data": event.data})
        self._row_bytes += len(event.data) + _ROW_BYTES
        if self._written_bytes + self._row_bytes >= self._file_bytes:
            self.close()
        elif self._row_bytes >= _GROUP_BYTES:
            self._write_rows()

    @contextmanager
    def _in_part(self) -> Iterator[None]:
        """Give up the file if it cannot be written to. Raises PartLost.

        pyarrow can neither go on with such a file nor end it, so that nobody could read it.
        """
        try:
            yield
        except Exception as error:
            writer, self._writer = self._writer, None
            with suppress(Exception):
                writer.close()
            self._part.unlink(missing_ok=True)
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise PartLost(
                f"{self._part.name} is lost, with {self._written_count} payloads: {reason}"
            ) from error

    def _write_rows(self) -> None:
        import pyarrow

        rows, self._rows = self._rows, []
        self._written_count += len(rows)
        self._written_bytes += self._row_bytes
        self._row_bytes = 0
        if rows:
            table = pyarrow.Table.from_pylist(rows, self._writer.schema)
            with self._in_part():
                self._writer.write_table(table)

    def close(self) -> None:
        """See PayloadSink."""
        if self._writer is None:
            return
        self._write_rows()
        with self._in_part():
            self._writer.close()
        self._writer = None
        # A file without rows would push a useful one out.
        if self._written_bytes:
            shift(self._path, self._count)
            # Parquet has its index at the end, so a file is readable only once it is closed: until
            # then it has another name.
            self._part.replace(self._path)
        else:
            self._part.unlink()
