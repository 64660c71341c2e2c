"""What is shown of a server of one process and of several, a second at a time."""

import logging
import os

import msgspec
import pytest
from figure_models import MS, NOW, answered, failed, refused, served
from figure_server import LOG, MODELS, OVERVIEW, REQUESTS, FigureServer, ended_pid

from inferd.core.metadata import ModelState
from inferd.errors import InferdError, ModelNotFound
from inferd.observe.log_lines import MOST_LINES
from inferd.ui.figures.board import FORGOTTEN_S, MOST_DETAILS, MOST_REQUESTS, Recent
from inferd.ui.figures.history import COLUMNS
from inferd.ui.topics import Subject

BOTH = pytest.mark.parametrize("count", [1, 2, 3])


def rows_of(event):
    return {(row["name"], row["version"]): row for row in event["models"]["rows"]}


@BOTH
def test_the_history_comes_first_and_then_a_row_each_second(count):
    server = FigureServer(count)
    several = server.add(served)
    reader = server.reader()
    server.second(2)
    for one in several:
        answered(one, 5, ms=2)
        failed(one)
        refused(one)
    server.second()
    found = reader.look()
    assert found["history"]["second"]["success"] == [0, 0, 5 * count]
    assert list(found["history"]["second"]) == list(COLUMNS)
    row = found["tick"]["row"]
    assert (row["time"], row["success"]) == ((NOW + 3) * 1000, 5 * count)
    assert (row["failure"], row["refused"]) == (count, count)
    assert row["p50"] == pytest.approx(2 * MS, rel=1 / 16)
    server.second()
    found = reader.look()
    assert list(found) == ["tick"]
    assert (found["tick"]["row"]["time"], found["tick"]["row"]["success"]) == ((NOW + 4) * 1000, 0)


@BOTH
def test_a_tick_says_how_the_server_is(count):
    server = FigureServer(count)
    server.add(served)
    for one in server.all:
        one.connections = 3
        one.engine.capacity.request_count = 2
        one.engine.catalog.set_state("bad", 1, ModelState.LOADING)
    server.second()
    tick = server.reader().look()["tick"]
    assert tick["row"]["connections"] == 3 * count
    assert tick["row"]["pending"] == 2 * count
    assert (tick["server"]["name"], tick["server"]["id"]) == ("inferd", "id-1")
    assert tick["server"]["started"] == NOW * 1000
    assert tick["models"] == {"ready": 1, "loading": 1, "failed": 0, "unloaded": 0}
    assert len(tick["processes"]) == count
    shown = tick["processes"][0]
    assert (shown["pid"], shown["connections"], shown["pending"]) == (os.getpid(), 3, 2)
    assert shown["memory"] > 0
    assert (tick["gpus"], tick["lost_history"]) == ([], False)


def test_overload_is_shown_while_requests_are_refused():
    server = FigureServer()
    [one] = server.add(served)
    reader = server.reader()
    server.second()
    assert reader.look()["tick"]["server"]["state"] == "ready"
    server.all[0].engine.capacity.too_many_requests()
    refused(one)
    server.second()
    found = reader.look()["tick"]
    assert found["row"]["refused"] == 2
    assert found["server"]["state"] == "overloaded"
    server.second(6)
    assert reader.look()["tick"]["server"]["state"] == "ready"


@BOTH
def test_rows_of_models_are_sums_and_only_those_that_changed_come_again(count):
    server = FigureServer(count)
    server.add(lambda: served("quiet"))
    several = server.add(lambda: served("busy"))
    reader = server.reader(MODELS)
    found = reader.look()
    assert found["models"]["all"] is True
    assert set(rows_of(found)) == {("busy", "1"), ("quiet", "1")}
    server.second()
    assert reader.look() == {}
    for number, one in enumerate(several):
        answered(one, 2 + number, ms=4)
    server.second()
    found = reader.look()
    assert (found["models"]["all"], found["models"]["gone"]) == (False, [])
    [row] = found["models"]["rows"]
    assert row["success"] == sum(2 + number for number in range(count))
    assert row["success"] == sum(
        one.engine.whole.statistics("busy")[0].inference_stats.success.count for one in server.all
    )
    assert row["queue"] == MS // 4
    assert row["p99"] == pytest.approx(4 * MS, rel=1 / 16)
    assert row["rate"] == pytest.approx(row["success"] / 2, rel=1)


