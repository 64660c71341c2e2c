"""Metrics that models count themselves."""

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inferd.errors import InvalidRequest
from inferd.observe import family
from inferd.observe.family import CustomMetrics


def samples(metrics):
    text = "".join(piece for family in metrics.families() for piece in family.pieces())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_gauges_and_histograms_are_written_as_prometheus_reads_them():
    metrics = CustomMetrics()
    metrics.add_family("calls_total", 'what "is"\ncalled', "counter")
    metrics.add_family("level", "how high", "gauge")
    metrics.add_family("sizes", "how large", "histogram")
    metrics.metric("calls_total", {"b": 'x"\\\n', "a": "y"}).apply("increment", 2)
    metrics.metric("level", {}).apply("set", -0.5)
    sizes = metrics.metric("sizes", {"of": "it"}, [1.0, 10.0])
    for value in (0.5, 1, 5, 50):
        sizes.apply("observe", value)
    assert samples(metrics) == {
        ("calls_total", (("a", "y"), ("b", 'x"\\\n'))): 2,
        ("level", ()): -0.5,
        ("sizes_bucket", (("le", "1.0"), ("of", "it"))): 2,
        ("sizes_bucket", (("le", "10.0"), ("of", "it"))): 3,
        ("sizes_bucket", (("le", "+Inf"), ("of", "it"))): 4,
        ("sizes_sum", (("of", "it"),)): 56.5,
        ("sizes_count", (("of", "it"),)): 4,
    }


def test_the_same_labels_are_the_same_metric():
    metrics = CustomMetrics()
    metrics.add_family("calls_total", "", "counter")
    metrics.add_family("calls_total", "", "counter")
    one = metrics.metric("calls_total", {"a": "1", "b": "2"})
    assert metrics.metric("calls_total", {"b": "2", "a": "1"}) is one
    assert metrics.metric("calls_total", {"a": "1"}) is not one


@pytest.mark.parametrize(
    ("name", "kind", "reported"),
    [
        ("", "gauge", "no name of a metric"),
        ("a b", "gauge", "no name of a metric"),
        ("9a", "gauge", "no name of a metric"),
        ("a", "summary", "no name of a metric"),
        ("nv_inference_count", "counter", "are the server's own"),
        ("taken", "counter", "is a gauge already, not a counter"),
    ],
)
def test_a_family_that_cannot_be_is_refused(name, kind, reported):
    metrics = CustomMetrics()
    metrics.add_family("taken", "", "gauge")
    with pytest.raises(InvalidRequest, match=reported):
        metrics.add_family(name, "", kind)


def test_labels_and_buckets_that_cannot_be_are_refused():
    metrics = CustomMetrics()
    metrics.add_family("sizes", "", "histogram")
    for labels in ({"le": "1"}, {"a-b": "1"}, {"": "1"}):
        with pytest.raises(InvalidRequest, match="no name of a label"):
            metrics.metric("sizes", labels, [1.0])
    for bounds in ([2.0, 1.0], [1.0, 1.0], [1.0, math.inf], [math.nan]):
        with pytest.raises(InvalidRequest, match="are not finite numbers in order"):
            metrics.metric("sizes", {}, bounds)


def test_there_is_an_end_to_families_and_to_their_metrics():
    metrics = CustomMetrics()
    for number in range(family.MAX_FAMILIES):
        metrics.add_family(f"f{number}", "", "gauge")
    with pytest.raises(InvalidRequest, match="families of models already"):
        metrics.add_family("one_more", "", "gauge")
    for number in range(family.MAX_METRICS):
        metrics.metric("f0", {"n": str(number)})
    with pytest.raises(InvalidRequest, match="metrics already"):
        metrics.metric("f0", {"n": "one more"})
