import json
import logging
import os
import re

import pytest
from changed import change

from inferd.config.options.log import LogChange, LogSettings
from inferd.errors import Code, InferdError, InvalidRequest, Unsupported
from inferd.observe.allowed import AllowedFolder
from inferd.observe.log import Log, close_log

LOGGER = logging.getLogger("inferd.part")


@pytest.fixture(autouse=True)
def _clean():
    yield
    close_log()


def lines(path, **settings):
    """Log one record of each level and return what the file has."""
    Log(LogSettings(file=path, **settings)).open()
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
    Log(LogSettings(file=path, format="json")).open()
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
    Log(LogSettings(file=tmp_path / "first")).open()
    assert len(lines(tmp_path / "second")) == 3
    assert (tmp_path / "first").read_text() == ""


def test_standard_error_is_where_the_log_goes_by_default(capfd):
    Log(LogSettings()).open()
    LOGGER.warning("hello")
    out, err = capfd.readouterr()
    assert out == ""
    assert err.endswith("WARNING hello\n")


def test_a_file_that_cannot_be_opened_leaves_the_log_as_it_was(tmp_path):
    Log(LogSettings(file=tmp_path / "log")).open()
    with pytest.raises(FileNotFoundError):
        Log(LogSettings(file=tmp_path / "no" / "log")).open()
    LOGGER.warning("still")
    assert "still" in (tmp_path / "log").read_text()


def test_closing_gives_the_logger_back():
    Log(LogSettings()).open()
    close_log()
    logger = logging.getLogger("inferd")
    assert (logger.handlers, logger.propagate, logger.level) == ([], True, logging.NOTSET)


def test_no_text_passes_for_a_line_of_its_own(tmp_path):
    path = tmp_path / "log"
    Log(LogSettings(file=path)).open()
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


def test_a_text_that_keeps_its_lines_is_indented_as_a_traceback_is(tmp_path):
    path = tmp_path / "log"
    Log(LogSettings(file=path)).open()
    text = "Traceback:\n  line 1\n2030-01-01 00:00:00.000 INFO    ready\x1b[2J\n"
    LOGGER.warning("model 'm': %s", text, extra={"keeps_lines": True})
    first, *rest = path.read_text().splitlines()
    assert first.endswith("WARNING model 'm': Traceback:")
    assert rest == ["    line 1", r"  2030-01-01 00:00:00.000 INFO    ready\x1b[2J"]


@pytest.mark.parametrize("style", ["default", "json"])
def test_text_that_is_no_unicode_is_written_all_the_same(tmp_path, style):
    path = tmp_path / "log"
    Log(LogSettings(file=path, format=style)).open()
    LOGGER.warning("a \udcff b", extra={"fields": {"model": "\udcff"}})
    assert r"a \udcff b" in path.read_text()


def test_what_opentelemetry_complains_of_is_in_the_log_too(tmp_path):
    path = tmp_path / "log"
    Log(LogSettings(file=path, verbose=1)).open()
    spans = logging.getLogger("opentelemetry.sdk")
    spans.info("noise")
    spans.warning("no collector")
    [line] = path.read_text().splitlines()
    assert line.endswith("WARNING no collector")
    Log(LogSettings(file=path, error=False, warning=False, info=False)).open()
    spans.error("no collector")
    assert len(path.read_text().splitlines()) == 1
    close_log()
    assert logging.getLogger("opentelemetry").handlers == []


# --- changing it while the server runs ---


@pytest.fixture
def opened(tmp_path):
    """opened(**settings) is a log that is open; clients may put its file below tmp_path/allowed."""
    folder = tmp_path / "allowed"
    folder.mkdir()

    def build(**settings):
        log = Log(LogSettings(**settings), AllowedFolder(folder, "--log-directory"))
        log.open()
        return log

    return build


def test_a_change_takes_effect_at_once_and_leaves_the_rest(tmp_path, opened):
    log = opened(file=tmp_path / "log", warning=False)
    change(log, LogChange(verbose=2, format="json"))
    assert log.settings == LogSettings("json", tmp_path / "log", verbose=2, warning=False)
    LOGGER.debug("d")
    LOGGER.warning("w")
    reported, detail = (tmp_path / "log").read_text().splitlines()
    assert "INFO" in reported
    assert reported.endswith("a client changes the log settings: format json, verbose 2")
    assert json.loads(detail)["message"] == "d"


def test_a_change_of_nothing_is_not_logged(tmp_path, opened):
    log = opened(file=tmp_path / "log")
    change(log, LogChange(info=True, file="log"))
    assert (tmp_path / "log").read_text() == ""


