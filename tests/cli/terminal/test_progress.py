"""The line that says how far something is."""

import io

import pytest

from inferd.cli.terminal.progress import ProgressLine, progress_text


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
