import sys

import pytest

from inferd.observe.stats import fine_bucket
from inferd.ui.figures.history import (
    COLUMNS,
    MOST_MINUTES,
    MOST_SECONDS,
    DayHistory,
    Row,
    at_the_same_time,
    in_a_minute,
)

START = 1_800_000_000  # the beginning of a minute
MS = 1_000_000


def row(second, success=0, ms=1, **more):
    durations = {fine_bucket(ms * MS): success} if success else {}
    return Row(second, success, durations=durations, **more)


def filled(count, **how):
    history = DayHistory(**how)
    for number in range(count):
        history.add(row(START + number, number % 3, cpu=0.5, memory=100 + number % 2))
    return history


def test_an_empty_history_has_all_columns_and_no_rows():
    history = DayHistory()
    assert history.columns() == {
        "second": {name: [] for name in COLUMNS},
        "minute": {name: [] for name in COLUMNS},
    }
    assert (history.last, history.latest(), history.seconds.newest("refused", 5)) == (0, None, [])


def test_a_second_is_shown_as_it_was():
    history = DayHistory()
    added = row(START, 3, ms=4, failure=1, refused=2, cpu=1.23456, memory=5e9, pending=6)
    added.queued, added.connections, added.gpu, added.gpu_memory = 7, 8, 0.25, 2**34
    history.add(added)
    found = {name: values[0] for name, values in history.columns()["second"].items()}
    assert history.latest() == found
    for name in ("p50", "p95", "p99"):
        assert found.pop(name) == pytest.approx(4 * MS, rel=1 / 16)
    assert found == {
        "time": START * 1000,
        "success": 3,
        "failure": 1,
        "refused": 2,
        "cpu": 1.235,
        "memory": 5_000_000_000,
        "pending": 6,
        "queued": 7,
        "connections": 8,
        "gpu": 0.25,
        "gpu_memory": 2**34,
    }


def test_what_is_not_known_is_null_and_zero_is_zero():
    history = DayHistory()
    history.add(row(START))
    found = history.latest()
    assert [name for name, value in found.items() if value is None] == [
        "p50",
        "p95",
        "p99",
        "gpu",
        "gpu_memory",
    ]
    assert (found["success"], found["cpu"]) == (0, 0)


def test_a_minute_has_sums_means_and_the_percentiles_of_all_its_requests():
    history = DayHistory()
    for number in range(61):
        slow = number == 7
        history.add(row(START + number, 10 if slow else 1, ms=500 if slow else 1, pending=number))
    minute = history.columns()["minute"]
    assert minute["time"] == [START * 1000]
    assert minute["success"] == [69]
    assert minute["pending"] == [29.5]
    assert minute["p50"][0] == pytest.approx(MS, rel=1 / 16)
    assert minute["p95"][0] == pytest.approx(500 * MS, rel=1 / 16)


def test_a_minute_with_gaps_is_the_mean_of_what_there_is():
    assert in_a_minute([row(START, gpu=0.5), row(START + 9)]).gpu == 0.5
    history = DayHistory()
    for second in (START, START + 30, START + 200):
        history.add(row(second, 1, cpu=2.0))
    assert history.columns()["minute"]["success"] == [2]


def test_an_hour_of_seconds_and_a_day_of_minutes_are_remembered_and_no_more():
    history = filled(MOST_SECONDS + 1000)
    seconds = history.columns()["second"]
    assert {len(values) for values in seconds.values()} == {MOST_SECONDS}
    assert seconds["time"][0] == (START + 1000) * 1000
    history = DayHistory()
    for number in range(MOST_MINUTES + 300):
        history.add(row(START + 60 * number, 1))
    minutes = history.columns()["minute"]
    assert {len(values) for values in minutes.values()} == {MOST_MINUTES}
    assert minutes["time"][-1] == (START + 60 * (MOST_MINUTES + 298)) * 1000


def test_a_day_takes_less_than_a_megabyte():
    history = DayHistory()
    for number in range(MOST_SECONDS * 2):
        history.add(row(START + 20 * number, 9))
    tables = (history.seconds, history.minutes)
    size = sum(sys.getsizeof(column) for table in tables for column in table._columns.values())
    assert size < 1_000_000


def test_a_second_counts_once_and_a_clock_that_was_put_back_begins_anew():
    history = filled(100)
    history.add(row(START + 99, 50))
    history.add(row(START + 98, 50))
    assert history.last == START + 99
    history.add(row(START + 10, 1))
    assert history.columns()["second"]["time"] == [(START + 10) * 1000]
    assert history.columns()["minute"]["time"] == []


def test_rows_can_be_made_again_for_others():
    history = filled(200, has_durations=True)
    found = history.seconds.rows(START + 197)
    assert found == [
        row(START + number, number % 3, cpu=0.5, memory=100 + number % 2) for number in (198, 199)
    ]
    assert len(history.seconds.rows(0)) == 200
    assert [one.second for one in history.minutes.rows()] == [START, START + 60, START + 120]
    assert history.minutes.rows()[0].durations == {fine_bucket(MS): 60}
    assert filled(10).seconds.rows(0) == []


def test_rows_that_are_made_again_are_those_that_are_left():
    history = filled(MOST_SECONDS + 1000, has_durations=True)
    found = history.seconds.rows(0)
    assert len(found) == MOST_SECONDS
    for one in (found[0], found[-1]):
        number = one.second - START
        assert one == row(one.second, number % 3, cpu=0.5, memory=100 + number % 2)


def test_processes_add_up_and_share_their_gpus():
    one = row(START, 2, cpu=0.5, memory=10, connections=1, gpu=0.5, gpu_memory=7)
    other = row(START, 3, ms=9, failure=1, cpu=1.0, memory=20, pending=4)
    found = at_the_same_time([one, other])
    assert found == Row(
        START,
        5,
        1,
        0,
        1.5,
        30,
        4,
        0,
        1,
        0.5,
        7,
        {fine_bucket(MS): 2, fine_bucket(9 * MS): 3},
    )
    assert one.durations == {fine_bucket(MS): 2}
