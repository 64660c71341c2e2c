"""Work on what comes one after the other, several at once, and hand out the results in order."""

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
    """Yield what `work` makes of each of `items`, in their order.

    At most `limit` items have been taken whose result has not been used up. An error of an item
    or of `items` comes in its place, after the results before it. Closing this ends all of it.
    """
    free = asyncio.Semaphore(limit)
    tasks: deque[asyncio.Task[_Result]] = deque()
    news = asyncio.Event()

    async def take() -> None:
        try:
            async with aclosing(items):
                await free.acquire()
                async for item in items:
                    tasks.append(asyncio.create_task(work(item)))
                    news.set()
                    await free.acquire()
        finally:
            news.set()

    taker = asyncio.create_task(take())
    try:
        while True:
            await news.wait()
            news.clear()
            while tasks:
                result = await tasks[0]
                yield result
                tasks.popleft()
                free.release()
            if taker.done():
                await taker
                return
    finally:
        taker.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(taker, *tasks, return_exceptions=True)
