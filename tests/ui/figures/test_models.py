import asyncio

import pytest
from fields import with_fields
from figure_models import MS, NOW, answered, failed, refused, served

from inferd.config.model import ModelConfig
from inferd.core.interfaces import SequenceKeeper
from inferd.core.metadata import ModelState
from inferd.core.request import InferRequest
from inferd.core.rows import Joining
from inferd.engine.loading.catalog import NO_VERSION, UNLOADED, Catalog
from inferd.engine.serving.served import Served
from inferd.observe.stats import NEVER_NS, Counts, fine_bucket
from inferd.ui.figures.history import Row
from inferd.ui.figures.models import LEAST_COUNT, SLOW_NS, ModelFigures
from inferd.ui.figures.window import Sums


class Seen:
    """A catalog and what is seen of it, a second at a time."""

    def __init__(self, *several):
        self.catalog = Catalog()
        self.catalog.add(*several)
        self.noticed = []
        self.models = ModelFigures(self.catalog, self.noticed.append)
        self.now = NOW

    def sample(self, seconds=1):
        for _ in range(seconds):
            self.now += 1
            found = asyncio.run(self.models.sample(self.now))
        return found

    def changed(self, after=0):
        return asyncio.run(self.models.changed(after, self.now))

    def row(self, name="m", version="1"):
        rows, _ = self.changed()
        [row] = [row for row in rows if (row.name, row.version) == (name, version)]
        return row

    def names_changed(self):
        before = self.models.number
        rows, gone = self.changed(before)
        return sorted(row.name for row in rows), sorted(gone)


def test_a_second_has_what_was_counted_in_it_in_all_models():
    one, other = served("a"), served("b")
    seen = Seen(one, other)
    seen.sample()
    answered(one, 3)
    answered(other, 2, ms=9)
    failed(other)
    refused(one)
    refused(one)
    other.scheduler.pending_count = 4
    found = seen.sample()
    assert (found.success, found.failure, found.refused) == (5, 1, 2)
    assert found.durations == {fine_bucket(MS): 3, fine_bucket(9 * MS): 2}
    assert found.queued == 4
    other.scheduler.pending_count = 0
    assert seen.sample() == Row(seen.now)


def test_what_a_version_did_in_its_first_second_counts():
    seen = Seen()
    seen.sample()
    new = served()
    seen.catalog.add(new)
    answered(new, 2)
    assert seen.sample().success == 2


def test_a_reload_begins_anew_and_what_is_unloaded_is_not_there():
    old = served()
    seen = Seen(old)
    answered(old, 7)
    seen.sample()
    new = served()
    seen.catalog.add(new)
    answered(new, 2)
    assert seen.sample().success == 2
    assert seen.row().success == 2
    assert seen.noticed == [old, new]
    seen.catalog.set_state("m", 1, ModelState.UNAVAILABLE, UNLOADED)
    assert seen.sample() == Row(seen.now)
    assert (seen.row().state, seen.row().reason, seen.row().success) == ("UNAVAILABLE", UNLOADED, 0)


