"""The metrics text, read by Prometheus's own parser; names and types are compared with Triton's."""

import gc
import math

import pytest
from fields import with_fields
from prometheus_client.parser import text_string_to_metric_families

from inferd.aio.inline import GROUP
from inferd.config.options.metrics import MetricsSettings
from inferd.core.request import InferRequest
from inferd.errors import Unavailable
from inferd.observe.family import Family
from inferd.observe.prometheus import Observed, exposition
from inferd.observe.stats import AnswerCount, Counts, Histogram
from inferd.observe.summary import SummaryCounts

MODEL = {"model", "version"}
COUNTS = {
    "nv_inference_request_success": ("counter", MODEL),
    "nv_inference_request_failure": ("counter", MODEL | {"reason"}),
    "nv_inference_count": ("counter", MODEL),
    "nv_inference_exec_count": ("counter", MODEL),
    "nv_inference_pending_request_count": ("gauge", MODEL),
    "nv_model_load_duration_secs": ("gauge", MODEL),
    "nv_pinned_memory_pool_total_bytes": ("gauge", set()),
    "nv_pinned_memory_pool_used_bytes": ("gauge", set()),
}
PHASES = ("request", "queue", "compute_input", "compute_infer", "compute_output")
LATENCIES = {f"nv_inference_{phase}_duration_us": ("counter", MODEL) for phase in PHASES}
FIRST_RESPONSES = {"nv_inference_first_response_histogram_ms": ("histogram", MODEL | {"le"})}
SUMMARIES = {
    f"nv_inference_{phase}_summary_us": ("summary", MODEL | {"quantile"}) for phase in PHASES
}
OWN = {"inferd_request_refused": ("counter", MODEL)}
OWN_HISTOGRAMS = {
    f"inferd_{phase}_duration_seconds": ("histogram", MODEL | {"le"}) for phase in PHASES
}
DEFAULT = COUNTS | LATENCIES | OWN | OWN_HISTOGRAMS
"""Name -> type and labels, as the V2 facts list them; the parser takes _total off a counter."""

DEFAULTS = MetricsSettings()
ALL = MetricsSettings(True, True, True, True, (0.5, 0.9))


def answered(counts, *, queued=1_000, started=501_000, batch_size=1):
    """Count a request: 10 µs of input, 2 ms of infer and 20 µs of output behind its queue."""
    counts.add_success(
        with_fields(
            InferRequest("m", batch_size=batch_size),
            queued_ns=queued,
            started_ns=started,
            computing_ns=started + 10_000,
            computed_ns=started + 2_010_000,
            ended_ns=started + 2_030_000,
        )
    )


def observed(name="m", version="1", counts=None, tags=(), *, is_on_gpu=False, is_cached=False):
    return Observed(name, version, counts or Counts(), 4, 1.5, dict(tags), is_on_gpu, is_cached)


def families(*models, settings=DEFAULTS, **more):
    """Return what Prometheus reads, by name."""
    text = "".join(exposition(models, settings, **more))
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert text.count("# TYPE ") == text.count("# HELP ") == len(found)
    assert all(family.documentation for family in found.values())
    return found


def kinds(found):
    return {
        name: (family.type, set().union(*(sample.labels for sample in family.samples)))
        for name, family in found.items()
    }


def values(family, suffix=""):
    """Return the samples of one name, by their labels without model and version."""
    suffix = "_total" if family.type == "counter" else suffix  # the parser puts it on all counters
    return {
        tuple(value for label, value in sample.labels.items() if label not in MODEL): sample.value
        for sample in family.samples
        if sample.name == family.name + suffix
    }


def value(family):
    [only] = values(family).values()
    return only


# --- which metrics there are ---


def test_names_types_and_labels_are_those_of_the_list():
    assert kinds(families(observed())) == DEFAULT


def test_the_names_of_counters_are_written_as_triton_writes_them():
    lines = "".join(exposition([observed()], ALL)).splitlines()
    written = {line.partition("{")[0] for line in lines if line.startswith("nv_")}
    counters = {name for name, (kind, _) in (COUNTS | LATENCIES).items() if kind == "counter"}
    assert counters < written
    assert not any(name.endswith("_total") for name in written)


