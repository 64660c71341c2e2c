"""Process the items of a stream several at a time, and yield the results in order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


async def in_order(
    items: AsyncGenerator[_Item, None],
    work: Callable[[_Item], Coroutine[object, object, _Result]],
    limit: int,
) -> AsyncGenerator[_Result, None]:
    """Yield the result of `work` for each of `items`, in order.

    At most `limit` items are taken before their results are consumed. An error of `work` or of
    `items` is raised in its place, after the results before it. Closing the generator ends it all.
    """
    # Released by the reader's progress, not by the work's end: results that nobody takes are
    # memory.
    free = asyncio.Semaphore(limit)
    tasks: deque[asyncio.Task[_Result]] = deque()
    news = asyncio.Event()

    async def take() -> None:
        try:
            async with aclosing(items):
                # Before each item is asked for, so that a decoupled model is not made to answer
                # ahead of its reader.
                await free.acquire()
                async for item in items:
                    tasks.append(asyncio.create_task(work(item)))
                    news.set()
                    await free.acquire()
        finally:
            # Also at the end and after an error, or the reader would wait for news for ever.
            news.set()

    taker = asyncio.create_task(take())
    try:
        while True:
            await news.wait()
            news.clear()
            while tasks:
                result = await tasks[0]
                yield result
                # After the yield: a generator that is closed there still has the task in its list,
                # and ends it.
                tasks.popleft()
                free.release()
            if taker.done():
                # Raises what the items raised, after all results before it.
                await taker
                return
    finally:
        taker.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(taker, *tasks, return_exceptions=True)
