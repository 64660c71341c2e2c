"""Several items worked on at once, and results in order."""

import asyncio
from contextlib import aclosing

import pytest

from inferd.schedulers.ensemble_parts.stream import in_order

PATIENCE_S = 30


class Work:
    """Gives back each item when its gate is opened; `started` are the items taken so far."""

    def __init__(self):
        self.started = []
        self.ended = []
        self.gates = {}

    async def __call__(self, item):
        self.started.append(item)
        try:
            await self.gates.setdefault(item, asyncio.Event()).wait()
        finally:
            self.ended.append(item)
        if item == "bad":
            raise ValueError(item)
        return item

    def open(self, *items):
        for item in items:
            self.gates.setdefault(item, asyncio.Event()).set()


async def items_of(*items, log=None):
    try:
        for item in items:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        if log is not None:
            log.append("closed")


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


def run(test):
    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))


def test_results_come_in_the_order_of_the_items():
    async def go():
        work = Work()
        results = in_order(items_of(*"abc"), work, 3)
        first = asyncio.create_task(anext(results))
        await settled()
        assert work.started == ["a", "b", "c"]
        work.open("c", "b")
        await settled()
        assert not first.done()
        work.open("a")
        assert [await first, *[one async for one in results]] == ["a", "b", "c"]

    run(go)


def test_no_more_are_worked_on_than_the_limit():
    async def go():
        work = Work()
        results = in_order(items_of(*"abcd"), work, 2)
        first = asyncio.create_task(anext(results))
        await settled()
        assert work.started == ["a", "b"]
        work.open(*"abcd")
        assert await first == "a"
        await settled()
        assert work.started == ["a", "b"]  # nobody has asked for more than "a" yet
        assert [one async for one in results] == ["b", "c", "d"]

    run(go)


def test_nothing_comes_of_nothing():
    async def go():
        assert [one async for one in in_order(items_of(), Work(), 2)] == []

    run(go)


@pytest.mark.parametrize("items", [("a", "bad", "c"), ("a", ValueError("bad"))])
def test_an_error_comes_after_the_results_before_it(items):
    async def go():
        work = Work()
        work.open("a", "bad")
        results = in_order(items_of(*items), work, 3)
        assert await anext(results) == "a"
        with pytest.raises(ValueError, match="bad"):
            await anext(results)
        assert sorted(work.started) == sorted(work.ended)

    run(go)


def test_who_leaves_ends_all_of_it():
    async def go():
        work, log = Work(), []
        work.open("a")
        async with aclosing(in_order(items_of(*"abcdef", log=log), work, 2)) as results:
            async for _ in results:
                await settled()
                break
        assert work.started == work.ended
        assert log == ["closed"]

    run(go)
