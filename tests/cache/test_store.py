from inferd.cache.store import CacheCounts, cache_gauge


def samples(families):
    return {family.name: family.samples[0][1] for family in families}


def test_lookups_are_hits_and_misses_and_durations_are_microseconds():
    counts = CacheCounts()
    counts.hit_count, counts.miss_count = 3, 2
    counts.lookup_ns, counts.insertion_ns = 7_900, 1_999_000
    assert samples(counts.families()) == {
        "nv_cache_num_lookups": 5,
        "nv_cache_num_hits": 3,
        "nv_cache_num_misses": 2,
        "nv_cache_lookup_duration": 7,
        "nv_cache_insertion_duration": 1999,
    }


def test_all_metrics_of_a_cache_are_gauges():
    family = cache_gauge("util", "how full it is", 0.5, "mean")
    assert (family.name, family.kind, family.across) == ("nv_cache_util", "gauge", "mean")
