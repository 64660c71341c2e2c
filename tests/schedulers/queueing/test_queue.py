import pytest
from fields import with_fields
from hypothesis import given, settings
from hypothesis import strategies as st

from inferd.config.model import DynamicBatching, QueuePolicy
from inferd.core.request import InferRequest
from inferd.errors import Unavailable
from inferd.schedulers.queueing.policy import MAX_WAITING
from inferd.schedulers.queueing.queue import RequestQueue, Waiting

MS = 1_000_000
DELAY = QueuePolicy("DELAY", default_timeout_microseconds=1000)
REJECT = QueuePolicy(default_timeout_microseconds=1000)
OVERRIDE = QueuePolicy(default_timeout_microseconds=1000, allow_timeout_override=True)


def waiting(id="", size=1, priority=0, timeout_us=0):
    request = with_fields(
        InferRequest("m", id=id, batch_size=size), priority=priority, timeout_us=timeout_us
    )
    return Waiting(request, None, None)


def queue_of(*ids, **fields):
    queue = RequestQueue("m", DynamicBatching(**fields))
    for id in ids:
        queue.add(waiting(id), 0)
    return queue


def ids(requests):
    return "".join(one.request.id for one in requests)


def test_requests_are_served_in_the_order_they_came():
    queue = queue_of(*"abc")
    assert (ids(queue), queue.count) == ("abc", 3)
    assert ids(queue.take(2)) == "ab"
    assert (ids(queue), queue.count) == ("c", 1)


def test_the_size_is_the_sum_of_the_batch_sizes():
    queue = queue_of()
    requests = [waiting(size=size) for size in (3, 5, 2)]
    for one in requests:
        queue.add(one, 0)
    assert queue.size == 10
    queue.remove(requests[1])
    assert queue.size == 5
    queue.take(1)
    assert queue.size == 2


# --- priority ---


def test_higher_levels_come_first_and_one_is_the_highest():
    queue = queue_of(priority_levels=3, default_priority_level=3)
    for id, priority in (("a", 3), ("b", 1), ("c", 2), ("d", 1)):
        queue.add(waiting(id, priority=priority), 0)
    assert ids(queue) == ids(queue.take(4)) == "bdca"
    assert queue.count == 0


@pytest.mark.parametrize("priority", [0, 4, 2**64 - 1])
def test_no_priority_or_one_too_high_is_the_default_level(priority):
    queue = queue_of(priority_levels=3, default_priority_level=2)
    for id, level in (("a", 3), ("b", priority), ("c", 1)):
        queue.add(waiting(id, priority=level), 0)
    assert ids(queue) == "cba"


def test_without_levels_priority_means_nothing():
    queue = queue_of()
    for id, priority in (("a", 2), ("b", 1)):
        queue.add(waiting(id, priority=priority), 0)
    assert ids(queue) == "ab"


def test_as_many_levels_as_a_number_can_say_cost_nothing():
    queue = queue_of(priority_levels=2**64 - 1, default_priority_level=1)
    for priority in range(2, 2000):
        queue.add(waiting(priority=priority), 0)
        queue.take(1)
    assert len(queue._levels) == len(queue._order) == 1
    queue.add(waiting("a", priority=2**64 - 1), 0)
    queue.add(waiting("b", priority=2**40), 0)
    assert ids(queue) == "ba"


# --- how many ---


def test_max_queue_size_is_exact_and_the_text_names_it():
    queue = queue_of(*"ab", default_queue_policy=QueuePolicy(max_queue_size=2))
    text = (
        "Exceeds maximum queue size: the queue of model 'm' is full: its max_queue_size is 2; "
        "try again later"
    )
    with pytest.raises(Unavailable, match=f"^{text}$"):
        queue.add(waiting("c"), 0)
    assert (ids(queue), queue.size) == ("ab", 2)
    queue.take(1)
    queue.add(waiting("c"), 0)
    assert ids(queue) == "bc"


def test_each_level_has_a_queue_size_of_its_own():
    queue = queue_of(
        priority_levels=2,
        default_priority_level=2,
        default_queue_policy=QueuePolicy(max_queue_size=1),
        priority_queue_policy={1: QueuePolicy(max_queue_size=2)},
    )
    for priority in (1, 1, 2):
        queue.add(waiting(priority=priority), 0)
    for priority in (1, 2):
        with pytest.raises(Unavailable):
            queue.add(waiting(priority=priority), 0)


