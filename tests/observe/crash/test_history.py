"""Crashes so far, and which models they isolate."""

import os

import pytest

from inferd.observe.crash.history import (
    MAX_BYTES,
    MAX_CRASHES,
    WITHIN_S,
    Crash,
    History,
    crash_families,
    read_history,
    write_history,
)

M, OTHER = ("m", "1"), ("other", "1")


def history_of(*crashes):
    history = History()
    for at_s, *models in crashes:
        history.add(Crash(at_s, "Aborted", models))
    return history


@pytest.mark.parametrize(
    ("crashes", "isolated"),
    [
        ([], set()),
        ([(1.0, M)], set()),
        ([(1.0, M), (WITHIN_S + 1, M)], {M}),
        ([(1.0, M), (WITHIN_S + 2, M)], set()),
        ([(1.0, M), (2.0, OTHER)], set()),
        ([(1.0, M), (2.0, ("m", "2"))], set()),
        ([(1.0, M, OTHER), (2.0, M)], {M}),
        ([(1.0, M), (2.0,), (9000.0, M), (9001.0, M)], {M}),
    ],
)
def test_two_crashes_within_an_hour_isolate_a_version(crashes, isolated):
    assert history_of(*crashes).isolated() == isolated


def test_a_history_survives_in_a_file(tmp_path):
    descriptor = os.open(tmp_path / "h", os.O_RDWR | os.O_CREAT)
    try:
        assert read_history(descriptor) == History()
        history = history_of(*((float(n), M) for n in range(100)))
        assert (history.count, len(history.crashes)) == (100, MAX_CRASHES)
        write_history(descriptor, history)
        assert read_history(descriptor) == history
        write_history(descriptor, History())
        assert read_history(descriptor) == History()
        os.ftruncate(descriptor, MAX_BYTES + 1)
        with pytest.raises(ValueError, match="more than"):
            read_history(descriptor)
    finally:
        os.close(descriptor)


def test_the_longest_history_can_be_read_again(tmp_path):
    models = [("n" * 255, str(number)) for number in range(8)]
    history = history_of(*((float(n), *models) for n in range(MAX_CRASHES)))
    descriptor = os.open(tmp_path / "h", os.O_RDWR | os.O_CREAT)
    try:
        write_history(descriptor, history)
        assert read_history(descriptor) == history
    finally:
        os.close(descriptor)


def test_metrics_count_all_crashes():
    [family] = crash_families(history_of((1.0, M), (2.0,)))
    assert "inferd_crash_total 2" in family.text()
