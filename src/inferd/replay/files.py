"""The files of a payload log, lines of JSON or a table in Parquet: each event by its place."""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from inferd.errors import InvalidConfig

RawEvent = bytes | dict[str, Any]
"""A line of JSON, or the columns of a row that have a value."""


class LogFile(Protocol):
    """One file. Its methods raise OSError."""

    def events(self) -> Iterator[tuple[int, RawEvent]]:
        """Yield all events, each after its place."""
        ...

    def event(self, place: int) -> RawEvent:
        """Return the event at `place`."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


def open_log(path: Path) -> LogFile:
    """Open a file by its name. Raises OSError, and InvalidConfig if pyarrow is needed."""
    return ParquetLog(path) if is_table(path) else JsonLog(path)


def is_table(path: Path) -> bool:
    """Return whether a file is in Parquet, by its name."""
    # Full files of a rotated log are called FILE.1, FILE.2, ...
    name = path.with_suffix("") if path.suffix[1:].isdigit() else path
    return name.suffix == ".parquet"


class JsonLog:
    """Lines of JSON; see LogFile. A place is where a line begins."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    def events(self) -> Iterator[tuple[int, RawEvent]]:
        """See LogFile."""
        place = 0
        for line in self._file:
            yield place, line
            place += len(line)

    def event(self, place: int) -> RawEvent:
        """See LogFile."""
        self._file.seek(place)
        return self._file.readline()

    def close(self) -> None:
        """See LogFile."""
        self._file.close()


@contextmanager
def _as_os_error() -> Iterator[None]:
    """Say as any file would that a table is damaged, or no table."""
    import pyarrow

    try:
        yield
    except pyarrow.ArrowException as error:
        raise OSError(str(error)) from error


class ParquetLog:
    """A table in Parquet; see LogFile. A place is the number of a row, from 0."""

    def __init__(self, path: Path) -> None:
        try:
            # pyarrow is large, and most logs are lines.
            import pyarrow.parquet
        except ImportError as error:
            msg = f"{path} needs pyarrow to be read: pip install 'inferd[tables]'"
            raise InvalidConfig(msg) from error
        with _as_os_error():
            self._file = pyarrow.parquet.ParquetFile(path)
        metadata = self._file.metadata
        sizes = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
        self._starts = list(accumulate(sizes, initial=0))
        self._kept: tuple[int, Any] = (-1, None)

    def events(self) -> Iterator[tuple[int, RawEvent]]:
        """See LogFile."""
        for place in range(self._starts[-1]):
            yield place, self.event(place)

    def event(self, place: int) -> RawEvent:
        """See LogFile."""
        group = bisect_right(self._starts, place) - 1
        # A group can only be read as a whole, and the next event is mostly in the same one.
        if self._kept[0] != group:
            with _as_os_error():
                self._kept = group, self._file.read_row_group(group)
        [row] = self._kept[1].slice(place - self._starts[group], 1).to_pylist()
        return {name: value for name, value in row.items() if value is not None}

    def close(self) -> None:
        """See LogFile."""
        self._file.close()
