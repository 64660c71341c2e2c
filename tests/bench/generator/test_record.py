"""What is recorded of a point, and what of it counts."""

import numpy as np

from inferd.bench.generator.record import MOST_KINDS_OF_ERRORS, LoadRecord, ProcessUsage, usage
from inferd.bench.plan import samples

BEFORE, AFTER = ProcessUsage(1e-6, 1.0, 0.5, 10), ProcessUsage(3e-6, 1.5, 0.75, 15)


def sample(record, began_ns=1000, ended_ns=2000):
    return record.sample(began_ns, ended_ns, BEFORE, AFTER)


def test_requests_that_were_due_in_the_measured_time_count():
    record = LoadRecord()
    for due, ended in ((900, 1500), (1000, 1400), (1999, 2500), (2000, 2100)):
        record.answered(due, ended, 0, 0)
    found = sample(record)
    assert samples(found.sent).tolist() == [1000, 1999]
    assert samples(found.latencies).tolist() == [400, 501]
    assert found.answered == 2  # in that time: those that ended at 1400 and 1500
    assert (found.use.cpu_s, found.use.waited_s) == (0.5, 0.25)
    assert found.use.runs == 5 and found.use.request_count == 4
    assert np.isclose(found.use.elapsed_s, 2e-6)


def test_answers_of_streams_have_a_first():
    record = LoadRecord()
    record.answered(1000, 1900, 1100, 3)
    record.answered(1200, 1900, 1250, 5)
    found = sample(record)
    assert samples(found.firsts).tolist() == [100, 50] and found.part_count == 8


def test_errors_are_counted_by_text_as_long_as_there_are_few():
    record = LoadRecord()
    for number in range(MOST_KINDS_OF_ERRORS + 5):
        record.failed(f"error {number}")
    found = sample(record).errors
    assert len(found) == MOST_KINDS_OF_ERRORS + 1 and found["others"] == 5


def test_nothing_is_a_sample_too():
    found = sample(LoadRecord())
    assert found.answered == 0 and not found.sent and found.use.late_share == 0


def test_usage_grows():
    before = usage()
    sum(range(100_000))
    after = usage()
    assert after.at_s >= before.at_s and after.cpu_s > before.cpu_s
    assert after.waited_s >= before.waited_s >= 0 and after.runs >= before.runs
