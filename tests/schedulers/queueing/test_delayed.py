from inferd.config.model import DynamicBatching
from inferd.core.request import InferRequest
from inferd.schedulers.queueing.delayed import HeldPace
from inferd.schedulers.queueing.queue import RequestQueue, Waiting
from inferd.schedulers.queueing.timing import FixedPace


class Told(FixedPace):
    """Notes what it is told."""

    def __init__(self):
        super().__init__(8, (), 0)
        self.calls = []
        self.look_after = 5

    def came(self, *said):
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
    pace = HeldPace(FixedPace(2, (), 0), 3)
    for now_ns in (1, 2):
        queue.add(Waiting(InferRequest("m"), None, None), now_ns)
        assert pace.choose(queue, now_ns) == (0, 0)
        assert not pace.starts_at_once
        assert pace.enough == 0
    queue.add(Waiting(InferRequest("m"), None, None), 3)
    assert pace.choose(queue, 3) == (2, 0)
    assert pace.starts_at_once
    assert pace.enough == 2
    queue.take(2)
    assert pace.choose(queue, 4) == (1, 0)


def test_the_pace_behind_it_is_told_everything():
    inner = Told()
    pace = HeldPace(inner, 3)
    pace.came(1)
    pace.started(2)
    pace.ended(3, 4, 5)
    pace.ran(6, 7, 8)
    pace.looked(9, 10)
    pace.resized(11)
    assert inner.calls == [
        ("came", 1), ("started", 2), ("ended", 3, 4, 5), ("ran", 6, 7, 8), ("looked", 9, 10),
        ("resized", 11),
    ]  # fmt: skip
    assert pace.look_after == 5
