from types import SimpleNamespace

import msgspec
import pytest
from fields import with_fields

from inferd.core.request import InferRequest
from inferd.observe.counted import numbers_of
from inferd.observe.numbers import EncodedNumbers, encode
from inferd.observe.prometheus import Observed
from inferd.ui.figures.model_rows import MOST_SIZES, ended_part, model_row
from inferd.ui.figures.part import ModelPart

from figure_models import answered, failed, refused, served  # isort: skip


def row_of(*parts_and_ended):
    return SimpleNamespace(**model_row(*parts_and_ended))


def part(state="READY", **more):
    return ModelPart("m", "1", state, **more)


def test_a_row_of_a_quiet_version_has_no_times():
    row = row_of([part(reason="", platform="p", max_batch_size=4)])
    assert (row.state, row.platform, row.max_batch_size, row.rate) == ("READY", "p", 4, 0)
    assert {row.queue, row.input, row.infer, row.output, row.p50, row.p95, row.p99} == {None}
    assert row.memory is None


def test_processes_are_added_and_times_are_means_of_all_requests():
    one = part(success=5, rate=1.5, sums=[3, 2, 10, 20, 30, 40, 50], durations={8: 99})
    other = part(success=7, rate=2.5, sums=[2, 2, 30, 40, 50, 60, 70], durations={9: 1})
    one.batch_sizes, other.batch_sizes = {4: 1, 1: 2}, {4: 3}
    one.memory, one.last, other.last = 10, 5, 6
    row = row_of([one, other])
    assert (row.success, row.rate, row.memory, row.last) == (12, 4.0, 10, 6)
    assert (row.queue, row.input, row.infer, row.output) == (10, 15, 20, 25)
    assert (row.p50, row.p99) == (8, 8)
    assert row.batch_sizes == [(1, 2), (4, 4)]


def test_a_version_is_as_it_is_where_it_is_worst():
    bad = part("UNAVAILABLE", reason="its worker has ended")
    row = row_of([part(joined="joined"), bad])
    assert (row.state, row.reason) == ("UNAVAILABLE", "its worker has ended")
    alone = part(joined="alone", joined_reason="rows depend")
    assert row_of([part(joined="joined"), alone]).joined_reason == "rows depend"
    assert row_of([part(joined="joined")] * 2).joined == "joined"


def test_what_another_load_has_counted_does_not_count():
    row = row_of([part(born=3, success=5), part(born=2, success=9)], [part(born=2, success=1)])
    assert row.success == 5
    assert row_of([part(born=3, success=5)], [part(born=3, success=4)]).success == 9


def test_there_are_not_more_batch_sizes_than_anybody_looks_at():
    row = row_of([part(batch_sizes=dict.fromkeys(range(1, 500), 1))])
    assert row.batch_sizes == [(size, 1) for size in range(1, MOST_SIZES + 1)]


@pytest.mark.parametrize("count", [1, 3])
def test_what_ended_processes_have_left_says_what_statistics_say(count):
    one = served()
    answered(one, count, batch_size=4)
    answered(one, 1, batch_size=2)
    one.counts.add_success(with_fields(InferRequest("m"), queued_ns=5, ended_ns=9, shared=True))
    one.counts.add_cache_miss(3)
    failed(one)
    refused(one)
    observed = Observed("m", "1", one.counts, 0, 0.0, {})
    entry = EncodedNumbers("m", "1", 7, msgspec.Raw(encode(numbers_of(observed))))
    found = ended_part(entry)
    stats = one.counts.statistics("m", "1")
    assert found.success == stats.inference_stats.success.count == count + 2
    assert (found.failure, found.refused, found.born) == (1, 1, 7)
    assert (found.cache_hit, found.cache_miss) == (1, 1)
    sizes = {row.batch_size: row.compute_infer.count for row in stats.batch_stats}
    assert found.batch_sizes == sizes
    assert found.last == stats.last_inference


def test_rows_are_json_with_names_as_data():
    row = model_row([ModelPart("</script>\n", "1", "READY")])
    assert msgspec.json.decode(msgspec.json.encode(row))["name"] == "</script>\n"
