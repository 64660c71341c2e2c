"""Boards as text."""

from inferd.cli.terminal.board import Board, board_text, columns

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
