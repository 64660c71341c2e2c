"""Boards: tables and lines in the terminal, live ones with rich, plain text without it."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self


class Board(NamedTuple):
    """What is shown: tables with a title, column names and rows each, and lines below."""

    tables: Sequence[tuple[str, Sequence[str], Sequence[tuple[str, ...]]]]
    lines: Sequence[str]


class Screen(Protocol):
    """Shows one board after the other, in place of each other if it can."""

    def show(self, board: Board) -> None:
        """Show it."""
        ...


def board_text(board: Board, width: int = 0) -> str:
    """Return a board as plain text; a table wider than `width`, unless 0, cell by cell."""
    lines: list[str] = []
    for title, head, rows in board.tables:
        if title:
            lines.append(title)
        widths = _widths(head, rows)
        if not _fits(widths, width):
            lines += _narrow(head, rows)
            continue
        for row in (head, *rows) if rows else ():
            cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=True)]
            # No blanks at the ends of lines that people copy.
            lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join([*lines, *board.lines]) + "\n"


def _widths(head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[int]:
    return [max(map(len, column)) for column in zip(head, *rows, strict=True)]


def _fits(widths: Sequence[int], width: int) -> bool:
    return not width or sum(widths) + 2 * len(widths) <= width


def _narrow(head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    size = max(map(len, head))
    for row in rows:
        first, *others = zip(head, row, strict=True)
        yield f"  {first[1]}"
        yield from (f"    {name.ljust(size)}  {cell}" for name, cell in others if cell)


def columns() -> int:
    """Return how many columns the terminal has; 0 where standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


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
        text = board_text(board, columns())
        # In a log, the same table each second would be noise.
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
            if not _fits(_widths(head, rows), columns()):
                parts.append(Text("\n".join([title, *_narrow(head, rows)])))
                continue
            table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
            for name in head:
                table.add_column(name)
            for row in rows:
                table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
            parts.append(table)
        return Group(*parts, *(Text(line, style="yellow") for line in board.lines))

    # Drawn when something is shown: rich's own thread would draw it ten times a second.
    return _LiveScreen(Live(auto_refresh=False), render)


STYLES = {
    "ready": "green",
    "placing": "yellow",
    "loading": "yellow",
    "draining": "cyan",
    "stopping": "cyan",
    "silent": "red",
    "lost": "red",
    "READY": "green",
    "LOADING": "yellow",
    "UNLOADING": "cyan",
    "UNAVAILABLE": "red",
}