def test_without_models_only_what_is_of_the_server_is_reported():
    assert set(families()) == {name for name, (_, labels) in COUNTS.items() if not labels}


@pytest.mark.parametrize(
    ("setting", "names"),
    [("counter_latencies", LATENCIES), ("phase_histograms", OWN_HISTOGRAMS)],
)
def test_what_is_switched_off_is_left_out(setting, names):
    found = families(observed(), settings=MetricsSettings(**{setting: False}))
    assert kinds(found) == {name: kind for name, kind in DEFAULT.items() if name not in names}


def test_summaries_and_the_first_response_are_there_when_requested():
    counts = SummaryCounts()
    counts.first_responses = Histogram((100.0, 500.0))
    found = kinds(families(observed(counts=counts), settings=ALL))
    assert found == DEFAULT | SUMMARIES | FIRST_RESPONSES


def test_other_metrics_come_after_those_of_the_models():
    text = "".join(exposition([observed()], DEFAULTS, [Family("x", "gauge", "h", [("", 1)])]))
    assert text.endswith("# HELP x h\n# TYPE x gauge\nx 1\n")


# --- what they tell ---


def test_counters_tell_what_was_counted():
    counts = Counts()
    answered(counts, batch_size=3)
    answered(counts)
    found = families(observed(counts=counts))
    assert value(found["nv_inference_request_success"]) == 2
    assert value(found["nv_inference_count"]) == 4
    assert value(found["nv_inference_exec_count"]) == 2
    assert value(found["nv_inference_pending_request_count"]) == 4
    assert value(found["nv_model_load_duration_secs"]) == 1.5
    sums = {phase: value(found[f"nv_inference_{phase}_duration_us"]) for phase in PHASES}
    assert sums == {
        "request": 5060,
        "queue": 1000,
        "compute_input": 20,
        "compute_infer": 4000,
        "compute_output": 40,
    }


def test_failures_are_reported_by_all_four_reasons_from_the_start():
    counts = Counts()
    counts.add_failure(with_fields(InferRequest("m"), queued_ns=1), Unavailable("too late"))
    counts.add_failure(InferRequest("m"), Unavailable("full"))
    found = families(observed(counts=counts))
    assert values(found["nv_inference_request_failure"]) == {
        ("REJECTED",): 1,
        ("CANCELED",): 0,
        ("BACKEND",): 0,
        ("OTHER",): 0,
    }
    assert values(found["inferd_request_refused"]) == {(): 1}


def test_labels_are_in_alphabetical_order():
    text = "".join(exposition([observed(tags={"zone": "a"})], DEFAULTS))
    assert '_failure{_zone="a",model="m",reason="OTHER",version="1"} 0\n' in text
    assert '_success{_zone="a",model="m",version="1"} 0\n' in text


def test_the_summary_of_whole_requests_is_left_out_where_answers_are_cached():
    found = families(observed(counts=SummaryCounts(), is_cached=True), settings=ALL)
    assert not found["nv_inference_request_summary_us"].samples
    assert found["nv_inference_queue_summary_us"].samples


def test_a_histogram_has_every_duration_below_its_bounds():
    counts = Counts()
    answered(counts)
    answered(counts, queued=0)
    family = families(observed(counts=counts))["inferd_queue_duration_seconds"]
    buckets = {float(bound): count for (bound,), count in values(family, "_bucket").items()}
    assert list(buckets.values()) == sorted(buckets.values())
    assert next(bound for bound, count in buckets.items() if count == 2) == 2**19 / 1e9  # 0.5 ms
    assert buckets[2**18 / 1e9] == 1  # the one that had no queue
    assert buckets[math.inf] == values(family, "_count")[()] == 2
    assert values(family, "_sum")[()] == 0.0005


