"""What is counted, as numbers that are sent, and as counts again."""

import random

import pytest
from counting import EVENTS, MS, new_counts

from inferd.config.options.metrics import MetricsSettings
from inferd.observe.counted import (
    custom_numbers,
    custom_of,
    family_numbers,
    family_of,
    numbers_of,
    observed_in,
)
from inferd.observe.family import CustomMetrics, Family
from inferd.observe.numbers import EncodedNumbers, encode
from inferd.observe.prometheus import Observed, exposition
from inferd.observe.stats import Counts

EVERYTHING = MetricsSettings(True, True, True, True, (0.1, 0.5, 0.9))


def observed(counts, **more):
    return Observed("m", "1", counts, 3, 1.5, {"zone": "a"}, **more)


def sent(one):
    """Return what is observed by whoever gets the numbers."""
    entry = EncodedNumbers("m", "1", 0, encode(numbers_of(one)))
    return observed_in(entry.numbers(), observed(Counts()))


def filled(seed):
    counts, generator = new_counts(), random.Random(seed)
    for number in range(40):
        generator.choice(EVENTS)(counts, number * 50 * MS, generator.randrange(1, 5))
    return counts


@pytest.mark.parametrize("seed", range(5))
def test_all_that_is_counted_arrives(seed):
    counts = filled(seed)
    given = observed(counts, is_on_gpu=True, is_cached=True, is_joined=True, is_isolated=True)
    told = sent(given)
    assert told._replace(counts=None) == given._replace(counts=None)
    assert told.counts.statistics("m", "1") == counts.statistics("m", "1")
    assert told.counts.by_batch_size() == counts.by_batch_size()
    assert "".join(exposition([told], EVERYTHING)) == "".join(exposition([given], EVERYTHING))


@pytest.mark.parametrize("event", EVENTS)
def test_whatever_happens_is_progress(event):
    counts = new_counts()
    seen = [counts.progress()]
    for _ in range(3):
        event(counts, 50 * MS, 2)
        seen.append(counts.progress())
    assert seen == sorted(set(seen))


def test_counts_that_nothing_happened_to_stay_as_they_are():
    told = sent(observed(Counts()))
    assert told.counts.statistics("m", "1") == Counts().statistics("m", "1")
    assert told.counts.first_responses is None
    assert told.is_joined is None


def test_counts_without_summaries_have_none_afterwards():
    assert not sent(observed(Counts())).counts.summaries
    assert len(sent(observed(new_counts())).counts.summaries) == 5


def test_families_arrive_with_integers_and_floats():
    family = Family("x", "counter", "h", [("", 3), ('a="b"', 0.1)])
    assert family_of(family_numbers(family)).text() == family.text()


@pytest.mark.parametrize(
    ("kind", "across", "expected"),
    [("counter", None, "count"), ("gauge", None, "level"), ("gauge", "count", "count")],
)
def test_a_family_says_how_it_is_added_up_or_its_kind_does(kind, across, expected):
    assert family_numbers(Family("x", kind, "h", [], across)).across == expected


def test_metrics_of_models_arrive():
    metrics = CustomMetrics()
    metrics.add_family("calls_total", 'what "is"\ncalled', "counter")
    metrics.add_family("level", "how high", "gauge")
    metrics.add_family("sizes", "how large", "histogram")
    metrics.metric("calls_total", {"a": 'x"'}).apply("increment", 0.5)
    metrics.metric("level", {}).apply("set", -2)
    metrics.metric("sizes", {}, (1.0, 10.0)).apply("observe", 7)
    for family in metrics.families():
        assert [*custom_of(custom_numbers(family)).pieces()] == [*family.pieces()]
