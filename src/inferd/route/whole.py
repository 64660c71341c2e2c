"""What all places answer to one call, made into one answer."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import astuple

from inferd.core.metadata import IndexEntry, ModelState
from inferd.errors import InferdError
from inferd.observe.statistics import BatchStatistics, MemoryUsage, ModelStatistics

K = TypeVar("K")
T = TypeVar("T")


class PlaceAnswer(NamedTuple):
    """What one place answered: a body, or an error with the status of the protocol.

    `is_silent`: it did not answer at all. `headers` are those of REST.
    """

    place: str
    body: bytes = b""
    status: int = 0
    error: str = ""
    is_failed: bool = False
    is_silent: bool = False
    headers: Mapping[str, str] = MappingProxyType({})


class NotDone(InferdError):
    """A call failed at some places, or at all; `status` is that of the first of them."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def done_everywhere(answers: Sequence[PlaceAnswer]) -> PlaceAnswer:
    """Return the first answer, if the call was done at all places.

    Raises NotDone, which says where it was not. If all places say the same, so does the error.
    """
    failed = [one for one in answers if one.is_failed]
    if not failed:
        return answers[0]
    first = failed[0]
    if len(failed) == len(answers) and all(one.error == first.error for one in failed):
        raise NotDone(first.status, first.error)
    texts = "; ".join(f"at {one.place}: {one.error}" for one in failed[1:])
    message = f"{first.error} (at {first.place}{'; ' + texts if texts else ''})"
    # Nothing is undone (docs/decisions/0036-route.md), so it is said where it was done.
    if done := ", ".join(one.place for one in answers if not one.is_failed):
        message += f"; done at {done}"
    raise NotDone(first.status, message)


def same_everywhere(answers: Sequence[PlaceAnswer], read: Callable[[bytes], object]) -> PlaceAnswer:
    """Return the first answer, if `read` finds the same in all of them. Raises NotDone."""
    first = done_everywhere(answers)
    for one in answers[1:]:
        # Compared as values: the order of JSON's keys says nothing.
        if read(one.body) != read(first.body):
            message = (
                f"the places differ: {first.place} has {_shown(read(first.body))}, "
                f"{one.place} has {_shown(read(one.body))}; change it here, for all of them"
            )
            raise NotDone(_CONFLICT, message)
    return first


_CONFLICT = 0
"""Instead of a status: the protocol's own for what is not available."""
_SHOWN = 300


def _shown(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def read_json(body: bytes) -> object:
    """Return what a body in JSON says. Raises InferdError."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InferdError(f"a place's answer is malformed: {error}") from error


def worst(answers: Sequence[PlaceAnswer]) -> PlaceAnswer:
    """Return the first answer that says that the call failed, else the first."""
    return next((one for one in answers if one.is_failed), answers[0])


def those_with_answers(answers: Sequence[PlaceAnswer]) -> list[PlaceAnswer]:
    """Return the answers that can be added: of the places that know what was asked for.

    Raises NotDone if none does.
    """
    found = [one for one in answers if not one.is_failed]
    if not found:
        # A place that refused says more than one that did not answer.
        spoken = [one for one in answers if not one.is_silent]
        done_everywhere(spoken or answers)
    return found


def whole_index(rows_of: Iterable[tuple[str, Sequence[IndexEntry]]]) -> list[IndexEntry]:
    """Return one index of those of all places, given by their names.

    A version is READY if it is at any place, since requests are sent there; the reason then says at
    which of the places that know it, it is not.
    """
    places = list(rows_of)
    found: dict[tuple[str, str], list[tuple[str, IndexEntry]]] = {}
    for place, rows in places:
        for row in rows:
            found.setdefault((row.name, row.version), []).append((place, row))
    versioned = {name for name, version in found if version}
    return [
        _row(name, version, entries, places)
        for (name, version), entries in found.items()
        # A place that has not loaded a model knows no version of it.
        if version or name not in versioned
    ]


def _row(
    name: str,
    version: str,
    entries: Sequence[tuple[str, IndexEntry]],
    places: Sequence[tuple[str, Sequence[IndexEntry]]],
) -> IndexEntry:
    states = [entry.state for _, entry in entries]
    state = ModelState.READY if ModelState.READY in states else states[0]
    others = [(place, one) for place, one in entries if one.state is not state]
    if state is not ModelState.READY and not others:
        return IndexEntry(name, version, state, entries[0][1].reason)
    texts = [
        f"at {place}: {one.state.value if one.state else 'not loaded'} {one.reason}".rstrip()
        for place, one in others
    ]
    having = {place for place, _ in entries}
    texts += [
        f"at {place}: not loaded"
        for place, rows in places
        if place not in having and any(one.name == name for one in rows)
    ]
    return IndexEntry(name, version, state, "; ".join(texts))


def whole_statistics(rows_of: Iterable[Sequence[ModelStatistics]]) -> list[ModelStatistics]:
    """Return the sum of the statistics of all places, by model and version."""
    found: dict[tuple[str, str], ModelStatistics] = {}
    for rows in rows_of:
        for row in rows:
            key = (row.name, row.version)
            found[key] = _added(found[key], row) if key in found else row
    return list(found.values())


def _added(one: ModelStatistics, other: ModelStatistics) -> ModelStatistics:
    return ModelStatistics(
        one.name,
        one.version,
        max(one.last_inference, other.last_inference),
        one.inference_count + other.inference_count,
        one.execution_count + other.execution_count,
        _sum(one.inference_stats, other.inference_stats),
        _sums([*one.response_stats.items(), *other.response_stats.items()]),
        _batches([*one.batch_stats, *other.batch_stats]),
        _memory([*one.memory_usage, *other.memory_usage]),
    )


def _sum(one: Any, other: Any) -> Any:
    """Add two numbers, or two structs or tuples of them, field by field."""
    if isinstance(one, int):
        return one + other
    if isinstance(one, tuple):
        return tuple(map(_sum, one, other))
    return type(one)(*map(_sum, astuple(one), astuple(other)))


def _sums(several: Iterable[tuple[K, T]]) -> dict[K, T]:
    """Add up what has the same key."""
    found: dict[K, T] = {}
    for key, value in several:
        found[key] = _sum(found[key], value) if key in found else value
    return found


def _batches(rows: Iterable[BatchStatistics]) -> list[BatchStatistics]:
    found = _sums((row.batch_size, astuple(row)[1:]) for row in rows)
    return [BatchStatistics(size, *found[size]) for size in sorted(found)]


def _memory(rows: Iterable[MemoryUsage]) -> list[MemoryUsage]:
    found = _sums(((row.type, row.id), row.byte_size) for row in rows)
    return [MemoryUsage(kind, number, size) for (kind, number), size in found.items()]