@pytest.mark.parametrize(
    ("ns", "bucket"), [(1, 4.096e-06), (2**34 - 1, 2**34 / 1e9), (2**50, math.inf)]
)
def test_durations_of_any_length_are_in_a_histogram(ns, bucket):
    counts = Counts()
    counts.add_success(with_fields(InferRequest("m"), started_ns=1, ended_ns=1 + ns))
    family = families(observed(counts=counts))["inferd_request_duration_seconds"]
    found = values(family, "_bucket")
    assert min(float(bound) for (bound,), count in found.items() if count) == bucket
    assert values(family, "_count")[()] == 1


def test_summaries_tell_quantiles_sum_and_count():
    counts = SummaryCounts()
    answered(counts)
    found = families(observed(counts=counts), settings=ALL)
    family = found["nv_inference_request_summary_us"]
    assert values(family) == {
        ("0.5",): pytest.approx(2530, rel=0.04),
        ("0.9",): pytest.approx(2530, rel=0.04),
    }
    assert values(family, "_sum") == {(): 2530}
    assert values(family, "_count") == {(): 1}


def test_a_summary_of_nothing_is_not_a_number():
    family = families(observed(counts=SummaryCounts()), settings=ALL)[
        "nv_inference_queue_summary_us"
    ]
    assert all(math.isnan(each) for each in values(family).values())


def test_the_time_to_the_first_answer_is_reported_in_the_buckets_of_the_model():
    clock_ns = [1]
    counts = Counts(lambda: clock_ns[0])
    counts.first_responses = Histogram((100.0, 500.0))
    answers = AnswerCount(counts, with_fields(InferRequest("m"), queued_ns=1, started_ns=2))
    clock_ns[0] += 100_000_000
    answers.come()
    answers.gone(is_empty=False)
    answers.come()
    settings = MetricsSettings(histogram_latencies=True)
    family = families(observed(counts=counts), settings=settings)[
        "nv_inference_first_response_histogram_ms"
    ]
    assert values(family, "_bucket") == {("100",): 1, ("500",): 1, ("+Inf",): 1}
    assert values(family, "_sum") == {(): 100.0}


def test_bounds_that_are_close_stay_apart():
    counts = Counts()
    counts.first_responses = Histogram((1234567.0, 1234568.0))
    settings = MetricsSettings(histogram_latencies=True)
    family = families(observed(counts=counts), settings=settings)[
        "nv_inference_first_response_histogram_ms"
    ]
    assert [bound for (bound,) in values(family, "_bucket")] == ["1234567", "1234568", "+Inf"]


# --- labels ---


def test_tags_are_labels_with_an_underscore_before_them():
    tags = {"team": 'the "a" team\n', "cost-center": "7\\8"}
    found = families(observed("a\\b", "12", tags=tags))["nv_inference_count"]
    assert found.samples[0].labels == {
        "model": "a\\b",
        "version": "12",
        "_team": 'the "a" team\n',
        "_cost_center": "7\\8",
    }


def test_tags_that_read_the_same_are_one_label():
    found = families(observed(tags={"a-b": "1", "a.b": "2"}))["nv_inference_count"]
    assert found.samples[0].labels["_a_b"] == "2"


def test_models_on_a_gpu_have_its_name():
    models = (observed("a", is_on_gpu=True), observed("b"))
    found = families(*models, gpu_uuid="GPU-7")["nv_inference_count"]
    assert [sample.labels.get("gpu_uuid") for sample in found.samples] == ["GPU-7", None]


@pytest.mark.slow
def test_many_models_are_written_in_pieces_each_metric_together():
    models = [observed(f"m{number}", str(v)) for number in range(30) for v in (1, 2)]
    found = families(*models)
    for name in ("nv_inference_count", "inferd_queue_duration_seconds"):
        assert len({(s.labels["model"], s.labels["version"]) for s in found[name].samples}) == 60


def test_a_piece_is_as_long_for_a_thousand_models_as_for_few():
    models = [
        observed(f"m{number}", counts=SummaryCounts(), is_cached=number % 2 == 0)
        for number in range(1000)
    ]
    pieces = list(exposition(models, ALL))
    assert max(piece.count("\n") for piece in pieces) <= 26 * GROUP
    assert "".join(pieces).count("nv_inference_request_failure{") == 4 * len(models)


