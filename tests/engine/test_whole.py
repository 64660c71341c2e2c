"""What a server of several processes reports is what one process would, had it done everything."""

import asyncio
from functools import partial

import pytest
from counting import EVENTS, MS, new_counts
from hypothesis import given, settings
from hypothesis import strategies as st
from several import Several

from inferd.config.model import ModelConfig
from inferd.config.options.metrics import MetricsSettings
from inferd.core.processes import Processes
from inferd.engine.engine import Engine
from inferd.engine.serving.served import Served
from inferd.engine.whole import processes_families
from inferd.errors import InferdError, InvalidRequest
from inferd.observe.family import Family
from inferd.observe.numbers import decode
from inferd.observe.prometheus import exposition
from inferd.observe.statistics import Duration
from inferd.observe.stats import Counts

EVERYTHING = MetricsSettings(True, True, True, True, (0.25, 0.5, 0.99))


class Idle:
    pending_count = 0


class Waiting:
    pending_count = 4


def add(engine, name="m", version=1, counts=None, born=0):
    served = Served(ModelConfig(name), version, "identity", Idle(), counts or new_counts())
    served.counts.born = born
    engine.catalog.add(served)
    return served


def told(engine):
    """Return all that an engine tells of the whole server, as text."""
    found = asyncio.run(engine.whole.sum())
    statistics = [one.counts.statistics(one.name, one.version) for one in found.observed()]
    by_size = [one.counts.by_batch_size() for one in found.observed()]
    families = [one for one in found.families() if not one.name.startswith("process_")]
    texts = exposition(found.observed(), EVERYTHING, families)
    customs = sorted(
        "".join(piece for one in found.customs() for piece in one.pieces()).splitlines()
    )
    return ["".join(texts), *customs, repr(statistics), repr(by_size), repr(found.calls())]


# --- any history ---

PROCESSES = 3


class Doing:
    """Something that happens in a process, and may happen again elsewhere."""

    def __init__(self, at_ns, what, size):
        self.at_ns = at_ns
        self.what = what
        self.size = size

    def __call__(self, engine):
        if self.what < len(EVENTS):
            [served] = engine.whole.catalog.served("m")
            EVENTS[self.what](served.counts, self.at_ns, self.size)
        elif self.what == len(EVENTS):
            engine.custom_metrics.add_family("calls_total", "of what", "counter")
            labels = {"size": str(self.size)}
            engine.custom_metrics.metric("calls_total", labels).apply("increment", self.size)
            engine.custom_metrics.add_family("sizes", "how large", "histogram")
            engine.custom_metrics.metric("sizes", {}, (2.0,)).apply("observe", self.size)
        elif self.what == len(EVENTS) + 1:
            engine.capacity.too_many_requests()
        else:
            engine.whole.calls.setdefault("status", Duration()).add(self.size)


class History:
    """A server of processes, and one that does again what they have done and was not lost."""

    def __init__(self):
        self.several = Several()
        self.alone = Engine()
        self.change = 0
        self.now_ns = 0
        self.lost = {}
        self.progress = {}
        add(self.alone)
        for number in range(PROCESSES):
            self.start(number)

    def start(self, number):
        engine = Engine()
        add(engine, born=self.change)
        self.several.start(number, engine)
        self.lost[number] = []
        self.progress[number] = engine.whole.progress()

    def do(self, number, what, size):
        self.now_ns += 50 * MS
        doing = Doing(self.now_ns, what, size)
        doing(self.several.engines[number])
        self.lost[number].append(doing)

    def save(self, number):
        """Have a process send its numbers, if there is more to tell."""
        progress = self.several.engines[number].whole.progress()
        if progress != self.progress[number]:
            self.progress[number] = progress
            self.several.keep(number)
            self.saved(number)
        assert not self.lost[number]

    def saved(self, number):
        [served] = self.alone.whole.catalog.served("m")
        for doing in self.lost[number]:
            last_ns = served.counts.last_ns
            doing(self.alone)
            served.counts.ran_at(max(last_ns, served.counts.last_ns))
        self.lost[number] = []

    def ask(self, number):
        found = told(self.several.engines[number])
        for one in range(PROCESSES):
            self.saved(one)
        expected = told(self.alone)
        assert found == expected

    def end(self, number):
        self.several.end(number)
        self.start(number)

    def reload(self):
        self.change += 1
        for engine in (self.alone, *self.several.engines.values()):
            add(engine, born=self.change)
        for doings in self.lost.values():  # to the version before, whose row is gone
            doings[:] = [doing for doing in doings if doing.what >= len(EVENTS)]


