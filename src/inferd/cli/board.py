"""Tables of a deployment in the terminal: live ones with rich, plain text without it."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from inferd.ray.status import DeploymentStatus, GroupStatus, ReplicaPlace, ReplicaStatus

_REPLICA_HEAD = ("replica", "phase", "node", "http", "grpc", "age", "req/s", "under way", "ms", "")
_PLACE_HEAD = ("place", "state", "host", "http", "grpc", "models")
_MOST_MODELS = 5


class Board(NamedTuple):
    """What is shown: tables with a title, column names and rows each, and lines below."""

    tables: Sequence[tuple[str, Sequence[str], Sequence[tuple[str, ...]]]]
    lines: Sequence[str]


class Screen(Protocol):
    """Shows one board after the other, in place of each other if it can."""

    def show(self, board: Board) -> None:
        """Show it."""
        ...


def status_board(status: "DeploymentStatus") -> Board:
    """Return the board of a deployment."""
    tables = [
        (_group_title(group), _REPLICA_HEAD, [_replica_row(each) for each in group.replicas])
        for group in status.groups
    ]
    lines = [f"{each.name}: {each.reason}" for each in status.groups if each.reason]
    return Board(tables, [*lines, *(f"warning: {each}" for each in status.warnings)])


def places_board(places: Iterable["ReplicaPlace"]) -> Board:
    """Return the board of what fronts are to know."""
    rows = []
    for each in places:
        models = "any" if each.models is None else _models(each.models)
        state = "draining" if each.is_draining else "ready"
        rows.append(
            (each.name, state, each.host, _port(each.http_port), _port(each.grpc_port), models)
        )
    title = "1 place" if len(rows) == 1 else f"{len(rows)} places"
    return Board([(title, _PLACE_HEAD, rows)], [])


def board_text(board: Board) -> str:
    """Return a board as plain text."""
    lines: list[str] = []
    for title, head, rows in board.tables:
        lines.append(title)
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        for row in (head, *rows) if rows else ():
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join([*lines, *board.lines]) + "\n"


def changes(before: "DeploymentStatus | None", now: "DeploymentStatus") -> Iterator[str]:
    """Yield a line for each replica that is in another phase than before, or has another reason."""
    known = {one.name: one for group in before.groups for one in group.replicas} if before else {}
    for group in now.groups:
        for one in group.replicas:
            last = known.pop(one.name, None)
            if last is None or (last.phase, last.reason) != (one.phase, one.reason):
                why = f": {one.reason}" if one.reason else ""
                where = f" on {one.node}" if one.node else ""
                yield f"{one.name} {one.phase}{where}{why}"
    for name in known:
        yield f"{name} ended"
    reasons = {group.name: group.reason for group in before.groups} if before else {}
    for group in now.groups:
        if group.reason and group.reason != reasons.get(group.name):
            yield f"{group.name}: {group.reason}"


@contextmanager
def screen() -> Iterator[Screen]:
    """Yield a screen: with rich on a terminal one table that changes, else text after text."""
    live = _live() if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" else None
    if live is None:
        yield _PlainScreen()
    else:
        with live:
            yield live


class _PlainScreen:
    """Writes a board whenever it differs from the last one."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, board: Board) -> None:
        text = board_text(board)
        if text != self._last:
            sys.stdout.write(text)
            sys.stdout.flush()
        self._last = text


class _LiveScreen:
    """Shows boards with rich."""

    def __init__(self, live: Any, render: Callable[[Board], Any]) -> None:
        self._live = live
        self._render = render

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, traceback)

    def show(self, board: Board) -> None:
        self._live.update(self._render(board), refresh=True)


def _live() -> _LiveScreen | None:
    try:
        from rich.console import Group
        from rich.live import Live
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None

    def render(board: Board) -> Group:
        parts: list[Table | Text] = []
        for title, head, rows in board.tables:
            table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
            for name in head:
                table.add_column(name)
            for row in rows:
                table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
            parts.append(table)
        return Group(*parts, *(Text(line, style="yellow") for line in board.lines))

    return _LiveScreen(Live(auto_refresh=False), render)


_STYLES = {
    "ready": "green",
    "placing": "yellow",
    "loading": "yellow",
    "draining": "cyan",
    "stopping": "cyan",
    "silent": "red",
    "lost": "red",
}


def _group_title(group: "GroupStatus") -> str:
    ready = sum(each.phase == "ready" for each in group.replicas)
    bounds = "" if group.least == group.most else f" ({group.least} to {group.most})"
    state = "as wanted" if group.is_settled else "given up" if group.is_given_up else "changing"
    models = f", models {_models(group.models)}" if group.models else ""
    return f"{group.name}: {ready} of {group.desired}{bounds} ready, {state}{models}"


def _models(models: Sequence[str]) -> str:
    shown = ", ".join(models[:_MOST_MODELS])
    more = len(models) - _MOST_MODELS
    return f"{shown} and {more} more" if more > 0 else shown


def _replica_row(one: "ReplicaStatus") -> tuple[str, ...]:
    is_measured = bool(one.rate or one.pending)
    return (
        one.name,
        one.phase,
        one.node or "-",
        f"{one.host}:{one.http_port}" if one.http_port else "-",
        _port(one.grpc_port),
        f"{one.age_s:.0f}s" if one.age_s < 600 else f"{one.age_s / 60:.0f}m",
        f"{one.rate:.0f}" if is_measured else "-",
        f"{one.pending:.2g}" if is_measured else "-",
        f"{one.latency_ms:.3g}" if one.latency_ms else "-",
        "" if one.is_current else "older",
    )


def _port(number: int) -> str:
    return str(number) if number else "-"
