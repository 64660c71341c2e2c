import pytest

from inferd.ray.scaling import GroupLoad, Scaling
from inferd.ray.spec import ScalingRule

RULE = ScalingRule(
    least=1, most=4, pending=2.0, cpu=0.8, up_after_s=3.0, down_after_s=20.0, idle_s=60.0
)
IDLE = GroupLoad(0.0, 0.0, 0.0, is_active=False)


def busy(pending=0.0, cpu=0.0, latency_ms=1.0):
    return GroupLoad(pending, cpu, latency_ms, is_active=True)


class Followed:
    """A Scaling that is looked at once a second, all replicas being ready at once."""

    def __init__(self, rule=RULE, start=1):
        self.now = 0.0
        self.scaling = Scaling(rule, start, self.now)

    def see(self, load, seconds, ready=None):
        """Return the numbers that were desired, without repetitions."""
        numbers = [self.scaling.desired]
        for _ in range(seconds):
            self.now += 1.0
            self.scaling.look(load, self.scaling.desired if ready is None else ready, self.now)
            if self.scaling.desired != numbers[-1]:
                numbers.append(self.scaling.desired)
        return numbers


def test_as_many_as_the_load_needs_after_a_short_time():
    followed = Followed()
    assert followed.see(busy(pending=6.0), 2) == [1]
    assert followed.see(busy(pending=6.0), 2) == [1, 3]
    assert followed.see(busy(pending=6.0), 100) == [3]


def test_a_peak_changes_nothing():
    followed = Followed()
    for _ in range(20):
        assert followed.see(busy(pending=9.0), 2) == [1]
        assert followed.see(busy(pending=1.0), 2) == [1]


def test_a_pause_changes_nothing_and_a_long_one_does():
    followed = Followed(start=4)
    for _ in range(10):
        assert followed.see(busy(pending=1.0), 15) == [4]
        assert followed.see(busy(pending=8.0), 2) == [4]
    assert followed.see(busy(pending=1.0), 30) == [4, 1]


def test_the_bounds_are_bounds():
    followed = Followed()
    assert followed.see(busy(pending=1000.0), 10)[-1] == 4
    assert followed.see(IDLE, 100)[-1] == 1


def test_the_time_that_cores_are_busy_counts_where_nothing_waits():
    assert Followed().see(busy(cpu=1.9), 10) == [1, 3]


def test_a_latency_that_is_too_long_adds_one_replica_after_the_other():
    followed = Followed(ScalingRule(least=1, most=3, latency_ms=50.0))
    assert followed.see(busy(latency_ms=80.0), 4) == [1, 2]
    assert followed.see(busy(latency_ms=80.0), 10, ready=1) == [2]  # the second is not ready yet
    assert followed.see(busy(latency_ms=80.0), 10) == [2, 3]
    assert followed.see(busy(latency_ms=40.0), 200) == [3]
    assert followed.see(busy(latency_ms=10.0), 200) == [3, 1]


def test_without_a_request_the_last_replica_ends_and_a_wake_brings_it_back():
    followed = Followed(ScalingRule(least=0, most=2, idle_s=60.0, down_after_s=10.0))
    assert followed.see(busy(pending=0.1), 200) == [1]
    assert followed.see(IDLE, 59) == [1]
    assert followed.see(IDLE, 200) == [1, 0]
    followed.scaling.wake(followed.now)
    assert followed.see(IDLE, 50) == [1]
    followed.scaling.wake(followed.now)
    assert followed.see(IDLE, 50) == [1]


def test_a_replica_that_takes_long_to_start_is_not_idle_meanwhile():
    followed = Followed(ScalingRule(least=0, most=2, idle_s=60.0))
    assert followed.see(IDLE, 500, ready=0) == [1]
    assert followed.see(IDLE, 59) == [1]
    assert followed.see(IDLE, 2) == [1, 0]


def test_a_number_that_was_ordered_counts_until_the_load_says_otherwise():
    followed = Followed()
    followed.scaling.force(3, followed.now)
    assert followed.see(busy(pending=5.5), 100) == [3]
    followed.scaling.force(30, followed.now)
    assert followed.scaling.desired == 4


@pytest.mark.parametrize(("least", "most", "desired"), [(2, 5, 2), (1, 1, 1), (0, 4, 1)])
def test_other_bounds_change_the_number_only_as_far_as_they_say(least, most, desired):
    followed = Followed()
    followed.scaling.become(ScalingRule(least=least, most=most), followed.now)
    assert followed.scaling.desired == desired


def test_a_fixed_number_follows_nothing():
    followed = Followed(ScalingRule(least=2, most=2), start=2)
    assert followed.see(busy(pending=100.0), 100) == [2]