def test_a_row_says_what_the_statistics_say_and_what_the_last_minute_was_like():
    one = served("m", 3, max_batch_size=8, backend="onnxruntime")
    seen = Seen(one)
    answered(one, 3, ms=2, batch_size=4)
    answered(one, 1, ms=2, batch_size=1)
    failed(one)
    refused(one)
    seen.sample()
    row = seen.row("m", "3")
    stats = one.counts.statistics("m", "3")
    assert (row.state, row.platform, row.backend) == ("READY", "identity", "onnxruntime")
    assert (row.success, row.failure, row.refused) == (4, 1, 1)
    assert row.success == stats.inference_stats.success.count
    assert row.batch_sizes == {1: 2, 4: 3}
    assert (row.max_batch_size, row.last, row.memory) == (8, stats.last_inference, None)
    quarter, half = MS // 4, MS // 2
    assert Sums(*row.sums) == Sums(
        4, 4, 4 * quarter, 4 * quarter, 4 * (2 * MS - half - MS // 8), half
    )
    assert row.durations == {fine_bucket(2 * MS): 4}
    assert row.rate == 4


def test_hits_of_the_cache_count():
    one = served()
    seen = Seen(one)
    answered(one, 2)
    one.counts.add_cache_miss(5)
    hit = with_fields(InferRequest("m"), queued_ns=10**9, ended_ns=10**9 + 10, shared=True)
    one.counts.add_success(hit)
    seen.sample()
    row = seen.row()
    assert (row.success, row.cache_hit, row.cache_miss) == (3, 1, 1)


def test_only_what_has_changed_is_made_anew_and_numbered():
    several = [served(f"m{number}") for number in range(5)]
    seen = Seen(*several)
    assert len(seen.changed()[0]) == 5
    assert seen.names_changed() == ([], [])
    seen.sample()
    answered(several[2])
    failed(several[3])
    seen.sample()
    assert seen.names_changed() == (["m2", "m3"], [])
    assert seen.names_changed() == ([], [])
    several[4].joining = Joining("joined", "its rows are independent")
    several[1].joining = Joining("alone", "its rows depend on each other")
    assert seen.names_changed() == (["m1", "m4"], [])
    several[4].joining.state = "compared"
    assert seen.names_changed() == (["m4"], [])
    assert len(seen.changed()[0]) == 5


def test_a_row_changes_once_more_when_its_minute_is_over():
    one = served()
    seen = Seen(one)
    answered(one, 9)
    seen.sample()
    assert (seen.row().rate, seen.row().durations) == (9, {fine_bucket(MS): 9})
    seen.sample(70)
    assert seen.names_changed() == (["m"], [])
    row = seen.row()
    assert (row.rate, row.sums, row.durations, row.success) == (0, [], {}, 9)
    seen.sample(70)
    assert seen.names_changed() == ([], [])
    answered(one, 2)
    seen.sample()
    assert (seen.row().sums[0], seen.row().durations) == (2, {fine_bucket(MS): 2})


def test_versions_that_do_not_serve_have_rows_with_the_reason_in_full():
    seen = Seen(served())
    reason = "the file is broken:\nline 2 says why"
    seen.catalog.set_state("bad", 7, ModelState.UNAVAILABLE, reason)
    seen.catalog.set_state("worse", NO_VERSION, ModelState.UNKNOWN, "no config")
    assert (seen.row("bad", "7").reason, seen.row("bad", "7").state) == (reason, "UNAVAILABLE")
    assert seen.row("worse", "").reason == "no config"
    seen.catalog.set_state("late", 1, ModelState.LOADING)
    seen.catalog.set_state("off", 1, ModelState.UNAVAILABLE, UNLOADED)
    assert seen.models.states() == {"ready": 1, "failed": 2, "loading": 1, "unloaded": 1}
    assert seen.models.failed() == [("bad", "7", reason), ("worse", "", "no config")]


def test_what_is_gone_is_said_until_it_is_back():
    seen = Seen(served())
    seen.catalog.set_state("bad", 7, ModelState.UNAVAILABLE, "broken")
    seen.changed()
    number = seen.models.number
    seen.catalog.remove("bad", 7)
    assert seen.changed(number) == ([], [("bad", "7")])
    assert seen.changed(seen.models.number) == ([], [])
    seen.catalog.set_state("bad", 7, ModelState.UNAVAILABLE, "broken")
    rows, gone = seen.changed(number)
    assert ([row.name for row in rows], gone) == (["bad"], [])


def test_slow_is_what_takes_longer_than_the_slowest_hundredth_of_the_last_minute():
    one = served()
    seen = Seen(one)
    seen.sample()
    assert one.counts.slow_ns == SLOW_NS
    answered(one, LEAST_COUNT - 1, ms=3)
    seen.sample()
    assert one.counts.slow_ns == SLOW_NS
    answered(one, 1000, ms=3)
    seen.sample()
    assert 3 * MS < one.counts.slow_ns <= 3 * MS * 9 / 8
    seen.sample(80)
    assert one.counts.slow_ns == SLOW_NS < NEVER_NS


def test_a_detail_has_the_whole_histograms_and_the_steps_of_an_ensemble():
    step = served("step")
    whole = served("whole")
    whole.steps = [step, step]
    seen = Seen(step, whole)
    answered(step, 4, ms=2)
    answered(whole, 1, ms=5)
    failed(whole)
    seen.sample()
    found = seen.models.detail("whole", "1")
    assert found.requests == {fine_bucket(5 * MS): 1}
    assert found.queue == {(MS // 4).bit_length(): 1}
    assert found.failures == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 1, "OTHER": 0}
    assert [(one.model, one.count, one.ns) for one in found.steps] == [("step", 4, 8 * MS)] * 2
    assert (found.sequences, found.queued) == (None, 0)
    assert seen.models.detail("whole", "2") is seen.models.detail("none", "1") is None


def test_sequences_are_counted_where_there_may_be_any():
    class Keeper(SequenceKeeper):
        pending_count = 0
        sequence_count = 3

    one = Served(ModelConfig("m"), 1, "identity", Keeper(), Counts())
    seen = Seen(one)
    assert seen.models.detail("m", "1").sequences is None
    one.has_sequences = True
    assert seen.models.detail("m", "1").sequences == 3


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "a/b\n\0", "\u202ex", "'; DROP"])
def test_hostile_names_are_data(name):
    one = served(name)
    seen = Seen(one)
    answered(one)
    seen.sample()
    assert seen.row(name).success == 1


def test_a_second_of_a_thousand_quiet_models_makes_no_rows():
    several = [served(f"m{number}") for number in range(1000)]
    seen = Seen(*several)
    seen.sample()
    seen.changed()
    made = seen.models.number
    answered(several[500])
    seen.sample()
    assert seen.names_changed() == (["m500"], [])
    assert seen.models.number == made + 1
