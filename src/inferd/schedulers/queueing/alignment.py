"""Where batches should end, so that each one lies in one block (memory.batch_memory)."""

from collections.abc import Iterable

from inferd.schedulers.queueing.queue import Waiting


def realigned(queue: Iterable[Waiting], count: int) -> int:
    """Return how many of the first `count` requests come before the first slot of another block.

    Return `count` if there is none, or if they begin with a block themselves.
    """
    requests = iter(queue)
    first = next(requests).request.slot
    if first is None or not first.index:
        return count
    for number in range(1, count):
        slot = next(requests).request.slot
        if slot is None or slot.index or slot.block is None:
            continue
        if slot.block is not first.block:
            return number
    return count