NUMBERS = st.integers(0, PROCESSES - 1)
STEPS = st.one_of(
    st.tuples(st.just("do"), NUMBERS, st.integers(0, len(EVENTS) + 2), st.integers(1, 4)),
    st.tuples(st.just("do"), NUMBERS, st.integers(0, len(EVENTS) + 2), st.integers(1, 4)),
    st.tuples(st.sampled_from(["save", "ask", "end"]), NUMBERS),
    st.tuples(st.just("reload")),
)


@settings(max_examples=60)
@given(st.lists(STEPS, min_size=30, max_size=60))
def test_several_processes_tell_what_one_would(steps):
    history = History()
    for step, *details in steps:
        getattr(history, step)(*details)
    for number in range(PROCESSES):
        history.ask(number)


# --- the numbers of one process ---


def test_what_passes_is_no_progress():
    engine = Engine()
    served = add(engine)
    before = engine.whole.progress()
    served.scheduler = Waiting()
    engine.capacity.request_count += 1
    engine.whole.numbers()
    asyncio.run(engine.whole.fresh())
    assert engine.whole.progress() == before


def test_whatever_is_counted_is_progress():
    engine = Engine()
    add(engine)
    seen = [engine.whole.progress()]
    for what in range(len(EVENTS) + 3):
        Doing(MS, what, 2)(engine)
        seen.append(engine.whole.progress())
    assert len(set(seen)) == len(seen)


class Watched(Counts):
    """Counts that note how often they are read to be sent."""

    reads = 0

    @property
    def last_ns(self):
        self.reads += 1
        return 0


@pytest.mark.plain
def test_rows_are_made_again_only_if_there_is_something_new():
    engine = Engine()
    served = add(engine, counts=Watched())
    first = engine.whole.numbers()
    assert engine.whole.numbers() == first
    assert served.counts.reads == 1
    served.scheduler = Waiting()
    assert engine.whole.numbers() != first
    EVENTS[0](served.counts, MS, 1)
    engine.whole.numbers()
    engine.whole.numbers()
    assert served.counts.reads == 3


