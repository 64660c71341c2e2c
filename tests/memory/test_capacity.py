import pytest

from inferd.engine.whole import capacity_families
from inferd.errors import Code
from inferd.memory.capacity import Capacity


def test_without_limits_nothing_is_too_much():
    capacity = Capacity()
    capacity.request_count = 10**9
    assert capacity.hold(10**18) and capacity.has_room(10**18) and not capacity.is_full


def test_bytes_are_held_up_to_the_limit_and_no_further():
    capacity = Capacity(max_bytes=10)
    assert capacity.hold(10)
    assert not capacity.has_room(1)
    assert not capacity.hold(1)
    assert capacity.hold(-1) and capacity.has_room(0)


@pytest.mark.parametrize(("count", "is_full"), [(1, False), (2, True), (3, True)])
def test_it_is_full_with_as_many_requests_as_may_be(count, is_full):
    capacity = Capacity(max_requests=2)
    capacity.request_count = count
    assert capacity.is_full is is_full


def test_a_refusal_names_its_option_says_when_to_come_back_and_is_counted():
    capacity = Capacity(2, 10)
    for error, option in (
        (capacity.too_many_requests(), "--max-inflight-requests"),
        (capacity.too_many_bytes(1), "--max-inflight-bytes"),
        (capacity.too_many_bytes(10), "--max-inflight-bytes"),
    ):
        assert error.code is Code.UNAVAILABLE and error.retry_s == 1
        assert option in error.message
    text = "".join(family.text() for family in capacity_families(capacity))
    assert 'inferd_overload_refused_total{reason="requests"} 1\n' in text
    assert 'inferd_overload_refused_total{reason="bytes"} 2\n' in text


def test_what_has_more_bytes_than_all_may_have_is_too_large_and_no_overload():
    capacity = Capacity(2, 10)
    error = capacity.too_many_bytes(11)
    assert error.code is Code.TOO_LARGE and error.retry_s == 0
    assert "--max-inflight-bytes" in error.message
    assert capacity.refused_for_bytes == 0


def test_metrics_tell_what_is_under_way():
    capacity = Capacity()
    capacity.request_count, capacity.buffered_bytes = 3, 5
    text = "".join(family.text() for family in capacity_families(capacity))
    assert "inferd_inflight_requests 3\n" in text and "inferd_inflight_bytes 5\n" in text
