import pytest
from fields import with_fields

from inferd.config.model import DynamicBatching
from inferd.core.request import InferRequest
from inferd.schedulers.queueing.queue import RequestQueue, Waiting
from inferd.schedulers.queueing.timing import Beginning, FixedTiming, beginning

NO_SIZES = frozenset()


def queue_of(*sizes, kinds=None):
    """One request a nanosecond, from 1 on."""
    queue = RequestQueue("m", DynamicBatching())
    for index, size in enumerate(sizes):
        kind = kinds[index] if kinds else None
        queue.add(Waiting(InferRequest("m", batch_size=size), kind, None), index + 1)
    return queue


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1,), (1, 0, False, 1)),
        ((1, 2, 3), (3, 0, False, 1)),
        ((1, 2, 5), (3, 0, True, 1)),
        ((8, 1), (1, 0, True, 1)),
        ((3, 3, 3), (2, 0, True, 1)),
        ((3, 6, 1), (1, 0, True, 1)),  # 1 would fit, but nobody is overtaken
        ((9,), (1, 0, True, 1)),
    ],
)
def test_a_batch_is_the_longest_beginning_that_fits(sizes, expected):
    assert beginning(queue_of(*sizes), 8, NO_SIZES) == Beginning(*expected)


def test_a_request_of_another_kind_ends_it():
    found = beginning(queue_of(1, 1, 1, 1, kinds="aaba"), 8, NO_SIZES)
    assert found == Beginning(2, 0, True, 1)


@pytest.mark.parametrize(
    ("sizes", "preferred", "count"),
    [((1, 1, 1), {2}, 2), ((2, 2, 2), {2, 4}, 2), ((2, 1), {2}, 1), ((2, 1), {4}, 0)],
)
def test_the_largest_preferred_size_is_found(sizes, preferred, count):
    assert beginning(queue_of(*sizes), 8, frozenset(preferred)).preferred_count == count


def test_the_oldest_of_a_batch_need_not_be_its_first():
    queue = RequestQueue("m", DynamicBatching(priority_levels=2, default_priority_level=2))
    for priority, now_ns in ((2, 5), (1, 9)):
        queue.add(Waiting(with_fields(InferRequest("m"), priority=priority), None, None), now_ns)
    assert beginning(queue, 8, NO_SIZES).oldest_ns == 5


@pytest.mark.parametrize(
    ("sizes", "delay_us", "now_ns", "chosen"),
    [
        ((1, 1), 0, 2, (2, 0)),
        ((1, 1), 1, 2, (0, 1001)),
        ((1, 1), 1, 1000, (0, 1001)),
        ((1, 1), 1, 1001, (2, 0)),
        ((1, 1, 2, 1), 1, 4, (3, 0)),  # 4 is preferred
        ((1, 1, 2, 1, 8), 1, 4, (3, 0)),
        ((3, 3, 3), 1, 3, (2, 0)),
        ((1, 1, 2, 1), 1, 1001, (4, 0)),  # late: all that waits
    ],
)
def test_when_how_many_are_sent(sizes, delay_us, now_ns, chosen):
    timing = FixedTiming(8, (4, 8), delay_us)
    assert timing.choose(queue_of(*sizes), now_ns) == chosen
    assert timing.starts_at_once == (delay_us == 0)


@pytest.mark.parametrize(
    ("sizes", "now_ns", "chosen"),
    [
        ((3,), 3, (0, 1001)),
        ((6,), 3, (1, 0)),  # larger than all preferred sizes
        ((3, 3), 3, (1, 0)),  # the second would make it so
        ((1, 2, 3), 3, (2, 0)),
        ((4, 3), 3, (1, 0)),
        ((2, 3, 3), 3, (1, 0)),  # 2 is preferred
        ((3, 3), 1001, (2, 0)),
    ],
)
def test_a_batch_does_not_wait_to_grow_beyond_the_largest_preferred_size(sizes, now_ns, chosen):
    assert FixedTiming(8, (2, 4), 1).choose(queue_of(*sizes), now_ns) == chosen


def test_without_a_batch_dim_each_is_a_batch():
    assert FixedTiming(0, (), 0).choose(queue_of(1, 1), 2) == (1, 0)


@pytest.mark.parametrize(
    ("most", "preferred", "enough"), [(8, (4, 6), 4), (8, (), 8), (0, (), 1), (8, (8,), 8)]
)
def test_fewer_than_the_smallest_size_to_be_sent_are_not_enough(most, preferred, enough):
    assert FixedTiming(most, preferred, 1).enough == enough
