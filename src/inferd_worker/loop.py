"""Loop: serves a model whose execute is a coroutine function, on an event loop.

This module is not compiled: the awaitables have to be the interpreter's own coroutines.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from threading import get_ident
from typing import TYPE_CHECKING, Any

from . import packet
from .model import ask_async
from .pb_utils.calls import executing

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from .open import OpenRequest
    from .pb_utils.request import InferenceRequest
    from .worker import Worker


async def serve(worker: Worker) -> None:
    """Execute all batches that come to `worker`, concurrently, until the end."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()
    looking = 0  # the thread of the loop, while it reads the socket itself
    worker.calls.loop = loop

    def begin(job: Coroutine[object, None, None]) -> None:
        task = loop.create_task(job)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def wake() -> None:
        nonlocal looking
        looking = get_ident()
        worker.line.look()
        looking = 0
        while worker.inbox:
            begin(_execute(worker, *worker.take()))
        if worker.is_ready_wanted:
            worker.is_ready_wanted = False
            begin(_say_ready(worker))
        if worker.is_ending or worker.line.is_closed:
            ended.set()

    def on_news() -> None:
        # Another reader of the socket, such as a call by the model, may read a packet meant for
        # the loop, which then finds nothing in the socket to wake it up.
        if looking != get_ident():
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(wake)

    worker.on_news = on_news
    loop.add_reader(worker.line.fileno(), wake)
    wake()  # a batch may have come with the first packet
    await ended.wait()
    worker.on_news = None
    loop.remove_reader(worker.line.fileno())
    for task in tasks:
        task.cancel()


async def _say_ready(worker: Worker) -> None:
    worker.say_ready(await ask_async(worker.model))


async def _execute(
    worker: Worker, batch: int, opens: list[OpenRequest], requests: list[InferenceRequest]
) -> None:
    executing.set(batch if len(opens) == 1 else 0)
    began_ns = time.perf_counter_ns()
    if worker.outbox.is_decoupled:  # let the server send the next batch
        worker.line.send(packet.RESULT, ((),), None, (batch, began_ns, began_ns))
        batch = 0
    returned: list[Any] = []
    failed = ""
    try:
        returned.append(await worker.model.execute(requests))
    # SystemExit and KeyboardInterrupt of a model, too, are answers to its requests.
    except BaseException as error:  # noqa: BLE001
        failed = worker.error_text(error)
    ended_ns = time.perf_counter_ns()
    worker.settle(batch, (began_ns, ended_ns), opens, requests, returned, failed)
