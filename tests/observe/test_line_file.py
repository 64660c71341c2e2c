"""A file that lines are appended to, by a thread: whole lines, whoever else writes there."""

import logging
import os
import threading

import pytest

from inferd.observe import line_file
from inferd.observe.line_file import MOST_LINES, LineFile

PATIENCE_S = 30


@pytest.fixture
def file(tmp_path):
    """An open file; a test that has closed it may read it."""
    lines = LineFile(tmp_path / "lines", "the log")
    lines.open()
    yield lines
    lines.close(PATIENCE_S)


def test_lines_are_there_when_it_is_closed(file, tmp_path):
    for number in range(2500):
        file.add(f"{number}\n")
    file.close(PATIENCE_S)
    assert (tmp_path / "lines").read_text().splitlines() == [str(number) for number in range(2500)]


def test_what_is_there_already_stays(tmp_path):
    (tmp_path / "lines").write_text("old\n")
    for text in ("one\n", "two\n"):
        lines = LineFile(tmp_path / "lines", "the log")
        lines.open()
        lines.add(text)
        lines.close(PATIENCE_S)
    assert (tmp_path / "lines").read_text() == "old\none\ntwo\n"


def test_without_lines_there_is_no_thread(file):
    assert threading.active_count() == 1 or not [
        one for one in threading.enumerate() if one.name == "the log"
    ]


def test_opened_again_it_writes_to_a_new_file(file, tmp_path):
    file.add("old\n")
    file.reopen()
    (tmp_path / "lines").rename(tmp_path / "old")
    file.close(PATIENCE_S)
    file.open()
    file.add("new\n")
    file.close(PATIENCE_S)
    assert (tmp_path / "lines").read_text().endswith("new\n")


def test_a_file_that_cannot_be_opened_again_goes_on(file, tmp_path, caplog):
    (tmp_path / "lines").rename(tmp_path / "old")
    (tmp_path / "lines").mkdir()
    file.reopen()
    file.add("line\n")
    file.close(PATIENCE_S)
    assert (tmp_path / "old").read_text() == "line\n"
    assert "the log cannot be opened again: Is a directory" in caplog.text


def test_lines_of_several_writers_do_not_mix_in_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "lines")
    reader = os.open(tmp_path / "lines", os.O_RDONLY | os.O_NONBLOCK)
    writers = []
    for letter in "ab":
        lines = LineFile(tmp_path / "lines", f"the log {letter}")
        lines.open()
        writers.append(lines)
        for _ in range(300):
            lines.add(letter * 700 + "\n")
    os.set_blocking(reader, True)
    got = b""
    while got.count(b"\n") < 600:
        got += os.read(reader, 65536)
    for lines in writers:
        lines.close(PATIENCE_S)
    os.close(reader)
    assert set(got.splitlines()) == {b"a" * 700, b"b" * 700}


def test_too_many_lines_are_lost_and_not_waited_for(file, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(line_file, "PAUSE_S", PATIENCE_S)  # nothing is written until it ends
    with caplog.at_level(logging.WARNING, "inferd"):
        for _ in range(MOST_LINES + 12):
            file.add("x\n")
    file.close(PATIENCE_S)
    assert len((tmp_path / "lines").read_text()) == 2 * MOST_LINES
    assert [record.getMessage() for record in caplog.records] == [
        "1 lines of the log were lost, because they come faster than they can be written",
        "10 lines of the log were lost, because they come faster than they can be written",
    ]


def test_a_full_disk_is_told_and_costs_no_more_than_the_lines(caplog):
    lines = LineFile(None, "the log")
    lines._path = "/dev/full"
    lines.open()
    lines.add("line\n")
    lines.close(PATIENCE_S)
    assert "1 lines of the log were lost: No space left on device" in caplog.text
