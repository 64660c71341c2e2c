"""A source may fail in any way: the places stay, and it is tried again."""

import asyncio
import logging

import pytest

from inferd.route.metrics import RouteCounts
from inferd.route.place import Place, SourceFailed
from inferd.route.process import follow

A, B = Place("a", "h", 1, 2), Place("b", "h", 1, 2)


class Script:
    """A source that does `steps`, one after the other: places, or an error that it raises."""

    name = "the script"

    def __init__(self, *steps):
        self.steps = list(steps)

    async def follow(self):
        while self.steps:
            step = self.steps.pop(0)
            if isinstance(step, Exception):
                raise step
            yield step
        await asyncio.Event().wait()


def followed(source, count):
    """Return what is taken from `source`, `count` times, and the counts after that."""
    taken, counts = [], RouteCounts()

    async def run():
        done = asyncio.Event()

        def take(places):
            taken.append([one.name for one in places])
            if len(taken) == count:
                done.set()

        following = asyncio.create_task(follow(source, counts, take, first_pause_s=0.001))
        async with asyncio.timeout(30):
            await done.wait()
        following.cancel()

    asyncio.run(run())
    return taken, counts


@pytest.mark.parametrize("error", [SourceFailed("not there"), KeyError("items"), OSError(5, "io")])
def test_after_a_failure_it_is_followed_again(error, caplog):
    caplog.set_level(logging.INFO)
    taken, counts = followed(Script((A,), error, error, (A, B)), 2)
    assert taken == [["a"], ["a", "b"]]
    assert (counts.source_failure_count, counts.is_source_failing) == (2, False)
    assert counts.place_count == 2
    lines = [record for record in caplog.records if "stay as they were" in record.message]
    assert len(lines) == 1
    assert bool(lines[0].exc_info) is not isinstance(error, SourceFailed)
    assert "the script tells its places again" in caplog.text


def test_a_source_that_ends_is_followed_again():
    class Short:
        name = "short"

        async def follow(self):
            yield (A,)

    assert followed(Short(), 3)[0] == [["a"]] * 3
