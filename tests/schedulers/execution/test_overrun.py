"""Whose fault it is when a run on the event loop takes long."""

import asyncio

import pytest

from inferd.core.interfaces import Opened
from inferd.observe.stats import Counts
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.execution.promotion import (
    BUDGET_NS,
    FIRST_RUNS,
    MOST_FORGIVEN_NS,
    OVERRUN_NS,
    WATCHED_RUNS,
    WINDOW_NS,
    Gauges,
    Overruns,
    Usage,
)


class Machine:
    """A clock, and what the system did to the thread; both change when the test says so."""

    def __init__(self):
        self.now_ns = 0
        self.cpu_ns = 0
        self.waits = 0
        self.count = 5
        self.overruns = Overruns(lambda: self.now_ns, self.usage)
        self.overruns.look()

    def usage(self):
        return Usage(self.cpu_ns, self.waits, self.count)

    def overrun(self, took_ns, *, cpu_ns=0, waits=0, preemptions=1):
        """Run once, watched if that is asked for; tell whether the overrun is forgiven."""
        if self.overruns.runs_to_watch:
            self.overruns.watch()
        self.now_ns += took_ns
        self.cpu_ns += cpu_ns
        self.waits += waits
        self.count += preemptions
        return self.overruns.is_forgiven(took_ns)


@pytest.fixture
def watching():
    """A machine whose overruns have used up the budget of suspicion."""
    machine = Machine()
    while not machine.overruns.runs_to_watch:
        assert machine.overrun(MOST_FORGIVEN_NS)
    return machine


def test_an_overrun_without_a_preemption_is_the_models_fault():
    assert not Machine().overruns.is_forgiven(OVERRUN_NS)


def test_an_overrun_after_a_preemption_is_forgiven_once():
    machine = Machine()
    machine.count += 1
    assert machine.overruns.is_forgiven(OVERRUN_NS)
    assert not machine.overruns.is_forgiven(OVERRUN_NS)


def test_what_is_too_long_for_any_preemption_is_not_forgiven():
    assert not Machine().overrun(BUDGET_NS + 1)


def test_forgiveness_on_suspicion_has_a_budget_that_fills_again():
    machine = Machine()
    for _ in range(BUDGET_NS // MOST_FORGIVEN_NS):
        assert machine.overrun(MOST_FORGIVEN_NS)
    assert not machine.overruns.runs_to_watch
    machine.now_ns += WINDOW_NS + 1
    assert machine.overrun(MOST_FORGIVEN_NS)
    assert not machine.overruns.runs_to_watch


@pytest.mark.parametrize("took_ns", [MOST_FORGIVEN_NS + 1, BUDGET_NS])
def test_a_run_of_which_suspicion_is_not_enough_has_the_next_ones_watched(took_ns):
    machine = Machine()
    assert machine.overrun(took_ns)
    assert machine.overruns.runs_to_watch


def test_watched_runs_that_only_the_system_made_long_are_forgiven_however_many(watching):
    for _ in range(WATCHED_RUNS - 1):
        assert watching.overrun(2 * MOST_FORGIVEN_NS, cpu_ns=OVERRUN_NS)


@pytest.mark.parametrize(
    "doings",
    [{"cpu_ns": OVERRUN_NS + 1}, {"waits": 1}, {"preemptions": 0}],
    ids=["it computed", "it waited", "nobody interrupted it"],
)
def test_a_watched_run_that_was_long_by_itself_is_not_forgiven(watching, doings):
    assert not watching.overrun(MOST_FORGIVEN_NS, **doings)


def test_what_happens_between_watched_runs_is_nobodys_fault(watching):
    watching.cpu_ns += BUDGET_NS
    watching.waits += 1
    assert watching.overrun(MOST_FORGIVEN_NS)


def test_watching_ends_and_then_suspicion_is_enough_again(watching):
    calls = 0
    while watching.overruns.runs_to_watch:
        watching.overruns.watch()
        calls += 1
    assert calls == WATCHED_RUNS
    assert watching.overrun(MOST_FORGIVEN_NS, cpu_ns=BUDGET_NS, waits=9)
    assert not watching.overruns.runs_to_watch


def test_a_model_that_comes_back_to_the_loop_is_not_watched_any_more(watching):
    watching.overruns.look()
    assert not watching.overruns.runs_to_watch


def test_a_preempted_run_leaves_the_model_on_the_loop(echo, request_of):
    preempted = [0]
    gauges = Gauges(echo.clock, lambda: Usage(0, 0, preempted[0]))

    async def serve():
        execution = Execution(
            "m", [Opened(echo, echo)], may_run_inline=True, counts=Counts(echo.clock), gauges=gauges
        )
        for _ in range(FIRST_RUNS):
            await execution.run((request_of(),))
        echo.takes_ns, preempted[0] = OVERRUN_NS + 1, 1
        assert execution.run_now((request_of(),))
        echo.takes_ns = 0
        assert execution.run_now((request_of(),))
        await execution.close(30)

    asyncio.run(serve())


def test_a_model_that_is_slow_though_the_machine_is_busy_leaves_the_loop(echo, request_of):
    usage = [Usage(0, 0, 0)]

    async def serve():
        execution = Execution(
            "m",
            [Opened(echo, echo)],
            may_run_inline=True,
            counts=Counts(echo.clock),
            gauges=Gauges(lambda: 0, lambda: usage[0]),
        )
        for _ in range(FIRST_RUNS):
            await execution.run((request_of(),))
        inner, runs = echo.execute, 0

        def slow(requests):  # a model of 50 ms, on a machine that interrupts it
            before = usage[0]
            usage[0] = Usage(before.cpu_ns + 50_000_000, 0, before.preemptions + 1)
            return inner(requests)

        echo.takes_ns, echo.execute = 50_000_000, slow
        while execution.run_now((request_of(),)) is not None:
            runs += 1
        await execution.close(30)
        return runs

    assert asyncio.run(serve()) == 2


def test_the_system_counts_what_a_thread_does():
    gauges = Gauges()
    cpu_ns, usage = gauges.cpu_ns(), gauges.usage()
    sum(range(100_000))
    assert gauges.cpu_ns() > cpu_ns > 0
    later = gauges.usage()
    assert all(now >= before >= 0 for now, before in zip(later, usage, strict=True))
