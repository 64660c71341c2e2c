"""Run the steps of an ensemble in which several can run at once."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from inferd.schedulers.ensemble_parts.plan import Step, StepOrder

# As long as a run on the loop may take before its model goes to the threads (execution.promotion).
BREATH_NS = 1_000_000
"""After steps that took this long together, the event loop gets a turn."""


async def run_side_by_side(
    steps: Sequence[Step],
    run_step: Callable[[Step], Coroutine[object, None, None]],
    clock: Callable[[], int],
) -> None:
    """Run `steps`, each as soon as it can; the first failure ends all of them."""
    order = StepOrder(steps)
    ready = order.first
    since_ns = clock()
    running: dict[asyncio.Task[None], Step] = {}
    ended: asyncio.Queue[asyncio.Task[None]] = asyncio.Queue()
    try:
        while ready or running:
            # No task for one step: that is what a chain of small models costs most.
            if len(ready) == 1 and not running:
                [step] = ready
                await run_step(step)
                ready = order.after(step)
                if (now_ns := clock()) - since_ns > BREATH_NS:
                    await asyncio.sleep(0)
                    since_ns = now_ns
                continue
            for step in ready:
                task = asyncio.create_task(run_step(step))
                # asyncio.wait would look at all running tasks each time one ends.
                task.add_done_callback(ended.put_nowait)
                running[task] = step
            task = await ended.get()
            await task
            ready = order.after(running.pop(task))
    finally:
        if running:
            for task in running:
                task.cancel()
            # Cancelled steps still use tensors of the run until they have noticed.
            await asyncio.gather(*running, return_exceptions=True)