@BOTH
def test_models_that_are_gone_are_said_to_be(count):
    server = FigureServer(count)
    server.add(served)
    for one in server.all:
        one.engine.catalog.set_state("bad", 7, ModelState.UNAVAILABLE, "broken")
    reader = server.reader(MODELS)
    reader.look()
    for one in server.all:
        one.engine.whole.catalog.remove("bad", 7)
    assert reader.look()["models"] == {"all": False, "rows": [], "gone": ["bad/7"]}
    assert reader.look() == {}
    assert set(rows_of(server.reader(MODELS).look())) == {("m", "1")}


@BOTH
def test_a_late_reader_hears_of_everything_and_an_early_one_of_nothing_twice(count):
    server = FigureServer(count)
    server.add(served)
    early = server.reader(MODELS, LOG, REQUESTS)
    assert set(early.look()) == {"models", "log", "requests"}
    assert early.look() == {}
    late = server.reader(MODELS, LOG, REQUESTS)
    assert set(late.look()) == {"models", "log", "requests"}


@BOTH
def test_slow_and_failed_requests_of_all_processes_come_in_their_order(count):
    server = FigureServer(count)
    several = server.add(served)
    reader = server.reader(REQUESTS)
    assert reader.look()["requests"] == {"rows": [], "all": True}
    for number, one in enumerate(several):
        server.clock.now += 1
        failed(one, f"<b>{number}</b>", id=f"r{number}")
    found = reader.look()["requests"]
    assert found["all"] is False
    assert [row["error"] for row in found["rows"]] == [f"<b>{n}</b>" for n in range(count)]
    assert [row["id"] for row in found["rows"]] == [f"r{n}" for n in range(count)]
    assert reader.look() == {}
    server.clock.now += 16 * 60
    assert server.reader(REQUESTS).look()["requests"]["rows"] == []


@BOTH
def test_log_lines_of_all_processes_come_once(count):
    server = FigureServer(count)
    logger = logging.Logger("here")
    for one in server.all:
        one.sampler.lines.handle(logger.makeRecord("x", 30, "here.py", 7, "one", (), None))
    reader = server.reader(LOG)
    found = reader.look()["log"]
    assert [line["text"] for line in found["lines"]] == ["one"] * count
    assert found["dropped"] == 0
    line = found["lines"][0]
    assert (line["level"], line["source"], line["pid"]) == ("warning", "here:7", os.getpid())
    server.all[-1].sampler.lines.handle(logger.makeRecord("x", 20, "m.py", 1, "two", (), None))
    assert [line["text"] for line in reader.look()["log"]["lines"]] == ["two"]
    assert reader.look() == {}


def test_lines_of_the_process_that_started_the_others_are_among_them():
    server = FigureServer(2)
    logger = logging.Logger("here")

    def say(lines, text, at):
        record = logger.makeRecord("x", 20, "m.py", 1, text, (), None)
        record.created = at
        lines.handle(record)

    say(server.starter, "two", 2)
    say(server.all[0].sampler.lines, "one", 1)
    say(server.all[1].sampler.lines, "three", 3)
    reader = server.reader(LOG)
    found = reader.look()["log"]["lines"]
    assert [line["text"] for line in found] == ["one", "two", "three"]
    assert reader.look() == {}
    say(server.starter, "four", 4)
    assert [line["text"] for line in reader.look()["log"]["lines"]] == ["four"]


def test_lines_that_nobody_can_get_any_more_are_counted():
    server = FigureServer()
    reader = server.reader(LOG)
    reader.look()
    logger = logging.Logger("here")
    for number in range(MOST_LINES + 5):
        record = logger.makeRecord("x", 20, "m.py", 1, str(number), (), None)
        server.all[0].sampler.lines.handle(record)
    found = reader.look()["log"]
    assert (len(found["lines"]), found["dropped"]) == (MOST_LINES, 5)


