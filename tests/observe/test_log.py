import json
import logging
import os
import re

import pytest

from inferd.observe.log import LogSettings, close_log, set_up_log

LOGGER = logging.getLogger("inferd.part")


@pytest.fixture(autouse=True)
def _clean():
    yield
    close_log()


def lines(path, **settings):
    """Log one record of each level and return what the file has."""
    set_up_log(LogSettings(file=path, **settings))
    LOGGER.debug("d")
    LOGGER.info("i %d", 1)
    LOGGER.warning("w")
    LOGGER.error("e")
    return path.read_text().splitlines()


def test_the_default_is_text_without_details(tmp_path):
    written = lines(tmp_path / "log")
    assert [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ", "", x) for x in written] == [
        "INFO    i 1",
        "WARNING w",
        "ERROR   e",
    ]


def test_iso8601_is_in_utc(tmp_path):
    [line, *_] = lines(tmp_path / "log", format="ISO8601")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    i 1", line)


def test_json_is_one_object_per_line(tmp_path):
    written = [json.loads(line) for line in lines(tmp_path / "log", format="json")]
    assert [(x["level"], x["message"]) for x in written] == [
        ("info", "i 1"),
        ("warning", "w"),
        ("error", "e"),
    ]
    assert written[0]["source"].startswith("test_log:")
    assert written[0]["pid"] == os.getpid()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", written[0]["time"])


def test_json_keeps_a_traceback_in_its_line_and_adds_fields(tmp_path):
    path = tmp_path / "log"
    set_up_log(LogSettings(file=path, format="json"))
    try:
        int("x")
    except ValueError:
        LOGGER.exception("it\nbroke", extra={"fields": {"model": "m"}})
    [line] = path.read_text().splitlines()
    record = json.loads(line)
    assert record["message"] == "it\nbroke"
    assert record["model"] == "m"
    assert "ValueError" in record["error"]


@pytest.mark.parametrize(
    ("settings", "levels"),
    [
        ({"verbose": 1}, ["DEBUG", "INFO", "WARNING", "ERROR"]),
        ({"info": False}, ["WARNING", "ERROR"]),
        ({"warning": False}, ["INFO", "ERROR"]),
        ({"error": False}, ["INFO", "WARNING"]),
        ({"info": False, "warning": False, "error": False}, []),
    ],
)
def test_each_level_has_its_own_switch(tmp_path, settings, levels):
    assert [line.split()[2] for line in lines(tmp_path / "log", **settings)] == levels


def test_the_second_set_up_replaces_the_first(tmp_path):
    set_up_log(LogSettings(file=tmp_path / "first"))
    assert len(lines(tmp_path / "second")) == 3
    assert (tmp_path / "first").read_text() == ""


def test_standard_error_is_where_the_log_goes_by_default(capfd):
    set_up_log(LogSettings())
    LOGGER.warning("hello")
    out, err = capfd.readouterr()
    assert out == ""
    assert err.endswith("WARNING hello\n")


def test_a_file_that_cannot_be_opened_leaves_the_log_as_it_was(tmp_path):
    set_up_log(LogSettings(file=tmp_path / "log"))
    with pytest.raises(FileNotFoundError):
        set_up_log(LogSettings(file=tmp_path / "no" / "log"))
    LOGGER.warning("still")
    assert "still" in (tmp_path / "log").read_text()


def test_closing_gives_the_logger_back():
    set_up_log(LogSettings())
    close_log()
    logger = logging.getLogger("inferd")
    assert (logger.handlers, logger.propagate, logger.level) == ([], True, logging.NOTSET)


def test_no_text_passes_for_a_line_of_its_own(tmp_path):
    path = tmp_path / "log"
    set_up_log(LogSettings(file=path))
    hostile = "a\n2030-01-01 00:00:00.000 INFO    ready\r\x1b[2J\x85\u2028\u202e\udcffé"
    LOGGER.warning("model '%s'", hostile)
    try:
        raise ValueError(hostile)
    except ValueError:
        LOGGER.exception("failed")
    first, *rest = path.read_text().splitlines()
    assert first.endswith(
        r"model 'a\n2030-01-01 00:00:00.000 INFO    ready\r\x1b[2J\x85\u2028\u202e\udcffé'"
    )
    assert [line[:2] for line in rest[1:]] == ["  "] * (len(rest) - 1)


@pytest.mark.parametrize("style", ["default", "json"])
def test_text_that_is_no_unicode_is_written_all_the_same(tmp_path, style):
    path = tmp_path / "log"
    set_up_log(LogSettings(file=path, format=style))
    LOGGER.warning("a \udcff b", extra={"fields": {"model": "\udcff"}})
    assert r"a \udcff b" in path.read_text()
