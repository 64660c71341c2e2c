import logging
import os
import subprocess
import sys
import threading

import msgspec
import pytest
from changed import change

from inferd.config.options.log import LogChange, LogSettings
from inferd.errors import InferdError
from inferd.observe.log import Log, close_log
from inferd.observe.log_lines import MOST_CHARACTERS, LogLine, LogLines, decode_lines, encode_lines

LOGGER = logging.getLogger("inferd.part")


@pytest.fixture(autouse=True)
def _clean():
    yield
    close_log()


def opened(path, **settings):
    log = Log(LogSettings(file=path, **settings))
    log.open()
    lines = LogLines()
    log.listen(lines)
    return log, lines


def texts(lines, since=0):
    return [line.text for line in lines.since(since)[0]]


def test_a_line_says_when_where_how_bad_and_what(tmp_path):
    _, lines = opened(tmp_path / "log")
    LOGGER.warning("model '%s' is odd", "m")
    [line], dropped = lines.since(0)
    assert (line.level, line.text, line.pid, dropped) == (
        "warning",
        "model 'm' is odd",
        os.getpid(),
        0,
    )
    assert line.source.startswith("test_log_lines:")
    assert 1.6e12 < line.time < 1e13


def test_only_the_last_lines_are_there_and_those_that_are_gone_are_counted():
    lines = LogLines(most=3)
    logger = logging.Logger("alone")
    logger.addHandler(lines)
    for number in range(5):
        logger.error("%d", number)
    assert texts(lines) == ["2", "3", "4"]
    assert lines.since(0)[1] == 2
    assert (texts(lines, 4), lines.since(4)[1]) == (["4"], 0)
    assert lines.since(5) == lines.since(99) == ([], 0)
    assert lines.count == 5


def test_lines_are_those_that_the_settings_want_now_and_after_each_change(tmp_path):
    log, lines = opened(tmp_path / "log", info=False)
    LOGGER.info("not wanted")
    LOGGER.error("one")
    change(log, LogChange(info=True, warning=False))
    LOGGER.info("two")
    LOGGER.warning("not wanted")
    log.reopen()
    LOGGER.info("three")
    log.follow(LogSettings(file=tmp_path / "other"))
    LOGGER.warning("four")
    found = [line.text for line in lines.since(0)[0] if line.source.startswith("test_")]
    assert found == ["one", "two", "three", "four"]
    assert (tmp_path / "other").read_text().count("\n") == 1


def test_who_listens_no_more_hears_nothing(tmp_path):
    log, lines = opened(tmp_path / "log")
    log.ignore(lines)
    LOGGER.error("one")
    change(log, LogChange(info=False))
    LOGGER.error("two")
    assert lines.count == 0


def test_a_log_that_is_the_programs_is_heard_too():
    log, lines = Log(LogSettings()), LogLines()
    log.listen(lines)
    LOGGER.warning("one")
    log.ignore(lines)
    LOGGER.warning("two")
    assert texts(lines) == ["one"]
    assert logging.getLogger("inferd").handlers == []


def test_a_program_without_a_log_sees_its_warnings_as_before():
    script = """
import logging
from inferd.config.options.log import LogSettings
from inferd.observe.log import Log
from inferd.observe.log_lines import LogLines
logs, lines = [Log(LogSettings()) for _ in range(2)], LogLines()
for log in logs:
    log.listen(lines)
logging.getLogger("inferd.x").warning("to stderr")
logging.getLogger("inferd.x").info("nowhere")
logging.basicConfig(format="by the program: %(message)s")
logging.getLogger("inferd.x").warning("again")
print(lines.count)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert ran.stderr == "to stderr\nby the program: again\n"
    assert ran.stdout == "4\n"


def test_a_traceback_belongs_to_its_line_and_what_is_long_is_cut(tmp_path):
    _, lines = opened(tmp_path / "log")
    try:
        int("deep down")
    except ValueError:
        LOGGER.exception("it failed")
    LOGGER.error("x" * (MOST_CHARACTERS + 1))
    first, second = texts(lines)
    assert first.startswith("it failed\nTraceback") and first.endswith("'deep down'")
    assert second == "x" * MOST_CHARACTERS + "…"


def test_any_text_can_be_sent(tmp_path):
    _, lines = opened(tmp_path / "log")
    LOGGER.error("%s", "<script>\udc80\0\u2028")
    assert b"<script>?\\u0000" in msgspec.json.encode(lines.since(0)[0])


def test_lines_can_be_sent():
    lines = [LogLine(1, "info", "<b>", 7, "m:1")]
    assert decode_lines(encode_lines(lines, 5)) == (lines, 5)
    with pytest.raises(InferdError, match="cannot be read"):
        decode_lines(b"\xc1")


def test_threads_log_at_the_same_time():
    lines, logger = LogLines(most=100_000), logging.Logger("alone")
    logger.addHandler(lines)

    def work():
        for _ in range(1000):
            logger.error("x")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    seen = 0
    while any(thread.is_alive() for thread in threads):
        more, dropped = lines.since(seen)
        seen += len(more) + dropped
    for thread in threads:
        thread.join()
    assert seen + len(lines.since(seen)[0]) == lines.count == 4000
