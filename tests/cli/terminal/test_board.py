"""Boards as text."""

import re

from inferd.cli.terminal.board import Board, board_text, columns, screen

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
        with screen() as shown:
            shown.show(wide)
        assert found in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out)
