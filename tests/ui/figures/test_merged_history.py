import asyncio

from inferd.observe.stats import fine_bucket
from inferd.ui.figures.history import DayHistory, Row
from inferd.ui.figures.merged_history import PATIENCE_S, MergedHistory
from inferd.ui.figures.part import ProcessPart

START = 1_800_000_000
MS = 1_000_000


class Process:
    """The history of a process, and what has been heard of it."""

    def __init__(self, key):
        self.key = key
        self.history = DayHistory(has_durations=True)
        self.heard = 0

    def sample(self, second, success=1, ms=1):
        durations = {fine_bucket(ms * MS): success} if success else {}
        self.history.add(Row(START + second, success, cpu=0.5, durations=durations))

    def part(self):
        part = ProcessPart(self.key, 1, second=self.history.last)
        part.seconds = self.history.seconds.rows(self.heard)
        part.minutes = [] if self.heard else self.history.minutes.rows()
        self.heard = self.history.last
        return part


def look(merged, *processes):
    asyncio.run(merged.add([process.part() for process in processes]))
    return merged.history.columns()


def test_the_history_of_two_processes_is_that_of_one_with_the_work_of_both():
    merged, one, other, whole = MergedHistory(), Process("a"), Process("b"), DayHistory()
    for second in range(400):
        one.sample(second, second % 3)
        other.sample(second, second % 5, ms=20)
        durations = {fine_bucket(MS): second % 3, fine_bucket(20 * MS): second % 5}
        durations = {bucket: count for bucket, count in durations.items() if count}
        row = Row(START + second, second % 3 + second % 5, cpu=1.0, durations=durations)
        whole.add(row)
        if second in (150, 151, 190, 399):
            assert look(merged, one, other) == whole.columns()


def test_a_second_is_shown_when_all_have_told_of_it():
    merged, one, other = MergedHistory(), Process("a"), Process("b")
    for second in range(5):
        one.sample(second)
        other.sample(second)
    one.sample(5)
    assert look(merged, one, other)["second"]["success"] == [2] * 5
    other.sample(5)
    other.sample(6)
    assert look(merged, one, other)["second"]["success"] == [2] * 6
    one.sample(6)
    assert look(merged, one, other)["second"]["success"] == [2] * 7


def test_one_that_hangs_does_not_hold_up_the_others():
    merged, one, other = MergedHistory(), Process("a"), Process("b")
    one.sample(0)
    other.sample(0)
    look(merged, one, other)
    for second in range(1, 2 + PATIENCE_S):
        one.sample(second)
    assert look(merged, one, other)["second"]["success"] == [2] + [1] * (1 + PATIENCE_S)


def test_a_process_that_begins_later_adds_to_what_comes():
    merged, one, other = MergedHistory(), Process("a"), Process("b")
    for second in range(130):
        one.sample(second)
    look(merged, one)
    for second in range(130, 200):
        one.sample(second)
        other.sample(second)
    found = look(merged, one, other)
    assert found["second"]["success"] == [1] * 130 + [2] * 70
    assert found["minute"]["success"] == [60, 60, 110]
