"""Where the server says that time went."""

from inferd.bench.phases import phases
from inferd.observe.statistics import Duration, InferStatistics, ModelStatistics


def row(version, count, ns, *, hits=0):
    each = {name: Duration(count, count * ns) for name in InferStatistics.__struct_fields__}
    each |= {"fail": Duration(count // 10, 0), "cache_hit": Duration(hits, 0)}
    return ModelStatistics("m", version, 0, 4 * count, count, InferStatistics(**each), {}, [], [])


def test_what_two_looks_differ_by_is_what_happened_between():
    before, after = row("1", 10, 5000), row("1", 30, 15000, hits=3)
    found = phases([before], [after])
    assert (found.count, found.failed, found.cache_hits) == (20, 2, 3)
    assert found.total_us == found.queue_us == found.infer_us == 20.0  # (450 - 50) us / 20
    assert found.mean_batch == 4


def test_versions_count_together_and_new_ones_from_nothing():
    found = phases([row("1", 10, 1000)], [row("1", 10, 1000), row("2", 5, 2000)])
    assert found.count == 5 and found.total_us == 2


def test_without_requests_there_is_nothing_to_say():
    assert phases([row("1", 10, 1000)], [row("1", 10, 1000)]) is None
    assert phases([], []) is None