def test_a_policy_for_a_level_means_nothing_without_levels():
    queue = queue_of(*"ab", priority_queue_policy={1: QueuePolicy(max_queue_size=1)})
    assert queue.count == 2


def test_delayed_requests_count():
    policy = QueuePolicy("DELAY", default_timeout_microseconds=1, max_queue_size=2)
    queue = queue_of(*"ab", default_queue_policy=policy)
    queue.expire(MS)
    with pytest.raises(Unavailable):
        queue.add(waiting(), MS)


def test_without_a_policy_there_is_a_limit_too():
    queue = queue_of()
    one = InferRequest("m")
    for _ in range(MAX_WAITING):
        queue.add(Waiting(one, None, None), 0)
    with pytest.raises(Unavailable, match=f"{MAX_WAITING} requests wait"):
        queue.add(waiting(), 0)


# --- how long ---


def test_a_request_is_rejected_when_its_time_has_come_and_not_before():
    queue = queue_of("a", default_queue_policy=REJECT)
    queue.add(waiting("b"), 1)
    assert queue.next_late_ns() == MS
    assert queue.expire(MS - 1) == []
    [late] = queue.expire(MS)
    assert (ids([late]), ids(queue), queue.size) == ("a", "b", 1)
    assert queue.next_late_ns() == MS + 1
    error = queue.too_late(late)
    assert isinstance(error, Unavailable)
    assert error.message == (
        "Request timeout expired: model 'm': the request has waited for 1000 microseconds, "
        "which is its timeout in the queue"
    )


def test_a_delayed_request_moves_behind_all_of_its_level_and_is_served():
    queue = queue_of("a", default_queue_policy=DELAY)
    queue.add(waiting("b"), MS)
    assert queue.expire(MS) == []
    assert ids(queue) == "ba"
    queue.add(waiting("c"), MS)
    assert queue.expire(2 * MS) == []
    assert ids(queue) == ids(queue.take(3)) == "abc"  # all are delayed now, in that order


def test_delayed_requests_stay_before_lower_levels():
    queue = queue_of(priority_levels=2, default_priority_level=2, default_queue_policy=DELAY)
    for id, priority, now_ns in (("a", 1, 0), ("b", 1, MS), ("c", 2, MS)):
        queue.add(waiting(id, priority=priority), now_ns)
    queue.expire(MS)
    assert ids(queue) == "bac"


def test_a_delayed_request_can_be_taken_out():
    queue = queue_of(default_queue_policy=DELAY)
    one = waiting()
    queue.add(one, 0)
    queue.expire(MS)
    assert queue.remove(one)
    assert (queue.count, queue.size) == (0, 0)


def test_the_policy_of_a_level_has_its_own_timeout():
    queue = queue_of(
        priority_levels=2,
        default_priority_level=2,
        default_queue_policy=REJECT,
        priority_queue_policy={1: QueuePolicy(default_timeout_microseconds=5)},
    )
    for id, priority in (("a", 1), ("b", 2)):
        queue.add(waiting(id, priority=priority), 0)
    assert ids(queue.expire(5000)) == "a"
    assert ids(queue.expire(MS)) == "b"


@pytest.mark.parametrize(
    ("policy", "asked_us", "got_us"),
    [
        (OVERRIDE, 0, 1000),
        (OVERRIDE, 1, 1),
        (OVERRIDE, 999, 999),
        (OVERRIDE, 1001, 1000),  # never longer than the policy's
        (OVERRIDE, 2**64 - 1, 1000),
        (REJECT, 1, 1000),
        (QueuePolicy(allow_timeout_override=True), 1, 0),  # nothing to override
    ],
)
def test_a_timeout_of_its_own_counts_when_allowed_and_shorter(policy, asked_us, got_us):
    queue = queue_of(default_queue_policy=policy)
    queue.add(waiting(timeout_us=asked_us), 7)
    assert queue.next_late_ns() == (7 + 1000 * got_us if got_us else 0)


def test_a_taken_request_is_not_late():
    queue = queue_of("a", default_queue_policy=REJECT)
    queue.take(1)
    assert queue.expire(MS) == []
    assert queue.next_late_ns() == 0