@BOTH
def test_everything_about_a_version_is_added(count):
    server = FigureServer(count)
    several = server.add(served)
    for one in several:
        answered(one, 3, ms=4)
        failed(one, "no", id="r")
        one.scheduler = type("Waiting", (), {"pending_count": 2})()
    server.second()
    reader = server.reader(Subject("model", "m", "1"))
    found = reader.look()["model"]
    assert (found["name"], found["version"], found["success"]) == ("m", "1", 3 * count)
    assert sum(found["latency"]["counts"]) == 3 * count
    assert found["failures"]["BACKEND"] == count
    assert [error["text"] for error in found["errors"]] == ["no"] * count
    assert found["queued"] == 2 * count
    assert reader.look() == {}
    answered(several[-1])
    assert sum(reader.look()["model"]["latency"]["counts"]) == 3 * count + 1


def test_a_version_can_be_left_to_the_server_and_may_go():
    server = FigureServer()
    server.add(lambda: served("m", 1))
    server.add(lambda: served("m", 2))
    reader = server.reader(Subject("model", "m"))
    assert reader.look()["model"]["version"] == "2"
    catalog = server.all[0].engine.whole.catalog
    catalog.set_state("m", 2, ModelState.UNAVAILABLE, "unloaded")
    assert reader.look()["model"]["version"] == "1"
    catalog.set_state("m", 1, ModelState.UNAVAILABLE, "it is broken")
    found = reader.look()["model"]
    assert (found["version"], found["state"], found["latency"]["counts"]) == (
        "2",
        "UNAVAILABLE",
        [],
    )
    for version in (1, 2):
        catalog.remove("m", version)
    assert reader.look()["model"] == {"name": "m", "version": "", "gone": True}
    assert reader.look() == {}


@pytest.mark.parametrize("version", ["2", "x", "-1", "9" * 30, "²"])
def test_a_version_that_there_is_not_is_not_found(version):
    server = FigureServer()
    server.add(served)
    with pytest.raises(ModelNotFound, match="'m' is not found"):
        server.reader(Subject("model", "m", version))
    with pytest.raises(ModelNotFound):
        server.reader(Subject("model", "other"))


def test_only_so_many_versions_are_remembered():
    server = FigureServer()
    names = [f"m{number}" for number in range(MOST_DETAILS + 5)]
    for name in names:
        server.add(lambda name=name: served(name))
    for name in names:
        server.reader(Subject("model", name, "1")).look()
    assert len(server.all[0].board.details) == MOST_DETAILS


def test_one_look_serves_all_readers_and_events_are_made_once():
    server = FigureServer(2)
    server.add(served)
    readers = [server.reader(OVERVIEW, MODELS) for _ in range(10)]
    readers[0].look()
    assert len(server.asked) == 1
    events = [feed.news() for reader in readers[1:] for feed in reader.feeds]
    assert all(events)
    assert len({id(event.data) for several in events for event in several}) == 3


def test_a_slow_reader_skips_what_it_missed():
    server = FigureServer()
    [one] = server.add(served)
    quick, slow = server.reader(OVERVIEW, MODELS), server.reader(OVERVIEW, MODELS)
    quick.look()
    slow.heard()
    for number in range(5):
        answered(one, number + 1)
        server.second()
        assert quick.look()["models"]["rows"][0]["success"] == sum(range(number + 2))
    found = slow.heard()
    assert found["tick"]["row"]["success"] == 5
    assert found["models"]["rows"][0]["success"] == 15


@BOTH
def test_seconds_that_a_reader_missed_come_before_the_next(count):
    server = FigureServer(count)
    several = server.add(served)
    reader = server.reader()
    server.second()
    reader.look()
    for number in range(3):
        answered(several[0], number + 1)
        server.second()
    found = reader.look()
    assert list(found) == ["rows", "tick"]
    assert found["rows"]["second"]["success"] == [1, 2]
    assert list(found["rows"]["second"]) == list(COLUMNS)
    assert found["tick"]["row"]["success"] == 3
    server.second()
    assert list(reader.look()) == ["tick"]
    assert list(reader.look()) == ["tick"]  # once more for the same second


# --- processes come and go ---


def known_pid(server, reader, one, pid):
    """Have the dashboard know a process by another number than this one's."""
    board = server.all[0].board
    board._known[one.sampler.key].part.pid = pid


