"""DayHistory: what happened in each second of the last hour, and in each minute of the last day.

It is in memory, of bounded size, and ends with its process. Numbers are in arrays, or Python's
garbage collector would have fifty thousand of them to look at.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from inferd.ui.figures.percentiles import added, percentiles

MOST_SECONDS = 3600
MOST_MINUTES = 1440
MINUTE = 60

Value = int | float | None

_INT, _FLOAT, _PAIR = "q", "d", "Q"
_NONE = -1  # stands for None; nothing that is shown is negative
_BUCKET_BITS = 9


class Row(msgspec.Struct, array_like=True):
    """What happened in one second, or minute, which ended with `second` since 1970.

    `success`, `failure` and `refused` are counts of requests. `cpu` is in cores, memory in bytes.
    `pending` inferences were under way, `queued` ones waited for their execution. `gpu` is from 0
    to 1, and None without one. `durations` are those of successful requests, by fine bucket.
    """

    second: int
    success: int = 0
    failure: int = 0
    refused: int = 0
    cpu: float = 0.0
    memory: float = 0
    pending: float = 0
    queued: float = 0
    connections: float = 0
    gpu: float | None = None
    gpu_memory: float | None = None
    durations: dict[int, int] = {}


_FLOATS = ("cpu", "pending", "queued", "connections", "gpu")
_MEANS = ("cpu", "memory", "pending", "queued", "connections", "gpu", "gpu_memory")


def shown(row: Row) -> dict[str, Value]:
    """Return a row as it is shown: times are in ms."""
    p50, p95, p99 = percentiles(row.durations)
    return {
        "time": row.second * 1000,
        "success": row.success,
        "failure": row.failure,
        "refused": row.refused,
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "cpu": round(row.cpu, 3),
        "memory": int(row.memory),
        "pending": round(row.pending, 2),
        "queued": round(row.queued, 2),
        "connections": round(row.connections, 2),
        "gpu": None if row.gpu is None else round(row.gpu, 3),
        "gpu_memory": None if row.gpu_memory is None else int(row.gpu_memory),
    }


COLUMNS = tuple(shown(Row(0)))
"""What is shown of a row."""


def in_a_minute(rows: Sequence[Row]) -> Row:
    """Return the row of a minute: counts are added, what holds for a time is its mean."""
    minute = Row(
        rows[-1].second // MINUTE * MINUTE,
        sum(row.success for row in rows),
        sum(row.failure for row in rows),
        sum(row.refused for row in rows),
        durations=added(row.durations for row in rows),
    )
    for name in _MEANS:
        values = _known(rows, name)
        setattr(minute, name, sum(values) / len(values) if values else None)
    return minute


def at_the_same_time(rows: Sequence[Row]) -> Row:
    """Return what happened in all processes of a server; they have the GPUs in common."""
    whole = Row(rows[0].second, durations=added(row.durations for row in rows))
    # All but the GPUs' are each process's own.
    for name in ("success", "failure", "refused", *_MEANS[:5]):
        setattr(whole, name, sum(getattr(row, name) for row in rows))
    for name in ("gpu", "gpu_memory"):
        setattr(whole, name, max(_known(rows, name), default=None))
    return whole


def _known(rows: Iterable[Row], name: str) -> list[Any]:
    return [value for row in rows if (value := getattr(row, name)) is not None]


class RowTable:
    """The last rows, as columns; with `has_durations` the rows can be made again."""

    def __init__(self, most: int, *, has_durations: bool) -> None:
        self._most = most
        self._columns: dict[str, array[Any]] = {
            name: array(_FLOAT if name in _FLOATS else _INT) for name in COLUMNS
        }
        self._durations: deque[bytes] | None = deque(maxlen=most) if has_durations else None

    def append(self, row: Row) -> None:
        """Add a row, which is later than those before."""
        for name, value in shown(row).items():
            self._columns[name].append(_NONE if value is None else value)
        if self._durations is not None:
            self._durations.append(_packed(row.durations))
        # Cut from time to time and not at each row, as that would move all of them.
        if len(self._columns["time"]) > self._most + self._most // 8:
            for column in self._columns.values():
                del column[: -self._most]

    def last(self) -> int:
        """Return the second of the last row, 0 if there is none."""
        return self._columns["time"][-1] // 1000 if self._columns["time"] else 0

    def columns(self) -> dict[str, list[Value]]:
        """Return all columns."""
        return {
            name: _shown_values(column[-self._most :]) for name, column in self._columns.items()
        }

    def between(self, after: int, before: int) -> dict[str, list[Value]]:
        """Return the columns of seconds later than `after` and earlier than `before`."""
        times = self._columns["time"]
        end = bisect_left(times, before * 1000)
        start = min(end, max(bisect_right(times, after * 1000), len(times) - self._most))
        return {name: _shown_values(column[start:end]) for name, column in self._columns.items()}

    def newest(self, name: str, count: int) -> list[Value]:
        """Return the last values of a column."""
        return _shown_values(self._columns[name][-count:])

    def rows(self, after: int = 0) -> list[Row]:
        """Return the rows of later seconds than `after`; only if it has durations."""
        times = self._columns["time"]
        durations = self._durations or ()
        first = len(times)
        least = max(0, first - len(durations))
        # From the end, since most readers want the last second.
        while first > least and times[first - 1] > after * 1000:
            first -= 1
        count = len(times) - first
        packed = list(durations)[len(durations) - count :]
        return [self._row(first + at, one) for at, one in enumerate(packed)]

    def _row(self, at: int, packed: bytes) -> Row:
        row = Row(self._columns["time"][at] // 1000, durations=_unpacked(packed))
        for name in ("success", "failure", "refused", *_MEANS):
            value = self._columns[name][at]
            # Only a GPU may be missing; everywhere else -1 cannot be.
            setattr(row, name, None if value == _NONE and name.startswith("gpu") else value)
        return row


class DayHistory:
    """The last hour, in `seconds`, and day, in `minutes` that are over.

    Rows are added in the order of their seconds.

    `has_durations`: they can be added to those of other processes, which takes 2 MB at most.
    """

    def __init__(self, *, has_durations: bool = False) -> None:
        self._has_durations = has_durations
        self._clear()

    def _clear(self) -> None:
        self.seconds = RowTable(MOST_SECONDS, has_durations=self._has_durations)
        self.minutes = RowTable(MOST_MINUTES, has_durations=self._has_durations)
        self._of_minute: list[Row] = []

    @property
    def last(self) -> int:
        """The second of the last row, 0 if there is none."""
        return self.seconds.last()

    def add(self, row: Row) -> None:
        """Add a second. Once the clock has been put back, what was before is forgotten."""
        if row.second <= self.last:
            # A second that was there already, or a clock that was set back by less than two:
            # dropped.
            if row.second >= self.last - 1:
                return
            self._clear()
        if self._of_minute and self._of_minute[-1].second // MINUTE != row.second // MINUTE:
            self.minutes.append(in_a_minute(self._of_minute))
            self._of_minute.clear()
        self._of_minute.append(row)
        self.seconds.append(row)

    def latest(self) -> dict[str, Value] | None:
        """Return the last second as it is shown, None before the first."""
        found = {name: self.seconds.newest(name, 1) for name in COLUMNS}
        return {name: one[0] for name, one in found.items()} if found["time"] else None

    def columns(self) -> dict[str, dict[str, list[Value]]]:
        """Return all of it, as lists of columns."""
        return {"second": self.seconds.columns(), "minute": self.minutes.columns()}


def _shown_values(values: "array[Any]") -> list[Value]:
    return [None if one == _NONE else one for one in values]


def _packed(durations: dict[int, int]) -> bytes:
    return array(
        # Bucket and count in one integer: an array of them instead of a dict for each second.
        _PAIR,
        [count << _BUCKET_BITS | bucket for bucket, count in durations.items()],
    ).tobytes()


def _unpacked(data: bytes) -> dict[int, int]:
    least = (1 << _BUCKET_BITS) - 1
    return {pair & least: pair >> _BUCKET_BITS for pair in array(_PAIR, data)}
