"""Boards as text."""

import io
import re

import pytest

from inferd.cli.terminal import Board, ProgressLine, board_text, columns, progress_text, screen

BOARD = Board(
    [("title", ("name", "kind", "note"), [("a", "b", ""), ("long name", "k", "n")])], ["!"]
)


def test_a_table_has_columns_of_one_width():
    assert board_text(BOARD) == (
        "title\n  name       kind  note\n  a          b\n  long name  k     n\n!\n"
    )
    assert board_text(BOARD, 80) == board_text(BOARD)
    assert board_text(Board([("", ("a",), [("b",)])], [])) == "  a\n  b\n"


def test_where_a_table_does_not_fit_each_cell_has_a_line():
    text = board_text(BOARD, 20)
    assert text == "title\n  a\n    kind  b\n  long name\n    kind  k\n    note  n\n!\n"


def test_without_a_terminal_there_is_no_width(capsys):
    assert columns() == 0


def test_a_live_table_that_does_not_fit_is_narrow_too(monkeypatch, capsys):
    """With rich, as on a terminal of 40 columns; what it draws is looked at, not how."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    wide = Board([("title", ("name", "said", "how long it took"), [("a", "x" * 16, "1 s")])], [])
    for columns_, found in (("40", "    said              x"), ("200", "name  said ")):
        monkeypatch.setenv("COLUMNS", columns_)
        with screen() as show:
            show(wide)
        assert found in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out)


class Terminal(io.StringIO):
    """A terminal that remembers what was written."""

    def isatty(self):
        return True


def test_the_line_is_taken_away_at_the_end(monkeypatch):
    monkeypatch.delenv("TERM", raising=False)
    terminal = Terminal()
    with ProgressLine(terminal) as progress:
        progress.show(0.5, "half")
        progress.show(0.6, "too soon to be read")
    assert terminal.getvalue() == "\r\x1b[K" + "━" * 10 + "╌" * 10 + " half" + "\r\x1b[K"


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_without_a_terminal_or_on_a_dumb_one_nothing_is_written(monkeypatch, stream):
    monkeypatch.setenv("TERM", "dumb")
    with ProgressLine(stream) as progress:
        progress.show(0.5, "half")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("width", [10, 40, 80])
def test_it_fits_into_the_terminal(width):
    for share in (-1, 0, 0.33, 1, 2):
        assert len(progress_text(share, "words " * 20, width)) <= width
