"""Numbers of processes, added up."""

import contextlib
import math
import random
import subprocess
import sys
from fractions import Fraction

import msgspec
import pytest
from counting import EVENTS, MS, new_counts
from hypothesis import given
from hypothesis import strategies as st

from inferd.errors import InferdError
from inferd.observe import numbers
from inferd.observe.counted import counts_of, numbers_of
from inferd.observe.numbers import (
    Amount,
    CustomNumbers,
    EncodedNumbers,
    FamilyNumbers,
    ProcessNumbers,
    add,
    added,
    added_customs,
    added_families,
    decode,
    encode,
    exact,
    merged,
    shown,
)
from inferd.observe.prometheus import Observed
from inferd.observe.statistics import Duration
from inferd.observe.stats import MAX_BATCH_ROWS
from inferd.observe.summary import STEP_S, WINDOW_S


def row(counts, pending=0, load_s=0.0, **more):
    return numbers_of(Observed("m", "1", counts, pending, load_s, {}, **more))


def counted(*batch_sizes):
    counts = new_counts()
    for size in batch_sizes:
        EVENTS[0](counts, 50 * MS, size)
    return counts


def entry(counts, name="m", born=0, **more):
    return EncodedNumbers(name, "1", born, msgspec.Raw(encode(row(counts, **more))))


def process(*models, **more):
    return encode(ProcessNumbers(list(models), **more))


def count_of(one):
    return counts_of(one).statistics("m", "1").inference_count


