"""What is sampled of an engine, with meters that say what they are to say, and by the clock."""

import asyncio
import logging

import pytest
from figure_models import NOW, Clock, answered, failed, served
from figure_server import OVERVIEW, FigureServer, OneProcess

from inferd.observe.devices import GpuReading
from inferd.ui.figures.part import FigureQuestion, Seen
from inferd.ui.figures.sampler import Meters


class FakeGpus:
    def __init__(self, *readings):
        self.read = list(readings)

    def readings(self):
        return self.read


def part(process, **question):
    return asyncio.run(process.sampler.part(FigureQuestion(**question)))


def test_gpus_are_in_the_history_as_they_are_read():
    gpus = FakeGpus(GpuReading("A", 0.5, 10, 100), GpuReading("B", 0.25, 20, 100))
    server = FigureServer(2, gpus=gpus)
    server.second()
    gpus.read = [GpuReading("A", None, None, None)]
    server.second()
    found = server.reader(OVERVIEW).look()
    assert found["history"]["second"]["gpu"] == [0.375, None]
    assert found["history"]["second"]["gpu_memory"] == [30, None]
    assert found["tick"]["gpus"] == [
        {"name": "A", "utilization": None, "memory": None, "memory_total": None}
    ]


def test_a_machine_without_gpus_is_not_asked_again():
    gpus = FakeGpus()
    process = OneProcess(Clock(), gpus=gpus)
    asyncio.run(process.sampler.sample(NOW))
    gpus.read = [GpuReading("A", 0.5, 10, 100)]
    asyncio.run(process.sampler.sample(NOW + 1))
    assert process.sampler.history.latest()["gpu"] is None


def test_a_part_has_only_what_is_wanted():
    server = FigureServer(2)
    [one, _] = server.add(served)
    answered(one)
    failed(one)
    server.second()
    process = server.all[0]
    bare = part(process)
    assert (bare.seconds, bare.models, bare.lines, bare.requests) == ([], [], [], [])
    assert (bare.key, bare.second) == (process.sampler.key, NOW + 1)
    assert bare.seen == Seen()
    whole = part(process, history=True, models=True, lines=True, requests=True)
    assert (len(whole.seconds), len(whole.models), len(whole.requests)) == (1, 1, 1)
    seen = {process.sampler.key: whole.seen}
    again = part(process, seen=seen, history=True, models=True, lines=True, requests=True)
    assert (again.seconds, again.models, again.requests) == ([], [], [])
    assert again.seen == whole.seen
    assert [one.name for one in part(process, details=[("m", "1"), ("x", "1")]).details] == ["m"]


class Sleeps:
    """Has time pass instead of sleeping, and ends the test after some seconds."""

    def __init__(self, clock, lengths):
        self.clock, self.lengths = clock, iter(lengths)

    async def __call__(self, delay_s):
        try:
            self.clock.now += delay_s + next(self.lengths)
        except StopIteration:
            raise asyncio.CancelledError from None


@pytest.mark.parametrize(
    ("late", "seconds"),
    [
        ([0, 0, 0], [NOW + 1, NOW + 2, NOW + 3]),
        ([0.25, 0, 0.5], [NOW + 1, NOW + 2, NOW + 3]),
        ([0, 2.5, 0], [NOW + 1, NOW + 4, NOW + 5]),
        ([-0.01, 0, 0], [NOW + 1, NOW + 2]),
    ],
)
def test_each_second_of_the_wall_clock_has_its_row(late, seconds):
    clock = Clock(NOW + 0.7)
    process = OneProcess(clock, sleep=Sleeps(clock, late))

    async def run():
        process.sampler.start()
        try:
            await process.sampler._task
        finally:
            process.sampler.stop()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    times = process.sampler.history.columns()["second"]["time"]
    assert times == [second * 1000 for second in seconds]


def test_a_second_that_fails_is_logged_once_and_later_ones_go_on(caplog):
    clock = Clock(NOW + 0.5)
    process = OneProcess(clock, sleep=Sleeps(clock, [0, 0, 0, 0]))
    seen = iter([5, None, None, 6])
    process.sampler._meters = Meters(lambda: next(seen) + 0)

    async def run():
        process.sampler.start()
        try:
            await process.sampler._task
        finally:
            process.sampler.stop()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    second = process.sampler.history.columns()["second"]
    assert second["time"] == [(NOW + 1) * 1000, (NOW + 4) * 1000]
    assert second["connections"] == [5, 6]
    assert [record.name for record in caplog.records] == ["inferd.ui"]


def test_it_hears_of_new_models_and_of_the_log_while_it_runs():
    async def run():
        process = OneProcess(Clock())
        process.engine.whole.catalog.on_add.clear()
        process.sampler.start()
        one = served()
        process.engine.catalog.add(one)
        failed(one, "in its first second")
        logging.getLogger("inferd.x").warning("heard")
        process.sampler.stop()
        process.sampler.stop()
        logging.getLogger("inferd.x").warning("not heard")
        assert process.engine.whole.catalog.on_add == []
        return process.sampler

    sampler = asyncio.run(run())
    assert [found.error for found in sampler.requests.since(0)] == ["in its first second"]
    assert [line.text for line in sampler.lines.since(0)[0]] == ["heard"]
