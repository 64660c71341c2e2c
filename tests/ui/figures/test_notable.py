import asyncio
import os

import msgspec
import pytest
from fields import with_fields
from figure_models import MS, NOW, Clock, answered, failed, refused, served

from inferd.core.request import InferRequest
from inferd.errors import Cancelled
from inferd.ui.figures.notable import (
    AGE_MS,
    MOST,
    MOST_ID,
    MOST_SLOW_A_SECOND,
    MOST_TEXT,
    NotableRequests,
)


def listening(*several, clock=None):
    notable = NotableRequests(clock or Clock())
    for one in several:
        notable.listen(one)
        one.counts.slow_ns = 5 * MS
    return notable


def test_a_slow_request_has_its_phases():
    one = served()
    notable = listening(one)
    answered(one, ms=4, id="quick")
    answered(one, ms=8, id="slow", batch_size=3, answered_ns=10**9 + 9 * MS)
    [found] = notable.since(0)
    assert msgspec.to_builtins(found) == {
        "time": NOW * 1000,
        "model": "m",
        "version": "1",
        "id": "slow",
        "status": "ok",
        "error": "",
        "reason": "",
        "took": 9 * MS,
        "queue": MS // 4,
        "input": MS // 4,
        "infer": 8 * MS - MS // 2 - MS // 8,
        "output": MS // 8,
        "handover": MS,
        "batch_size": 3,
        "pid": os.getpid(),
    }


def test_a_failed_request_has_the_error_the_reason_and_what_it_took():
    one = served()
    notable = listening(one)
    failed(one, "its input is <odd>", id="r1")
    refused(one)
    [found] = notable.since(0)
    assert (found.status, found.error, found.reason) == ("failed", "its input is <odd>", "BACKEND")
    assert (found.id, found.took) == ("r1", 10**10 - 10**9)


@pytest.mark.parametrize(
    ("error", "text", "reason"),
    [
        (asyncio.CancelledError(), "the client has gone", "CANCELED"),
        (Cancelled("gone"), "gone", "CANCELED"),
        (ValueError("a bug in /some/where/x.py"), "ValueError: a bug in x.py", "BACKEND"),
    ],
)
def test_errors_of_all_kinds_have_a_text(error, text, reason):
    one = served()
    notable = listening(one)
    one.counts.add_failure(with_fields(InferRequest("m"), started_ns=10**9), error)
    [found] = notable.since(0)
    assert (found.error, found.reason) == (text, reason)


def test_one_that_failed_in_the_queue_waited_all_the_time():
    one = served()
    notable = listening(one)
    one.counts.add_failure(with_fields(InferRequest("m"), queued_ns=10**9), Cancelled("gone"))
    [found] = notable.since(0)
    assert (found.took, found.queue) == (9 * 10**9, 9 * 10**9)
    assert (found.input, found.infer, found.output, found.handover) == (0, 0, 0, 0)


def test_at_most_ten_slow_ones_a_second_are_remembered():
    clock, one = Clock(), served()
    notable = listening(one, clock=clock)
    for _ in range(3):
        answered(one, 100, ms=9)
        clock.now += 1
    assert len(notable.since(0)) == 3 * MOST_SLOW_A_SECOND


def test_a_flood_of_failures_leaves_the_slow_ones():
    one = served()
    notable = listening(one)
    answered(one, ms=9)
    for number in range(10 * MOST):
        failed(one, str(number))
    found = notable.since(0)
    assert len(found) == MOST + 1
    assert (found[0].status, found[-1].error) == ("ok", str(10 * MOST - 1))


def test_they_are_told_in_order_from_the_first_that_is_new():
    one, other = served("a"), served("b")
    notable = listening(one, other)
    failed(one, "1")
    answered(other, ms=9)
    seen = notable.count
    failed(other, "2")
    assert [found.error for found in notable.since(0)] == ["1", "", "2"]
    assert [found.error for found in notable.since(seen)] == ["2"]
    assert [found.error for found in notable.since(0, "b", "1")] == ["", "2"]
    assert notable.since(0, "b", "2") == []


def test_old_ones_are_forgotten():
    clock, one = Clock(), served()
    notable = listening(one, clock=clock)
    failed(one)
    clock.now += AGE_MS // 1000
    failed(one, "new")
    assert len(notable.since(0)) == 2
    clock.now += 1
    assert [found.error for found in notable.since(0)] == ["new"]


def test_hostile_and_long_texts_can_be_sent():
    one = served()
    notable = listening(one)
    failed(one, "x" * 2 * MOST_TEXT, id="\udc80<b>" * MOST_ID)
    [found] = notable.since(0)
    assert len(found.error) == MOST_TEXT + 1
    assert len(found.id) == MOST_ID + 1
    assert msgspec.json.decode(msgspec.json.encode(found))["id"].startswith("?<b>?")