def test_durations_that_were_told_of_are_told_of_again_with_what_has_aged(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr("inferd.engine.whole.time.monotonic", lambda: now_s[0])
    engine = Engine()
    served = add(engine)
    for summary in served.counts.summaries:
        summary._clock, summary._copies[0] = (lambda: now_s[0]), (0.0, summary._copies[0][1])
    EVENTS[0](served.counts, MS, 1)

    def steps():
        [entry] = decode(engine.whole.numbers()).models
        return list(entry.numbers().counted.samples[0])

    assert steps() == [0]
    now_s[0] = 30.0
    assert steps() == [2]  # it was seen when the first copy was made
    now_s[0] = 95.0
    assert steps() == []


def test_the_numbers_of_a_model_that_is_gone_are_gone():
    engine = Engine()
    add(engine, "a")
    engine.whole.numbers()
    engine.whole.catalog.clear()
    assert decode(engine.whole.numbers()).models == []


def test_what_a_process_has_counted_is_told_after_its_end():
    [engine] = several(counts := new_counts()).engines.values()
    EVENTS[0](counts, MS, 1)
    before = engine.whole.numbers()
    asyncio.run(engine.close(0.0))
    assert engine.whole.numbers() == before


# --- loads ---


def several(*counts):
    found = Several()
    for number, one in enumerate(counts):
        engine = Engine()
        add(engine, counts=one)
        found.start(number, engine)
    return found


def test_while_a_version_is_replaced_the_new_one_is_told_of_everywhere():
    old, new = new_counts(), new_counts()
    processes = several(old, Counts())
    EVENTS[0](old, MS, 3)
    EVENTS[0](new, MS, 1)
    add(processes.engines[1], counts=new, born=1)
    for engine in processes.engines.values():
        [row] = asyncio.run(engine.whole.all_statistics())
        assert row.inference_count == 1


def test_a_process_learns_by_which_changes_the_others_have_loaded_what_it_has():
    processes = several(counted := new_counts(), Counts(), Counts())
    first, second, young = processes.engines.values()
    EVENTS[0](counted, MS, 3)
    counted.born = 5
    add(second, version=2, born=4)
    add(second, "elsewhere", born=9)
    add(young, version=2, born=7)
    young.whole.numbers()
    young.whole.bear([one.whole.numbers() for one in (first, second)])
    found = {one.version: one.born for one in decode(young.whole.numbers()).models}
    assert found == {"1": 5, "2": 7}
    [row, _] = asyncio.run(young.whole.all_statistics())
    assert row.inference_count == 3


# --- all processes ---


def test_what_is_the_case_now_is_added_and_the_tags_are_of_this_process():
    processes = several(Counts(), Counts())
    for number, engine in processes.engines.items():
        [served] = engine.whole.catalog.served()
        served.scheduler = Waiting()
        served.load_s = number + 1.0
        engine.capacity.request_count = 2
        served.config.metric_tags["zone"] = "a"
    text = told(processes.engines[0])[0]
    assert 'nv_inference_pending_request_count{_zone="a",model="m",version="1"} 8\n' in text
    assert 'nv_model_load_duration_secs{_zone="a",model="m",version="1"} 2.0\n' in text
    assert "\ninferd_inflight_requests 4\n" in text
    processes.keep(1)
    processes.end(1)
    text = told(processes.engines[0])[0]
    assert 'nv_inference_pending_request_count{_zone="a",model="m",version="1"} 4\n' in text
    assert "\ninferd_inflight_requests 2\n" in text


def test_only_what_serves_here_is_told_of():
    processes = several(Counts(), Counts())
    add(processes.engines[1], "elsewhere")
    assert len(decode(processes.engines[1].whole.numbers()).models) == 2
    rows = asyncio.run(processes.engines[0].whole.all_statistics())
    assert [row.name for row in rows] == ["m"]


def test_nobody_is_asked_about_a_model_that_is_not_there():
    processes = several(Counts(), Counts())
    with pytest.raises(InvalidRequest, match="model 'nope' is not available"):
        asyncio.run(processes.engines[0].whole.all_statistics("nope"))
    assert processes.asked == []


def test_processes_add_up_what_the_operating_system_tells():
    processes = several(Counts(), Counts())

    def of_process():
        asyncio.run(processes.engines[0].whole.read_process())
        families = asyncio.run(processes.engines[0].whole.sum()).families()
        return {one.name: one.samples[0][1] for one in families if one.name.startswith("process_")}

    both = of_process()
    other = processes.engines.pop(1)
    processes.kept.pop(1)
    one = of_process()
    assert both["process_resident_memory_bytes"] > 1.5 * one["process_resident_memory_bytes"]
    assert both["process_start_time_seconds"] == one["process_start_time_seconds"]
    assert other.whole.others is not None


def test_the_crashes_that_the_youngest_process_knows_of_are_all():
    processes = several(Counts(), Counts())
    for count, engine in zip((3, 4), processes.engines.values(), strict=True):
        crashes = Family("inferd_crash_total", "counter", "h", [("", count)], "most")
        engine.whole.sources.append(lambda crashes=crashes: [crashes])
    assert all("\ninferd_crash_total 4\n" in told(one)[0] for one in processes.engines.values())


def test_restarts_never_fall_and_ready_processes_are_those_of_now():
    processes = several(Counts(), Counts(), Counts())
    known = [Processes(number, 3) for number in range(3)]
    for one, engine in zip(known, processes.engines.values(), strict=True):
        engine.whole.sources.append(partial(processes_families, one))
        one.update({0: "/0", 1: "/1", 2: "/2"}, 4)
    known[2].update({0: "/0", 1: "/1", 2: "/2"}, 5)  # the others will hear of the fifth next
    before = told(processes.engines[0])[0]
    assert "\ninferd_server_processes 3.0\n" in before
    processes.end(2)
    for one in known[:2]:
        one.update({0: "/0", 1: "/1"}, 4)
    after = told(processes.engines[1])[0]
    assert "\ninferd_server_processes 2.0\n" in after
    for text in (before, after):
        assert "\ninferd_server_process_restarts_total 5\n" in text


def test_numbers_that_cannot_be_read_are_an_error():
    processes = several(Counts(), Counts())
    processes.ended = [b"\x80"]
    with pytest.raises(InferdError, match="the numbers of a process cannot be read"):
        asyncio.run(processes.engines[0].whole.all_statistics())


async def turns_while(work):
    """Return how often others get a turn while `work` is done."""
    count = 0

    async def take_turns():
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    await work
    other.cancel()
    return count


MODELS = 200


def test_other_work_has_its_turns_while_many_models_are_added_up():
    processes = several(Counts(), Counts())
    for engine in processes.engines.values():
        for number in range(MODELS):
            add(engine, f"m{number}", counts=Counts())
    engine = processes.engines[0]

    async def rows():
        for number, _ in enumerate((await engine.whole.sum()).observed()):
            if number % 10 == 0:
                await asyncio.sleep(0)

    assert asyncio.run(turns_while(engine.whole.in_turns())) >= MODELS / 10
    assert asyncio.run(turns_while(rows())) >= 3 * MODELS / 10
