from inferd.config.model import DynamicBatching
from inferd.core.request import InferRequest
from inferd.schedulers.queueing.delayed import DelayedTiming
from inferd.schedulers.queueing.queue import RequestQueue, Waiting
from inferd.schedulers.queueing.timing import FixedTiming


class Told(FixedTiming):
    """Notes what it is told."""

    def __init__(self):
        super().__init__(8, (), 0)
        self.calls = []
        self.look_after = 5

    def arrived(self, *said):
        self.calls.append(("came", *said))

    def started(self, *said):
        self.calls.append(("started", *said))

    def ended(self, *said):
        self.calls.append(("ended", *said))

    def ran(self, *said):
        self.calls.append(("ran", *said))

    def resized(self, *said):
        self.calls.append(("resized", *said))

    def looked(self, *said):
        self.calls.append(("looked", *said))


def test_nothing_is_chosen_before_so_many_wait_and_then_as_ever():
    queue = RequestQueue("m", DynamicBatching())
    timing = DelayedTiming(FixedTiming(2, (), 0), 3)
    for now_ns in (1, 2):
        queue.add(Waiting(InferRequest("m"), None, None), now_ns)
        assert timing.choose(queue, now_ns) == (0, 0)
        assert not timing.starts_at_once
        assert timing.enough == 0
    queue.add(Waiting(InferRequest("m"), None, None), 3)
    assert timing.choose(queue, 3) == (2, 0)
    assert timing.starts_at_once
    assert timing.enough == 2
    queue.take(2)
    assert timing.choose(queue, 4) == (1, 0)


def test_the_pace_behind_it_is_told_everything():
    inner = Told()
    timing = DelayedTiming(inner, 3)
    timing.arrived(1)
    timing.started(2)
    timing.ended(3, 4, 5)
    timing.ran(6, 7, 8)
    timing.looked(9, 10)
    timing.resized(11)
    assert inner.calls == [
        ("came", 1), ("started", 2), ("ended", 3, 4, 5), ("ran", 6, 7, 8), ("looked", 9, 10),
        ("resized", 11),
    ]  # fmt: skip
    assert timing.look_after == 5
