"""What the server says when it has started: its models, and where it listens."""

from collections.abc import Iterator, Sequence

from inferd.core.metadata import IndexEntry, ModelState

_HEADER = ("Model", "Version", "State", "Reason")


def failures(index: Sequence[IndexEntry]) -> list[str]:
    """Return one text per model version that is not ready, with the reason."""
    return [_failure(entry) for entry in index if entry.state is not ModelState.READY]


def model_table(index: Sequence[IndexEntry]) -> list[str]:
    """Return the lines of a table of all model versions; a reason may take several lines."""
    if not index:
        return ["no models found"]
    rows = [_HEADER, *(row for entry in index for row in _rows(entry))]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]
        ).rstrip()
        for row in rows
    ]


def _rows(entry: IndexEntry) -> Iterator[tuple[str, str, str, str]]:
    first, *rest = entry.reason.splitlines() or [""]
    yield entry.name, entry.version or "-", _state(entry), first
    for line in rest:
        yield "", "", "", line


def _failure(entry: IndexEntry) -> str:
    version = f" version {entry.version}" if entry.version else ""
    return f"model '{entry.name}'{version} is {_state(entry)}: {entry.reason or 'no reason given'}"


def _state(entry: IndexEntry) -> str:
    return entry.state.value if entry.state else "NOT LOADED"
