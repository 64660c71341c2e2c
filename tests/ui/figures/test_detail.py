import msgspec
import pytest

from inferd.observe.stats import fine_bound, fine_bucket
from inferd.ui.figures.model_rows import MOST_NOTABLE, QUEUE_ERROR, detail
from inferd.ui.figures.notable import NotableRequest
from inferd.ui.figures.part import DetailPart, StepPart


def part(**more):
    fields = {
        "requests": {},
        "queue": {},
        "failures": {},
        "notable": [],
        "sequences": None,
        "queued": 0,
        "steps": [],
        "written": [],
    }
    return DetailPart("m", "1", **fields | more)


def notable(at, status):
    return NotableRequest(at, "m", "1", "id", status, "no", "OTHER", 7, 0, 0, 0, 0, 0, 1, 2)


def test_nothing_is_empty():
    found = detail([])
    assert found["latency"] == {"bounds": [], "counts": [], "error": 1 / 16}
    assert found["failures"] == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 0, "OTHER": 0}
    assert (found["errors"], found["slow"], found["steps"]) == ([], [], [])
    assert found["sequences"] is None


@pytest.mark.parametrize("ns", [0, 9, 1000, 10**6, 3 * 10**9])
def test_histograms_are_added_and_reach_from_the_first_to_the_last_that_has_any(ns):
    low = fine_bucket(ns)
    found = detail([part(requests={low: 2}), part(requests={low: 1, low + 2: 5})])["latency"]
    assert found["counts"] == [3, 0, 5]
    assert found["bounds"] == [fine_bound(low + at) for at in range(4)]
    assert found["bounds"][0] <= ns < found["bounds"][1]


@pytest.mark.parametrize("ns", [0, 1, 2, 1000, 10**9])
def test_times_in_the_queue_are_in_powers_of_two(ns):
    found = detail([part(queue={ns.bit_length(): 4})])["queue_latency"]
    low, high = found["bounds"]
    assert low <= ns < high
    assert (found["counts"], found["error"]) == ([4], QUEUE_ERROR)


def test_failures_sequences_and_what_waits_are_added():
    one = part(failures={"BACKEND": 1, "OTHER": 2}, sequences=3, queued=1)
    found = detail([one, part(failures={"BACKEND": 4}, queued=2)])
    assert found["failures"] == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 5, "OTHER": 2}
    assert (found["sequences"], found["queued"]) == (3, 3)


def test_the_newest_of_all_processes_come_first():
    one = part(notable=[notable(at, "failed") for at in range(0, 40, 2)])
    other = part(notable=[notable(at, "failed") for at in range(1, 40, 2)] + [notable(9, "ok")])
    found = detail([one, other])
    assert [error["time"] for error in found["errors"]] == list(range(39, 39 - MOST_NOTABLE, -1))
    assert found["errors"][0] == {
        "time": 39,
        "id": "id",
        "text": "no",
        "reason": "OTHER",
        "took": 7,
    }
    assert [slow.time for slow in found["slow"]] == [9]


def test_of_those_that_ended_in_one_millisecond_the_last_comes_first():
    several = [msgspec.structs.replace(notable(5, "failed"), id=str(number)) for number in range(3)]
    found = detail([part(notable=several)])
    assert [error["id"] for error in found["errors"]] == ["2", "1", "0"]


def test_steps_have_the_mean_of_all_processes():
    one = part(
        steps=[StepPart("a", "1", 2, 30), StepPart("b", "1", 0, 0), StepPart("a", "1", 2, 30)]
    )
    found = detail([one, part(steps=[StepPart("a", "1", 1, 60)])])["steps"]
    assert found == [
        {"model": "a", "version": "1", "mean": 30, "count": 3},
        {"model": "b", "version": "1", "mean": None, "count": 0},
    ]
