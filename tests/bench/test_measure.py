"""What was measured becomes a result."""

import numpy as np
import pytest

from inferd.bench.measure import ServerAccount, result_of
from inferd.bench.plan import Address, LoadSample, Message, Plan, Point
from inferd.bench.processes import Measured
from inferd.bench.saturation import GeneratorUse, Trust
from inferd.errors import InferdError

PLAN = Plan(Address("h", 1), [Message(b"")])
NOBODY = ServerAccount(None, [])


def sample(latency_us=2000, count=1000, *, cpu_s=0.05, errors=None, **more):
    each = latency_us if callable(latency_us) else lambda at: latency_us
    latencies = np.array([each(at) * 1000 for at in range(count)], np.int64)
    sent = np.arange(count, dtype=np.int64) * 1_000_000
    given = {
        "firsts": b"", "part_count": 0, "answered": count, "errors": errors or {},
        "waiting_share": 0.0, "use": GeneratorUse(1.0, cpu_s, 0.0, count), **more,
    }  # fmt: skip
    return LoadSample(0, 1_000_000_000, sent.tobytes(), latencies.tobytes(), **given)


FOUR = Point(concurrency=4)


def result(*found, point=FOUR, is_whole=True, account=NOBODY):
    return result_of(PLAN, point, Measured(list(found), is_whole), account)


def test_the_processes_count_together():
    found = result(sample(), sample(4000, errors={"x": 2}))
    assert found.answered == 2000 and found.per_s == 2000 and found.errors == {"x": 2}
    assert found.latency.count == 2000 and found.latency.most_us == 4000
    assert found.verdict.trust is Trust.FULL and found.server is None and found.cpu_us is None


def test_the_busiest_process_decides_what_a_latency_is_worth():
    found = result(sample(), sample(cpu_s=0.9))
    assert found.verdict.trust is Trust.NONE and found.latency is None
    assert "--processes 4" in found.verdict.reason


def test_a_drift_and_a_wait_for_connections_are_notes():
    found = result(sample(lambda at: 1000 + 2 * at))
    assert found.notes[0].startswith("the second half was slower (+")
    late = result(sample(waiting_share=0.4), point=Point(rate=1000, connections=7))
    assert late.notes[0].startswith("40% of the requests waited for one of 7 connections")


def test_streams_have_a_time_to_the_first_answer():
    firsts = np.full(1000, 300_000, np.int64).tobytes()
    found = result(sample(firsts=firsts, part_count=8000))
    assert found.first.at(50).value == 300 and found.answers_per_request == 8


def test_without_answers_there_is_no_latency():
    found = result(sample(count=0, errors={"400: bad": 9}))
    assert found.latency is None and found.error_count == 9 and found.per_s == 0


def test_a_server_without_statistics_is_asked_once():
    calls = []

    def read():
        calls.append(1)
        msg = "no such call"
        raise InferdError(msg)

    account = ServerAccount(read, [])
    account.begin()
    account.end()
    assert len(calls) == 1 and account.phases() is None and account.cpu_us(100) is None


def test_the_cpu_of_processes_is_shared_among_requests():
    import os

    account = ServerAccount(None, [os.getpid()])
    account.begin()
    sum(range(2_000_000))
    account.end()
    assert account.cpu_us(1000) == pytest.approx(2 * account.cpu_us(2000))
    assert account.cpu_us(0) is None
