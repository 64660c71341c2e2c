"""What the terminal shows: boards (tables and lines), and how far something is.

Boards change in place with rich, and are plain text without it.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, Self, TextIO

if TYPE_CHECKING:
    from rich.console import Group


class Board(NamedTuple):
    """What is shown: tables with a title, column names and rows each, and lines below."""

    tables: Sequence[tuple[str, Sequence[str], Sequence[tuple[str, ...]]]]
    lines: Sequence[str]


Show = Callable[[Board], None]
"""Shows one board after the other, in place of each other if it can."""


def interruptible(work: Callable[[], int]) -> int:
    """Return the exit code of `work`, or 130 if Ctrl-C ends it, which takes down what is shown."""
    # From here on Ctrl-C raises KeyboardInterrupt; until now it ended the process: see main.py.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return work()
    except KeyboardInterrupt:
        return 130


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
def screen() -> Iterator[Show]:
    """Yield what shows boards: with rich on a terminal in one place, else text after text."""
    is_live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if not is_live or find_spec("rich") is None:
        yield _plain_show()
        return
    from rich.live import Live

    # Drawn when something is shown: rich's own thread would draw it ten times a second.
    with Live(auto_refresh=False) as live:
        yield lambda board: live.update(_rendered(board), refresh=True)


def _plain_show() -> Show:
    """Return what writes a board whenever it differs from the last one."""
    last = ""

    def show(board: Board) -> None:
        nonlocal last
        text = board_text(board, columns())
        # In a log, the same table each second would be noise.
        if text != last:
            sys.stdout.write(text)
            sys.stdout.flush()
        last = text

    return show


def _rendered(board: Board) -> "Group":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

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


# More often than people read.
_LEAST_S = 0.1
# Carriage return, then erase to the end of the line (ECMA-48, EL).
_CLEAR = "\r\x1b[K"
_BAR_COLUMNS = 20


class ProgressLine:
    """Shows a bar and words in one line, which is taken away at the end.

    Nothing is shown where standard error is no terminal, so that logs do not fill with bars.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._written_s = 0.0
        self._is_dirty = False

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take the line away."""
        self.clear()

    def show(self, share: float, words: str) -> None:
        """Show that a `share`, from 0 to 1, is done; more often than can be read does nothing."""
        now_s = time.monotonic()
        if not self._is_shown or now_s - self._written_s < _LEAST_S:
            return
        self._written_s = now_s
        # A full last column would make some terminals wrap.
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(_CLEAR + progress_text(share, words, width))
        self._stream.flush()
        self._is_dirty = True

    def clear(self) -> None:
        """Take the line away, so that something else can be written."""
        if self._is_dirty:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._is_dirty = False


def progress_text(share: float, words: str, width: int) -> str:
    """Return a bar and words in at most `width` columns."""
    done = round(min(max(share, 0.0), 1.0) * _BAR_COLUMNS)
    bar = "━" * done + "╌" * (_BAR_COLUMNS - done)
    text = f"{bar} {words}" if width >= 2 * _BAR_COLUMNS + 10 else words
    return text[:width]