def test_what_a_process_counted_stays_when_it_ends_and_its_history_is_lost():
    server = FigureServer(2)
    several = server.add(served)
    for one in several:
        answered(one, 3)
        failed(one)
    server.second()
    reader = server.reader(MODELS, OVERVIEW)
    found = reader.look()
    assert found["models"]["rows"][0]["success"] == 6
    assert found["tick"]["lost_history"] is False
    gone = server.all[1]
    known_pid(server, reader, gone, ended_pid())
    server.end(gone)
    answered(several[0], 1)
    server.second()
    found = reader.look()
    assert (found["models"]["rows"][0]["success"], found["models"]["rows"][0]["failure"]) == (7, 2)
    assert found["tick"]["lost_history"] is True
    assert len(found["tick"]["processes"]) == 1
    assert found["tick"]["row"]["success"] == 1
    later = server.reader(MODELS).look()
    assert later["models"]["rows"][0]["success"] == 7


def test_what_ended_before_anybody_looked_counts_too():
    server = FigureServer(2)
    several = server.add(served)
    for one in several:
        answered(one, 3)
    server.second()
    server.end(server.all[1])
    assert server.reader(MODELS).look()["models"]["rows"][0]["success"] == 6


def test_one_that_does_not_reply_is_shown_as_it_was():
    server = FigureServer(2)
    several = server.add(served)
    for one in several:
        answered(one, 3)
    server.second()
    reader = server.reader(MODELS, OVERVIEW)
    reader.look()
    server.silent.add(server.all[1])
    answered(several[0], 1)
    server.second()
    found = reader.look()
    assert found["models"]["rows"][0]["success"] == 7
    assert (len(found["tick"]["processes"]), found["tick"]["lost_history"]) == (2, False)


@pytest.mark.parametrize("what", ["restart_count", "generation"])
def test_history_is_lost_where_processes_were_replaced_before(what):
    server = FigureServer(2)
    setattr(server.all[0].processes, what, 1)
    server.second()
    assert server.reader().look()["tick"]["lost_history"] is True


def test_after_a_pause_the_history_is_whole_again():
    server = FigureServer(2)
    several = server.add(served)
    server.second(3)
    server.reader().look()
    for _ in range(int(FORGOTTEN_S) + 5):
        answered(several[0], 1)
        answered(several[1], 1)
        server.second()
    found = server.reader().look()
    assert found["history"]["second"]["success"] == [0] * 3 + [2] * (int(FORGOTTEN_S) + 5)


def test_what_is_no_part_of_another_process_is_an_error():
    server = FigureServer(2)
    server.second()

    async def nonsense(what):
        return [b"nonsense"]

    server.all[0].engine.whole.others.ask = nonsense
    with pytest.raises(InferdError):
        server.reader().look()

    async def nothing(what):
        return [b""]

    server.all[0].engine.whole.others.ask = nothing
    assert "tick" in server.reader().look()


def test_recent_items_are_bounded():
    recent = Recent(MOST_REQUESTS)
    recent.add(list(range(2 * MOST_REQUESTS)))
    assert recent.since(0) == (list(range(MOST_REQUESTS, 2 * MOST_REQUESTS)), MOST_REQUESTS)
    recent.add([1], lost=3)
    assert recent.since(2 * MOST_REQUESTS) == (
        [MOST_REQUESTS * 2 - 3 + n for n in range(3)] + [1],
        0,
    )


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)</script>", "a\nevent: tick\ndata: x", "\u202e"]
)
def test_hostile_names_are_data(name):
    server = FigureServer(2)
    several = server.add(lambda: served(name))
    for one in several:
        answered(one)
        failed(one, name, id=name)
    server.second()
    reader = server.reader(MODELS, REQUESTS, Subject("model", name, "1"))
    found = reader.look()
    assert found["models"]["rows"][0]["name"] == found["model"]["name"] == name
    assert found["requests"]["rows"][0]["id"] == name
    board = server.all[0].board
    assert all(b"\n" not in bytes(raw) for _, raw in board.rows.values())
    assert msgspec.json.decode(board.details[name, "1"])["name"] == name
