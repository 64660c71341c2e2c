"""What all places answer becomes one answer, which says where it is not so."""

import pytest

from inferd.core.metadata import IndexEntry, ModelState
from inferd.errors import InferdError
from inferd.observe.statistics import (
    BatchStatistics,
    Duration,
    InferStatistics,
    MemoryUsage,
    ModelStatistics,
    ResponseStatistics,
)
from inferd.route.whole import (
    NotDone,
    PlaceAnswer,
    done_everywhere,
    read_json,
    same_everywhere,
    those_with_answers,
    whole_index,
    whole_statistics,
    worst,
)

READY, UNAVAILABLE = ModelState.READY, ModelState.UNAVAILABLE
DONE = PlaceAnswer("a", b"{}", 200)
OTHER = PlaceAnswer("b", b"{}", 200)


def failed(place, text, status=400, **more):
    return PlaceAnswer(place, b"", status, text, is_failed=True, **more)


def test_what_is_done_everywhere_has_the_first_answer():
    assert done_everywhere([DONE, OTHER]) is DONE


def test_what_fails_everywhere_in_the_same_way_is_worded_as_by_one_server():
    with pytest.raises(NotDone) as error:
        done_everywhere([failed("a", "no such model", 404), failed("b", "no such model", 404)])
    assert (error.value.status, error.value.message) == (404, "no such model")


def test_what_fails_at_some_places_says_where_it_failed_and_where_it_is_done():
    answers = [DONE, failed("b", "disk full", 500), OTHER._replace(place="c"), failed("d", "no")]
    with pytest.raises(NotDone) as error:
        done_everywhere(answers)
    assert error.value.status == 500
    assert error.value.message == "disk full (at b; at d: no); done at a, c"


def test_settings_are_told_if_they_are_the_same():
    first = PlaceAnswer("a", b'{"x": 1}', 200)
    assert same_everywhere([first, PlaceAnswer("b", b'{"x":1}', 200)], read_json) is first
    with pytest.raises(NotDone) as error:
        same_everywhere([first, PlaceAnswer("b", b'{"x":2}', 200)], read_json)
    assert "a has {'x': 1}, b has {'x': 2}" in error.value.message


def test_an_answer_that_is_no_json_is_the_places_fault():
    for body in (b"{", b"[" * 100_000, b"\xff"):
        with pytest.raises(InferdError, match="a place's answer is malformed"):
            read_json(body)


def test_places_that_do_not_know_what_was_asked_for_are_left_out():
    assert those_with_answers([failed("a", "no such model"), OTHER]) == [OTHER]
    with pytest.raises(NotDone, match="no such model"):
        those_with_answers([failed("a", "silent", is_silent=True), failed("b", "no such model")])
    with pytest.raises(NotDone, match="silent"):
        those_with_answers([failed("a", "silent", is_silent=True)])


def test_the_worst_answer_is_the_first_that_failed():
    assert worst([DONE, OTHER]) is DONE
    assert worst([DONE, failed("b", "no")]).place == "b"


def test_a_version_is_ready_if_it_is_anywhere_and_the_reason_says_where_it_is_not():
    rows = whole_index(
        [
            ("a", [IndexEntry("m", "1", READY), IndexEntry("n", "1", READY)]),
            ("b", [IndexEntry("m", "1", READY), IndexEntry("n", "1", UNAVAILABLE, "broken")]),
            ("c", [IndexEntry("m", "1", READY), IndexEntry("n")]),
        ]
    )
    assert rows == [
        IndexEntry("m", "1", READY, ""),
        IndexEntry("n", "1", READY, "at b: UNAVAILABLE broken; at c: not loaded"),
    ]


def test_a_version_that_is_ready_nowhere_has_its_reason():
    rows = whole_index(
        [
            ("a", [IndexEntry("m", "1", UNAVAILABLE, "unloaded")]),
            ("b", [IndexEntry("m", "1", UNAVAILABLE, "unloaded")]),
        ]
    )
    assert rows == [IndexEntry("m", "1", UNAVAILABLE, "unloaded")]


def test_a_model_that_nobody_has_loaded_is_one_row():
    assert whole_index([("a", [IndexEntry("m")]), ("b", [IndexEntry("m")])]) == [IndexEntry("m")]


def statistics(last, count, batch_size=1, memory=()):
    def one():
        return Duration(count, 10 * count)

    return ModelStatistics(
        "m",
        "1",
        last,
        count,
        count,
        InferStatistics(*(one() for _ in range(8))),
        {"0": ResponseStatistics(one(), one(), one(), one(), one(), one())},
        [BatchStatistics(batch_size, one(), one(), one())],
        [MemoryUsage("CPU", 0, size) for size in memory],
    )


def test_statistics_are_added():
    first, second = statistics(5, 1, memory=(7,)), statistics(3, 2, memory=(8,))
    [added] = whole_statistics([[first], [second]])
    assert added == statistics(5, 3, memory=(15,))


def test_batch_sizes_are_added_apart():
    [added] = whole_statistics([[statistics(1, 1, 4)], [statistics(1, 1, 2)]])
    assert [row.batch_size for row in added.batch_stats] == [2, 4]


def test_versions_are_added_apart():
    other = statistics(1, 1)
    other.version = "2"
    assert len(whole_statistics([[statistics(1, 1)], [other]])) == 2
