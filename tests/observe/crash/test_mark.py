"""Marks of what runs, and what their notes say."""

import pytest

from inferd.core.request import InferRequest
from inferd.observe.crash.mark import ID_CHARS, ModelMarks, RunMarks, shown_ids


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        ([], ""),
        (["a"], "a"),
        ([""], ""),
        (["a", "", "bc"], "a, bc"),
        (["x" * 1000], "x" * ID_CHARS),
        (["x" * 1000, "y"], "x" * ID_CHARS),
    ],
)
def test_a_note_has_the_ids_of_all_requests_as_far_as_it_can_hold_them(ids, shown):
    assert shown_ids([InferRequest("m", id=one) for one in ids]) == shown


def test_without_a_record_marks_mean_nothing():
    marks = ModelMarks(RunMarks(), "m", "1")
    one, other = marks.claim(), marks.claim(3, is_load=True)
    one.note.value = "x"
    assert other.note.value == other.idle
    marks.release(one)
