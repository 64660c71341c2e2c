"""The table of an HTTP/1.1 connection's states, and what follows from it for all of them."""

import pytest

from inferd.http.h1.state import NEXT, HttpEvent, HttpState

HEAD, BODY, CHUNKS, ANSWERING, STREAMING, STALLED, CLOSED = HttpState

# What follows each state, by event; "-" is what must not happen.
TABLE = """
             HEAD       BODY       CHUNKS     ANSWERING  STREAMING  STALLED    CLOSED
BODY_COMES   BODY       -          -          -          -          -          CLOSED
CHUNKS_COME  CHUNKS     -          -          -          -          -          CLOSED
WAITS        ANSWERING  ANSWERING  ANSWERING  -          -          -          CLOSED
STREAMS      STREAMING  STREAMING  STREAMING  STREAMING  -          -          CLOSED
ANSWERED     HEAD       HEAD       HEAD       HEAD       HEAD       STALLED    CLOSED
STALLS       STALLED    BODY       CHUNKS     ANSWERING  STREAMING  STALLED    CLOSED
FLOWS        HEAD       BODY       CHUNKS     ANSWERING  STREAMING  HEAD       CLOSED
ENDS         CLOSED     CLOSED     CLOSED     ANSWERING  STREAMING  STALLED    CLOSED
CLOSES       CLOSED     CLOSED     CLOSED     CLOSED     CLOSED     CLOSED     CLOSED
"""


def test_the_table_is_this_one():
    head, *rows = TABLE.strip().splitlines()
    states = [HttpState[name] for name in head.split()]
    wanted = {}
    for row in rows:
        event, *names = row.split()
        for state, name in zip(states, names, strict=True):
            if name != "-":
                wanted[state, HttpEvent[event]] = HttpState[name]
    assert wanted == NEXT
    assert states == list(HttpState)
    assert [row.split()[0] for row in rows] == [event.name for event in HttpEvent]


@pytest.mark.parametrize("event", ["STALLS", "FLOWS", "ENDS", "CLOSES"])
def test_what_the_transport_says_may_happen_at_any_time(event):
    assert all((state, HttpEvent[event]) in NEXT for state in HttpState)


def test_what_is_closed_stays_closed():
    assert {NEXT[CLOSED, event] for event in HttpEvent} == {CLOSED}


def test_every_state_is_reached_and_ends():
    reached = {HEAD}
    for _ in HttpState:
        reached |= {after for (state, _), after in NEXT.items() if state in reached}
    assert reached == set(HttpState)


def test_a_new_request_is_read_only_by_who_has_nothing_else_to_do():
    comes = HttpEvent.BODY_COMES, HttpEvent.CHUNKS_COME
    assert {state for state, event in NEXT if event in comes} == {HEAD, CLOSED}