def test_whoever_adds_numbers_up_needs_neither_numpy_nor_a_framework():
    script = (
        "import sys, inferd.observe.numbers\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    imported = set(ran.stdout.split())
    assert {"inferd", "msgspec"} <= imported
    assert not imported & {"numpy", "onnxruntime", "torch", "google", "grpc", "uvloop", "simdjson"}


# --- model versions ---


def test_counts_are_added_and_the_last_of_anything_is_the_last():
    one, other = row(counted(1, 3), 2, 1.5), row(counted(3, 4, 4), 5, 0.5)
    both = add(one, other)
    assert count_of(both) == 1 + 3 + 3 + 4 + 4
    assert (both.pending_count, both.load_s) == (7, 1.5)
    assert both.last_ns == one.last_ns == other.last_ns != 0
    assert [len(samples) for samples in both.counted.samples] == [1] * 5 + [0] * 2


@pytest.mark.parametrize(
    ("states", "told"),
    [((None, None), None), ((None, True), True), ((True, False), False), ((True, True), True)],
)
def test_requests_are_joined_if_they_are_wherever_they_may_be(states, told):
    one, other = (row(counted(), is_joined=state) for state in states)
    assert add(one, other).is_joined is add(other, one).is_joined is told


def test_a_flag_of_one_process_is_a_flag_of_all():
    both = add(row(counted(), is_on_gpu=True), row(counted(), is_isolated=True))
    assert (both.is_on_gpu, both.is_cached, both.is_isolated) == (True, False, True)


def test_what_another_load_of_a_version_has_counted_is_not_added():
    old, new = entry(counted(1)), entry(counted(2, 2), born=7)
    assert count_of(added([old, new, old])) == count_of(added([new, old])) == 4
    assert count_of(added([new, old, new])) == 8


def test_there_are_no_more_rows_than_in_one_process_and_their_requests_are_kept():
    even, odd = new_counts(), new_counts()
    for size in range(MAX_BATCH_ROWS):
        EVENTS[0](even, MS, 2 * size)
        EVENTS[0](odd, MS, 2 * size + 1)
        EVENTS[3](odd, MS, 2 * size + 1)
    both = add(row(even), row(odd))
    assert len(both.counted.alone) == MAX_BATCH_ROWS
    found, statistics = counts_of(both), [one.statistics("m", "1") for one in (even, odd)]
    told = found.statistics("m", "1")
    assert told.inference_count == sum(one.inference_count for one in statistics)
    assert told.execution_count == sum(one.execution_count for one in statistics)
    assert told.inference_stats.fail.count == MAX_BATCH_ROWS
    again = add(both, row(odd))
    assert list(again.counted.alone) == list(both.counted.alone)
    assert count_of(again) == told.inference_count + statistics[1].inference_count


def test_histograms_with_other_bounds_are_not_mixed():
    one, other = (row(counted(1)) for _ in range(2))
    other.first_responses = Amount([1.0], 0, [7.0], [1, 0])
    assert add(one, other).first_responses == one.first_responses


# --- sums ---

FINITE = st.floats(-1e100, 1e100, allow_subnormal=True)


@given(st.lists(FINITE), st.integers(0, 100), st.randoms(use_true_random=False))
def test_sums_are_exact_however_they_are_made(values, split, generator):
    exactly = float(sum(map(Fraction, values)))
    assert shown(exact(values)) == exactly
    once = exact([*exact(values[split:]), *exact(values[:split])])
    generator.shuffle(values)
    again = exact([*values, *exact([])])
    assert shown(once) == shown(again) == exactly
    assert len(once) < 45


def test_sums_of_integers_are_integers():
    assert exact([2**60, 1, 2]) == [2**60 + 3]
    assert repr(shown([3])) == "3"
    assert shown(exact([])) == 0


def test_what_is_not_finite_stays_so():
    assert shown(exact([1.0, math.inf])) == math.inf
    assert math.isnan(shown(exact([math.inf, -math.inf])))
    assert shown(exact([1e308, 1e308])) == math.inf


# --- what is no model's ---


def family(across, value, name="x"):
    kind = "counter" if across == "count" else "gauge"
    return FamilyNumbers(name, kind, "h", across, {"": [value]})


@pytest.mark.parametrize(
    ("across", "told", "kept"),
    [
        ("count", 6, 6),
        ("level", 6, None),
        ("mean", 2, None),
        ("most", 3, 3),
        ("least", 1, 1),
    ],
)
def test_each_family_has_its_way(across, told, kept):
    processes = [ProcessNumbers(families=[family(across, value)]) for value in (3, 1, 2)]
    [found] = added_families(processes)
    assert shown(found.samples[""]) == told
    ended = decode(merged([encode(one) for one in processes])).families
    assert [shown(one.samples[""]) for one in ended] == ([] if kept is None else [kept])


def test_families_and_samples_that_one_process_has_are_there():
    processes = [ProcessNumbers(families=[family("count", 1, name)]) for name in "ab"]
    processes.append(ProcessNumbers(families=[FamilyNumbers("a", "c", "h", "count", {"y": [2]})]))
    found = {one.name: one.samples for one in added_families(processes)}
    assert found == {"a": {"": [1], "y": [2]}, "b": {"": [1]}}


def custom(kind, *amounts):
    return ProcessNumbers(customs=[CustomNumbers("x", kind, "h", dict(amounts))])


def told(*processes):
    [found] = added_customs(processes)
    return {labels: shown(amount.total) for labels, amount in found.metrics.items()}


def test_counters_of_models_are_added_by_their_labels():
    one = custom("counter", ("a", Amount([0.1])), ("b", Amount([1.0])))
    other = custom("counter", ("a", Amount([0.2])), ("c", Amount([5.0])))
    assert told(one, other) == {"a": 0.1 + 0.2, "b": 1.0, "c": 5.0}


def test_a_gauge_is_what_it_was_set_to_last_and_the_sum_if_it_never_was():
    earlier, later = (
        custom("gauge", ("", Amount([3.0], 5))),
        custom("gauge", ("", Amount([2.0], 6))),
    )
    only_changed = custom("gauge", ("", Amount([4.0])))
    assert told(earlier, later) == told(later, earlier, only_changed) == {"": 2.0}
    assert told(only_changed, only_changed) == {"": 8.0}


def test_histograms_of_models_are_added_where_their_buckets_are_the_same():
    one = custom("histogram", ("", Amount([3.0], 0, [1.0], [1, 2])))
    other = custom("histogram", ("", Amount([9.0], 0, [2.0], [5, 5])))
    [found] = added_customs([one, other, one])
    assert found.metrics[""] == Amount([6.0], 0, [1.0], [2, 4])


def test_a_name_that_is_of_two_kinds_is_of_the_first():
    assert told(
        custom("counter", ("", Amount([1.0]))), custom("gauge", ("", Amount([7.0], 1)))
    ) == {"": 1.0}


# --- processes that have ended ---


def test_of_ended_processes_what_was_counted_is_kept_and_what_was_under_way_is_not():
    full = entry(counted(1, 2), pending=3, load_s=2.0, is_on_gpu=True, is_joined=True)
    ended = merged([process(full, calls={"status": Duration(2, 30)})] * 2)
    found = decode(ended)
    [kept] = found.models
    numbers = kept.numbers()
    assert count_of(numbers) == 6
    assert (numbers.pending_count, numbers.load_s, numbers.is_on_gpu) == (0, 0.0, False)
    assert numbers.is_joined is None
    assert found.calls == {"status": Duration(4, 60)}
    [later] = decode(merged([ended, process(full)])).models
    assert count_of(later.numbers()) == 9


def test_of_the_metrics_of_models_gauges_end_with_their_process():
    ended = [encode(custom(kind, ("", Amount([2.0])))) for kind in ("gauge", "counter")]
    assert [one.kind for one in decode(merged(ended[:1])).customs] == []
    assert [one.kind for one in decode(merged(ended[1:] * 2)).customs] == ["counter"]


def test_nothing_has_ended_at_first():
    assert decode(merged([])) == ProcessNumbers()


def test_durations_of_ended_processes_are_forgotten_with_those_of_the_last_minute():
    counts = counted(1)
    at_s = counts.summaries[0]._clock()
    for later_s, steps in ((WINDOW_S - STEP_S, 1), (WINDOW_S + 2 * STEP_S, 0)):
        ended = merged([process(entry(counts))], lambda: at_s + later_s)  # noqa: B023
        [kept] = decode(ended).models
        assert [len(samples) for samples in kept.numbers().counted.samples[:5]] == [steps] * 5


def test_the_rows_and_metrics_of_ended_processes_have_an_end(monkeypatch):
    monkeypatch.setattr(numbers, "MAX_ENDED_ROWS", 3)
    monkeypatch.setattr(numbers, "MAX_METRICS", 2)
    monkeypatch.setattr(numbers, "MAX_FAMILIES", 1)
    models = [entry(counted(), name=f"m{number}", born=number % 4) for number in range(8)]
    metrics = [(label, Amount([1.0])) for label in "abc"]
    customs = [CustomNumbers(name, "counter", "h", dict(metrics)) for name in "xy"]
    found = decode(merged([process(*models, customs=customs)]))
    assert [one.born for one in found.models] == [3, 3, 2]
    assert [(one.name, list(one.metrics)) for one in found.customs] == [("x", ["a", "b"])]


# --- what is no numbers ---


def full_process():
    counts = new_counts()
    for number, event in enumerate(EVENTS):
        event(counts, number * 50 * MS, 2)
    return process(
        entry(counts),
        families=[family("count", 0.5)],
        customs=[CustomNumbers("x", "histogram", "h", {"": Amount([3.0], 0, [1.0], [1, 2])})],
        calls={"status": Duration(1, 2)},
    )


def read_all(data):
    """Read and add everything, twice over."""
    found = decode(data)
    for model in found.models:
        counts_of(added([model, model])).statistics("m", "1")
    decode(merged([data]))


def test_what_is_cut_off_is_refused():
    whole = full_process()
    read_all(whole)
    for length in range(0, len(whole), 3):
        with pytest.raises(InferdError, match="numbers of a process cannot be read"):
            read_all(whole[:length])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        encode(ProcessNumbers())[:-1] + b"\xa1\xff",
        encode(ProcessNumbers(families=[family("median", 1)])),
        process(EncodedNumbers("m", "1", 0, msgspec.Raw(b"\x90"))),
        process(
            EncodedNumbers("m", "1", 0, msgspec.Raw(encode(custom("counter", ("", Amount([1]))))))
        ),
    ],
)
def test_what_is_no_numbers_is_refused(data):
    with pytest.raises(InferdError, match="numbers of a process cannot be read"):
        read_all(data)


def test_buckets_that_there_are_not_are_refused():
    for place, last in (("histograms", 64), ("requests", 495), ("samples", 975)):
        one = row(counted(1))
        if place == "requests":
            one.counted.requests[last + 1] = 1
        else:
            beyond = {last + 1: 1}
            getattr(one.counted, place)[0] = beyond if place == "histograms" else {1: beyond}
        with pytest.raises(InferdError, match="cannot be read"):
            read_all(process(EncodedNumbers("m", "1", 0, msgspec.Raw(encode(one)))))


def test_a_histogram_has_a_count_more_than_bounds():
    amount = Amount([1.0], 0, [1.0], [1, 2])
    amount.counts = [1]
    with pytest.raises(InferdError, match="1 bounds and 1 counts"):
        decode(encode(custom("histogram", ("", amount))))


@pytest.mark.parametrize("seed", range(300))
def test_whatever_comes_is_read_or_refused(seed):
    generator = random.Random(seed)
    data = bytearray(full_process())
    for _ in range(generator.randrange(1, 6)):
        data[generator.randrange(len(data))] = generator.randrange(256)
    with contextlib.suppress(InferdError):
        read_all(bytes(data))
