from inferd.config.model import DynamicBatching
from inferd.core.request import InferRequest
from inferd.schedulers.queueing.queue import RequestQueue, Waiting
from inferd.schedulers.queueing.timing import DelayedTiming


def test_nothing_is_chosen_before_so_many_wait_and_then_as_ever():
    queue = RequestQueue("m", DynamicBatching())
    timing = DelayedTiming(2, (), 0, 3)
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
