"""Whose fault it is when a run on the event loop takes long."""

import asyncio

from inferd.observe.stats import Counts
from inferd.schedulers.execution import FIRST_RUNS, OVERRUN_NS, Execution
from inferd.schedulers.overrun import BUDGET_NS, MOST_FORGIVEN_NS, WINDOW_NS, Gauges, Overruns


class Machine:
    """A clock, and a count of preemptions; both change when the test says so."""

    def __init__(self):
        self.now_ns = 0
        self.count = 5
        self.overruns = Overruns(lambda: self.now_ns, lambda: self.count)
        self.overruns.look()


def test_an_overrun_without_a_preemption_is_the_models_fault():
    assert not Machine().overruns.is_forgiven(OVERRUN_NS)


def test_an_overrun_after_a_preemption_is_forgiven_once():
    machine = Machine()
    machine.count += 1
    assert machine.overruns.is_forgiven(OVERRUN_NS)
    assert not machine.overruns.is_forgiven(OVERRUN_NS)


def test_what_is_too_long_for_any_preemption_is_not_forgiven():
    machine = Machine()
    machine.count += 1
    assert not machine.overruns.is_forgiven(MOST_FORGIVEN_NS + 1)


def test_forgiveness_has_a_budget_that_fills_again():
    machine = Machine()
    forgiven = 0
    while True:
        machine.count += 1
        if not machine.overruns.is_forgiven(MOST_FORGIVEN_NS):
            break
        forgiven += 1
    assert forgiven == BUDGET_NS // MOST_FORGIVEN_NS
    machine.now_ns += WINDOW_NS + 1
    machine.count += 1
    assert machine.overruns.is_forgiven(MOST_FORGIVEN_NS)


def test_a_preempted_run_leaves_the_model_on_the_loop(echo, request_of):
    preempted = [0]
    gauges = Gauges(echo.clock, lambda: preempted[0])

    async def serve():
        execution = Execution(
            "m", [echo], may_run_inline=True, counts=Counts(echo.clock), gauges=gauges
        )
        for _ in range(FIRST_RUNS):
            await execution.run_in_thread((request_of(),))
        echo.takes_ns, preempted[0] = OVERRUN_NS + 1, 1
        assert execution.run_inline((request_of(),))
        echo.takes_ns = 0
        assert execution.run_inline((request_of(),))
        await execution.close(30)

    asyncio.run(serve())


def test_the_system_counts_the_time_a_thread_works_and_its_preemptions():
    gauges = Gauges()
    cpu_ns, preemptions = gauges.cpu_ns(), gauges.preemptions()
    sum(range(100_000))
    assert gauges.cpu_ns() > cpu_ns > 0
    assert gauges.preemptions() >= preemptions >= 0