def test_a_wrong_format_changes_nothing(opened):
    log = opened()
    with pytest.raises(
        InvalidRequest,
        match="invalid argument for log_format, got: x, expected one of default, ISO8601, json",
    ):
        change(log, LogChange(format="x", verbose=1))
    assert log.settings == LogSettings()


def test_the_file_moves_into_the_allowed_folder_and_back(tmp_path, opened):
    log = opened(file=tmp_path / "log")
    change(log, LogChange(file="other.txt"))
    LOGGER.warning("here")
    change(log, LogChange(file="log"))
    LOGGER.warning("back")
    assert "here" in (tmp_path / "allowed" / "other.txt").read_text()
    assert "back" in (tmp_path / "log").read_text()
    assert not (tmp_path / "allowed" / "log").exists()


def test_no_file_is_standard_error(tmp_path, opened, capfd):
    log = opened(file=tmp_path / "log")
    change(log, LogChange(file=""))
    LOGGER.warning("hello")
    assert log.settings.file is None
    assert capfd.readouterr().err.endswith("WARNING hello\n")


@pytest.mark.parametrize("name", ["other", "", "/etc/passwd"])
def test_without_an_allowed_folder_the_file_stays_where_it_is(tmp_path, name):
    log = Log(LogSettings(file=tmp_path / "log"))
    log.open()
    with pytest.raises(Unsupported, match="log file location can not be updated"):
        change(log, LogChange(file=name))
    change(log, LogChange(file="log", verbose=1))  # what a client has read it may send back
    assert log.settings == LogSettings(file=tmp_path / "log", verbose=1)


def test_a_file_that_cannot_be_opened_leaves_the_settings_as_they_were(tmp_path, opened):
    log = opened(file=tmp_path / "log")
    (tmp_path / "allowed" / "taken").symlink_to(tmp_path / "victim")
    with pytest.raises(InferdError, match="log_file 'taken' cannot be opened: ") as caught:
        change(log, LogChange(file="taken", verbose=1))
    assert str(tmp_path) not in caught.value.message
    assert caught.value.code is Code.INTERNAL
    assert log.settings == LogSettings(file=tmp_path / "log")
    assert not (tmp_path / "victim").exists()
    LOGGER.warning("still")
    assert "still" in (tmp_path / "log").read_text()


def test_a_log_that_is_not_the_servers_own_is_only_reported():
    log = Log(LogSettings())
    change(log, LogChange(info=True))
    with pytest.raises(Unsupported, match="belongs to the program"):
        change(log, LogChange(info=False))
    assert logging.getLogger("inferd").handlers == []


def test_opened_again_it_goes_on_under_its_name(tmp_path, opened):
    log = opened(file=tmp_path / "log")
    LOGGER.warning("before")
    (tmp_path / "log").rename(tmp_path / "log.1")
    LOGGER.warning("moved")
    log.reopen()
    LOGGER.warning("after")
    assert re.findall("before|moved|after", (tmp_path / "log.1").read_text()) == ["before", "moved"]
    assert re.findall("before|moved|after", (tmp_path / "log").read_text()) == ["after"]


def test_what_cannot_be_opened_again_goes_on_in_the_old_file(tmp_path, opened):
    (tmp_path / "folder").mkdir()
    log = opened(file=tmp_path / "folder" / "log")
    (tmp_path / "folder").rename(tmp_path / "gone")
    log.reopen()
    LOGGER.warning("still")
    assert "cannot be opened again" in (tmp_path / "gone" / "log").read_text()
    assert "still" in (tmp_path / "gone" / "log").read_text()


def test_a_thread_that_logs_during_a_change_finds_a_stream(tmp_path, opened, capfd):
    opened(file=tmp_path / "log")
    [old] = logging.getLogger("inferd").handlers
    Log(LogSettings(file=tmp_path / "new")).open()
    old.emit(logging.LogRecord("inferd", logging.INFO, "", 1, "late", None, None))
    assert capfd.readouterr().err.endswith("late\n")


def test_a_log_that_follows_another_has_its_settings_unless_it_cannot(tmp_path):
    first, second = LogSettings(file=tmp_path / "a"), LogSettings("json", tmp_path / "b", 1)
    log = Log(first)
    log.open()
    log.follow(second)
    LOGGER.debug("d")
    log.follow(LogSettings(file=tmp_path / "absent" / "c"))
    assert log.settings == second
    found = [json.loads(line) for line in (tmp_path / "b").read_text().splitlines()]
    assert [one["message"] for one in found] == [
        "d",
        "the log stays as it is here: No such file or directory",
    ]