# --- cancelled ---


def test_a_request_can_be_taken_out_of_the_middle_once():
    queue = queue_of("a")
    one = waiting("b")
    queue.add(one, 0)
    queue.add(waiting("c"), 0)
    assert queue.remove(one)
    assert not queue.remove(one)
    assert (ids(queue), queue.count) == ("ac", 2)


def test_a_request_whose_level_is_empty_is_not_there():
    queue = queue_of(priority_levels=2, default_priority_level=2)
    one = waiting(priority=1)
    queue.add(one, 0)
    queue.take(1)
    assert not queue.remove(one)


def test_requests_that_come_and_go_leave_nothing():
    queue = queue_of("a", default_queue_policy=REJECT)
    for _ in range(1000):
        one = waiting()
        queue.add(one, 0)
        queue.remove(one)
    assert len(queue._deadlines) < 100
    assert ids(queue.expire(MS)) == "a"


# --- all of it ---


class Plain:
    """What a queue is, as a list that is sorted for each look."""

    def __init__(self, policies, default):
        self.policies, self.default = policies, default
        self.all = []

    def add(self, one, now_ns):
        level = one.request.priority
        if not 1 <= level <= len(self.policies):
            level = self.default
        policy = self.policies[level - 1]
        if policy.max_queue_size and sum(o[0] == level for o in self.all) >= policy.max_queue_size:
            return False
        limit, own = policy.default_timeout_microseconds, one.request.timeout_us
        if policy.allow_timeout_override and 0 < own < limit:
            limit = own
        self.all.append([level, 0, len(self.all), now_ns + 1000 * limit if limit else None, one])
        return True

    def expire(self, now_ns):
        gone = []
        for entry in sorted(self.all, key=lambda e: (e[3] or 0, e[4].number)):
            if entry[3] is not None and entry[3] <= now_ns:
                entry[3] = None
                if self.policies[entry[0] - 1].timeout_action == "DELAY":
                    self.count = getattr(self, "count", 0) + 1
                    entry[1] = self.count
                else:
                    self.all.remove(entry)
                    gone.append(entry[4])
        return gone

    def order(self):
        return [e[4] for e in sorted(self.all, key=lambda e: (e[0], e[1], e[4].number))]

    def remove(self, one):
        before = len(self.all)
        self.all = [e for e in self.all if e[4] is not one]
        return len(self.all) < before


policies = st.builds(
    QueuePolicy,
    timeout_action=st.sampled_from(["REJECT", "DELAY"]),
    default_timeout_microseconds=st.integers(0, 5),
    allow_timeout_override=st.booleans(),
    max_queue_size=st.integers(0, 4),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 4), st.integers(0, 6)),
        st.tuples(st.just("take"), st.integers(1, 3)),
        st.tuples(st.just("remove"), st.integers(0, 30)),
        st.tuples(st.just("pass"), st.integers(1, 3)),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(policies, min_size=1, max_size=3), st.data(), steps)
def test_a_queue_does_what_a_sorted_list_would(level_policies, data, steps):
    default = data.draw(st.integers(1, len(level_policies)))
    queue = RequestQueue(
        "m",
        DynamicBatching(
            priority_levels=len(level_policies),
            default_priority_level=default,
            priority_queue_policy=dict(enumerate(level_policies, 1)),
        ),
    )
    plain = Plain(level_policies, default)
    seen, now_ns = [], 1
    for step, *values in steps:
        if step == "add":
            one = waiting(str(len(seen)), size=1 + len(seen) % 3, priority=values[0])
            one.request.timeout_us = values[1]
            try:
                queue.add(one, now_ns)
                was_added = True
            except Unavailable:
                was_added = False
            assert plain.add(one, now_ns) == was_added
            seen.append(one)
        elif step == "take":
            expected = plain.order()[: values[0]]
            assert queue.take(len(expected)) == expected
            for one in expected:
                plain.remove(one)
        elif step == "remove" and seen:
            one = seen[values[0] % len(seen)]
            assert queue.remove(one) == plain.remove(one)
        else:
            now_ns += 1000 * values[0]
            assert queue.expire(now_ns) == plain.expire(now_ns)
        assert list(queue) == plain.order()
        assert queue.count == len(plain.all)
        assert queue.size == sum(one.request.batch_size for one in queue)
