"""Which size classes run on the event loop; what that means for requests is in test_execution."""

import pytest

from inferd.core.request import InferRequest, InferResponse
from inferd.errors import BackendFailed
from inferd.observe.crash.mark import ModelMarks, RunMarks
from inferd.schedulers.execution.promotion import (
    CALM_NS,
    FIRST_RUNS,
    MOST_RUNS,
    OVERRUN_NS,
    PROMOTE_NS,
    Gauges,
    Promotion,
    Usage,
    size_class_of,
)
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

ANSWER = InferResponse("m", "1")


class World:
    """A promotion, and the clock it sees; the system never preempts."""

    def __init__(self):
        self.now_ns = 0
        gauges = Gauges(lambda: 0, lambda: Usage(0, 0, 0))
        marks = ModelMarks(RunMarks(), "m", "1")
        self.promotion = Promotion("m", lambda: self.now_ns, gauges, marks, may=True)

    def runs(self, count, took_ns=1, outcome=(ANSWER,), size=4):
        """Have requests of that many elements run in a thread."""
        for _ in range(count):
            request = request_of(size)
            request.cpu_ns = took_ns
            self.promotion.note_thread_run((request,), outcome)

    def is_prompt(self, size=4):
        return self.promotion.is_prompt[size_class_of((request_of(size),))]

    def needed(self):
        """Return how many short runs it takes to move, after as many as that."""
        count = 0
        while not self.is_prompt():
            self.runs(1)
            count += 1
        return count


@pytest.fixture
def world():
    return World()


def request_of(size):
    return InferRequest("m", inputs=[Tensor("X", DataType.INT8, (size,), bytes(size))])


def test_enough_short_runs_move_one_size_class_onto_the_loop(world):
    world.runs(FIRST_RUNS - 1)
    assert not world.is_prompt() and not world.promotion.has_any
    world.runs(1)
    assert world.is_prompt() and world.promotion.has_any
    assert world.is_prompt(size=7) and not world.is_prompt(size=8)


@pytest.mark.parametrize(("took_ns", "more"), [(PROMOTE_NS + 1, 1), (OVERRUN_NS + 1, 5)])
def test_a_run_that_is_not_short_counts_against_it_and_one_that_is_long_undoes_all(
    world, took_ns, more
):
    world.runs(5)
    world.runs(1, took_ns)
    world.runs(FIRST_RUNS - 5 + more - 1)
    assert not world.is_prompt()
    world.runs(1)
    assert world.is_prompt()


@pytest.mark.parametrize("outcome", [BackendFailed("no"), (BackendFailed("no"),)])
def test_failed_runs_say_nothing(world, outcome):
    world.runs(2 * FIRST_RUNS, outcome=outcome)
    assert not world.promotion.has_any


def test_overruns_that_keep_coming_make_each_move_need_twice_the_runs_up_to_a_limit(world):
    needed = [world.needed()]
    while needed[-1] < MOST_RUNS:
        world.promotion.note_overrun(size_class_of((request_of(4),)), OVERRUN_NS + 1)
        assert not world.promotion.has_any
        needed.append(world.needed())
    assert needed == [8, 16, 32, 64, 128, 256]
    world.now_ns = CALM_NS
    world.promotion.note_overrun(size_class_of((request_of(4),)), OVERRUN_NS + 1)
    assert world.needed() == FIRST_RUNS


def test_one_that_has_stopped_runs_nothing_on_the_loop_any_more(world):
    world.runs(FIRST_RUNS)
    world.promotion.stop()
    assert not world.promotion.has_any and not world.is_prompt()
    world.runs(2 * FIRST_RUNS)
    assert not world.promotion.has_any
