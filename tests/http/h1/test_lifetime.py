"""How many answers a connection gives, and until when."""

import msgspec
import pytest

from inferd.config.server import ServerConfig
from inferd.http.h1.lifetime import Lifetime
from inferd.server.options import http_options

LIMITS = http_options(ServerConfig())


def lifetime(now=0.0, **changes):
    return Lifetime(msgspec.structs.replace(LIMITS, **changes), now)


def test_without_limits_it_lasts():
    life = lifetime()
    assert not life.is_over(1e9)
    assert life.answers_left > 1_000_000_000


def test_it_is_over_about_the_age_counted_from_its_beginning():
    for _ in range(20):
        life = lifetime(now=100.0, max_connection_age_ms=10_000)
        assert not life.is_over(108.9)
        assert life.is_over(111.1)


def test_those_made_together_do_not_end_together():
    lives = [lifetime(max_connection_requests=1000) for _ in range(50)]
    left = {life.answers_left for life in lives}
    assert len(left) > 1
    assert all(900 <= count <= 1000 for count in left)


@pytest.mark.parametrize("most", [1, 99])
def test_a_small_number_of_answers_is_kept_to(most):
    assert lifetime(max_connection_requests=most).answers_left == most


def test_once_it_is_to_end_the_next_answer_is_the_last():
    life = lifetime(max_connection_age_ms=1000)
    life.end()
    assert life.answers_left == 0
    assert not life.is_over(1e9)  # it is told once


def test_it_idles_less_long_when_it_is_to_end():
    life = lifetime(idle_timeout_s=60.0, drain_window_s=2.0)
    assert [life.has_idled(lasts_s) for lasts_s in (2.1, 60.0, 60.1)] == [False, False, True]
    life.end()
    assert [life.has_idled(lasts_s) for lasts_s in (2.0, 2.1)] == [False, True]


def test_requests_that_were_on_their_way_are_answered_but_not_without_end():
    life = lifetime(max_connection_requests=1)
    life.answers_left -= 1000
    assert life.may_go_on()
    life.end()
    assert life.answers_left == -999  # those that were beyond the last one count
    life.answers_left -= 1
    assert not life.may_go_on()
