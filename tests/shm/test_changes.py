import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from inferd.errors import InvalidRequest
from inferd.shm.changes import Changes
from inferd.shm.regions import Regions
from inferd.shm.system import SystemRegion

PATIENCE_S = 10
MOST_NOTICES = Path("/proc/sys/fs/inotify/max_queued_events")


@pytest.fixture
def changes():
    made = Changes()
    yield made
    made.close()


def run(scenario):
    """Run the coroutine function `scenario` to its end, on a loop of its own."""
    asyncio.run(asyncio.wait_for(scenario(), 30))


def made_sure(region):
    """Look at the region as a request does; return what tells whether the next one must."""
    span = region.span(0, 4)
    span.look()
    assert not span.region.is_unsure
    return span.region


async def doubted(*mappings):
    """Wait until all of `mappings` are to be looked at again."""
    deadline = time.monotonic() + PATIENCE_S
    while not all(one.is_unsure for one in mappings):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def test_what_is_written_into_memory_is_no_change(changes, shared):
    async def scenario():
        given, other = shared(), shared()
        quiet = made_sure(SystemRegion("r", given.key, 0, 4096, changes))
        loud = made_sure(SystemRegion("s", other.key, 0, 4096, changes))
        given.memory[:4] = b"more"
        other.resize(8192)
        await doubted(loud)
        assert not quiet.is_unsure

    run(scenario)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda given, _: given.remove(), "has been removed"),
        (lambda given, other: other.path.replace(given.path), "has been removed"),
        (lambda given, _: given.resize(100), "has shrunk to 100 bytes"),
    ],
    ids=["removed", "replaced", "truncated"],
)
def test_what_changed_is_told_to_each_request(changes, shared, change, text):
    async def scenario():
        given = shared()
        region = SystemRegion("r", given.key, 0, 4096, changes)
        mapping = made_sure(region)
        change(given, shared())
        await doubted(mapping)
        for _ in range(2):
            with pytest.raises(InvalidRequest, match=text):
                region.span(0, 4).look()

    run(scenario)


def test_an_object_that_has_grown_again_is_looked_at_once_more_and_no_further(changes, shared):
    async def scenario():
        given = shared()
        region = SystemRegion("r", given.key, 0, 4096, changes)
        mapping = made_sure(region)
        for size in (100, 4096):
            given.resize(size)
        await doubted(mapping)
        made_sure(region)

    run(scenario)


def test_regions_of_one_object_are_all_told(changes, shared):
    async def scenario():
        given = shared()
        regions = [SystemRegion(name, given.key, 0, 4096, changes) for name in "ab"]
        mappings = [made_sure(one) for one in regions]
        given.resize(100)
        await doubted(*mappings)

    run(scenario)


def test_notices_there_was_no_room_for_make_everything_unsure(changes, shared):
    most = int(MOST_NOTICES.read_text())

    async def scenario():
        names = [shared(), shared(), shared()]
        *noisy, quiet = [
            made_sure(SystemRegion(str(index), one.key, 0, 4096, changes))
            for index, one in enumerate(names)
        ]
        for index in range(most + 2):  # by turns, for two alike in a row are one
            os.utime(names[index % 2].path)
        await doubted(*noisy, quiet)

    run(scenario)


def test_without_an_event_loop_each_request_looks(changes, shared):
    region = SystemRegion("r", shared().key, 0, 4096, changes)
    region.span(0, 4).look()
    assert region.span(0, 4).region.is_unsure


def test_what_the_system_will_not_watch_is_looked_at_by_each_request(changes, shared):
    async def scenario():
        made_sure(SystemRegion("a", shared().key, 0, 4096, changes))  # here it does
        region = SystemRegion("b", shared().key, 0, 4096)
        assert not changes.watch(-1, region.span(0, 4).region)
        region.span(0, 4).look()
        assert region.span(0, 4).region.is_unsure

    run(scenario)


def test_regions_that_are_gone_are_watched_no_longer(shared):
    async def scenario():
        regions = Regions(allowed=True, find_driver=lambda: None)
        regions.register_system("a", shared().key, 0, 64)
        regions.register_system("b", shared().key, 0, 64)
        assert _watch_count() == 2
        regions.unregister(SystemRegion, "a")
        assert _watch_count() == 1
        regions.close()
        assert _watch_count() == 0

    run(scenario)


def _watch_count():
    """How many files this process watches."""
    count = 0
    for file in Path("/proc/self/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # the folder's own, which is open while it is listed
            count += file.read_text().count("inotify wd:")
    return count