def test_a_report_of_many_models_makes_nothing_for_the_garbage_collector():
    models = [observed(f"m{number}", counts=SummaryCounts()) for number in range(300)]

    def made():
        pieces = exposition(models, ALL)
        next(pieces)
        gc.collect()
        before = len(gc.get_objects())
        return max(len(gc.get_objects()) for piece in pieces if piece.startswith("#")) - before

    # Servers of other tests, in threads of this process, make something now and then.
    assert min(made() for _ in range(3)) < len(models) // 3


def test_a_model_is_looked_at_when_its_piece_is():
    looked = []

    def models():
        for number in range(3 * GROUP):
            looked.append(number)
            yield observed(f"m{number}")

    pieces = exposition(models(), DEFAULTS)
    assert [(next(pieces), len(looked)) for _ in range(3)] == [
        ("", GROUP * number) for number in (1, 2, 3)
    ]


CACHE = {
    f"nv_cache_{word}_per_model": ("counter", MODEL)
    for word in ("num_hits", "hit_duration", "num_misses", "miss_duration")
}
CACHE_SUMMARIES = {
    f"nv_cache_{word}_summary_per_model": ("summary", MODEL | {"quantile"})
    for word in ("hit", "miss")
}


def looked_up(counts):
    """Count a hit of 20 µs and a miss of 7 µs."""
    counts.add_success(
        with_fields(InferRequest("m"), queued_ns=1_000, ended_ns=21_999, shared=True)
    )
    counts.add_cache_miss(7_000)
    return counts


def test_a_model_with_a_cache_tells_of_its_hits_and_misses():
    cached = observed(counts=looked_up(Counts()))._replace(is_cached=True)
    found = families(cached, observed("plain"))
    assert kinds(found) == DEFAULT | CACHE
    assert {name: value(found[name]) for name in CACHE} == {
        "nv_cache_num_hits_per_model": 1,
        "nv_cache_hit_duration_per_model": 20,
        "nv_cache_num_misses_per_model": 1,
        "nv_cache_miss_duration_per_model": 7,
    }


def test_there_are_summaries_of_hits_and_misses_where_there_are_summaries():
    cached = observed(counts=looked_up(SummaryCounts()))._replace(is_cached=True)
    found = families(cached, settings=ALL)
    assert {name: kinds(found)[name] for name in CACHE_SUMMARIES} == CACHE_SUMMARIES
    hits = found["nv_cache_hit_summary_per_model"]
    assert values(hits)["0.5",] == pytest.approx(20.5, rel=0.032)
    assert values(hits, "_count") == {(): 1}
    assert values(hits, "_sum") == {(): 20}


def test_without_a_cache_there_is_no_word_of_it():
    assert not any("cache" in name for name in families(observed(), settings=ALL))


# --- joining ---

JOINING = {
    "inferd_model_joined": "gauge",
    "inferd_join_comparison": "counter",
    "inferd_join_disagreement": "counter",
    "inferd_request_rerun": "counter",
}


def test_only_isolated_models_are_shown_as_such():
    assert "inferd_model_isolated" not in families(observed())
    found = families(observed()._replace(is_isolated=True), observed("other"))
    [sample] = found["inferd_model_isolated"].samples
    assert (sample.labels, sample.value) == ({"model": "m", "version": "1"}, 1)


@pytest.mark.parametrize(("is_joined", "shown"), [(True, 1), (False, 0)])
def test_of_models_that_may_be_joined_it_is_told_whether_they_are_and_what_was_compared(
    is_joined, shown
):
    counts = Counts()
    counts.comparison_count, counts.disagreement_count, counts.rerun_count = 30, 2, 5
    found = families(observed(counts=counts)._replace(is_joined=is_joined), observed("other"))
    told = {name: found[name] for name in JOINING}
    assert {name: family.type for name, family in told.items()} == JOINING
    assert [value(family) for family in told.values()] == [shown, 30, 2, 5]


def test_of_models_whose_configuration_leaves_no_choice_nothing_is_told():
    assert not JOINING.keys() & families(observed()).keys()
