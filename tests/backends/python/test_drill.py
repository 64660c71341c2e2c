"""A model that ends its process costs its own request alone, in whatever way; see `drill`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "drill"))

from drill import BACK_S, KILL_COUNT, run
from ways import FAILURES, WAYS

GROWTH_BYTES = 64 << 20


@pytest.mark.slow
def test_no_way_to_end_a_process_hits_another_request(tmp_path):
    report = run(tmp_path)
    print(report)  # noqa: T201  the counts
    assert len(report.rows) == len(WAYS) > 20
    assert len(report.failures) == len(FAILURES)
    for row in report.rows:
        assert "the worker process of model 'victim'" in row.error
    for row in report.failures:
        assert row.error.startswith("model 'victim' failed: ")
    for row in report.rows + report.failures:
        assert row.innocent_count == 0, row
        assert row.away_s < BACK_S, row
    load = report.load
    assert len(load.right) == 4
    assert min(load.right.values()) > 100
    assert not load.wrong, load.wrong
    assert not load.lost, load.errors
    assert report.hosted["right"] > 0
    assert report.hosted["wrong"] == 0
    assert report.hosted["lost"] <= KILL_COUNT
    (fds, states, size, shm), (fds_after, states_after, size_after, shm_after) = (
        report.before,
        report.after,
    )
    assert fds_after <= fds
    assert len(states_after) == len(states)
    assert "Z" not in states_after
    assert size_after < size + GROWTH_BYTES
    assert not shm_after - shm
    assert report.exit_code == 0
