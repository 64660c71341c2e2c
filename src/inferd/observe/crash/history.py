"""History: the crashes of a server so far, and which models they are put down to."""

import os
from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated

import msgspec

from inferd.observe.family import Family

# One crash may have any cause; see docs/decisions/0031-crash-record.md.
WITHIN_S = 3600.0
"""Two crashes of a model within this time isolate it."""

MAX_CRASHES = 32
MAX_BYTES = 1 << 20

ModelVersion = tuple[str, str]
"""The name of a model and one of its versions."""


class Crash(msgspec.Struct, frozen=True):
    """One end of a server: when, of what kind, and the versions that may have caused it."""

    at_s: float
    kind: str
    models: Annotated[list[ModelVersion], msgspec.Meta(max_length=MAX_CRASHES)]


class History(msgspec.Struct):
    """The last crashes, in order, and the `count` of all."""

    count: int = 0
    crashes: Annotated[list[Crash], msgspec.Meta(max_length=MAX_CRASHES)] = []

    def add(self, crash: Crash) -> None:
        """Add a crash; the oldest beyond MAX_CRASHES is forgotten."""
        self.count += 1
        self.crashes = [*self.crashes, crash][-MAX_CRASHES:]

    def times_of(self, model: ModelVersion) -> list[float]:
        """Return when the crashes were that may have been caused by `model`."""
        return sorted(crash.at_s for crash in self.crashes if model in crash.models)

    def isolated(self) -> frozenset[ModelVersion]:
        """Return the versions with two crashes within WITHIN_S."""
        models = {model for crash in self.crashes for model in crash.models}
        return frozenset(model for model in models if _are_close(self.times_of(model)))


def _are_close(times_s: Iterable[float]) -> bool:
    return any(after - before <= WITHIN_S for before, after in pairwise(times_s))


def crash_families(history: History) -> list[Family]:
    """Return the metrics of earlier crashes."""
    return [
        Family(
            "inferd_crash_total",
            "counter",
            "Ends of earlier processes of this server that nobody had asked for",
            [("", history.count)],
            # Each process counts the ends that it found when it began, so the sum would count them
            # again.
            "most",  # each process knows of those before it began
        )
    ]


def read_history(descriptor: int) -> History:
    """Return the history in a file, a new one if it is empty. Raises ValueError."""
    # One byte more than allowed tells a longer file without reading it.
    data = os.pread(descriptor, MAX_BYTES + 1, 0)
    if not data:
        return History()
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    try:
        return msgspec.json.decode(data, type=History)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


def write_history(descriptor: int, history: History) -> None:
    """Write the history to a file."""
    data = msgspec.json.encode(history)
    os.pwrite(descriptor, data, 0)
    # Written before it is cut: if the process ends in between, garbage follows and is refused, but
    # what was there is not lost to an empty file.
    os.ftruncate(descriptor, len(data))
