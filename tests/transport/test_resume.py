"""Coroutines that were begun without a task go on, and end, as they would in one."""

import asyncio

import pytest

from inferd.transport.resume import Later


class Steps:
    """What a coroutine did, in order: `wait` for each of `futures`, None for a bare turn."""

    def __init__(self, *futures):
        self.futures = futures
        self.done = []

    async def run(self):
        try:
            for number, future in enumerate(self.futures):
                if future is None:
                    await asyncio.sleep(0)
                    self.done.append(f"turn {number}")
                else:
                    self.done.append(await future)
            self.done.append("end")
        except asyncio.CancelledError:
            self.done.append("cancelled")
            raise


def future():
    return asyncio.get_running_loop().create_future()


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_never_waits_has_ended_when_it_is_made():
    steps = Steps()
    Later(steps.run()).cancel()
    assert steps.done == ["end"]


async def test_what_waits_once_goes_on_without_a_task():
    steps = Steps(first := future())
    before = asyncio.all_tasks()
    Later(steps.run())
    assert asyncio.all_tasks() == before
    first.set_result("a")
    await turns()
    assert steps.done == ["a", "end"]


@pytest.mark.parametrize("between", [False, True])
async def test_what_waits_again_goes_to_its_end(between):
    first, second = future(), future()
    steps = Steps(None, first, None, second) if between else Steps(first, second)
    later = Later(steps.run())
    await turns()
    first.set_result("a")
    await turns()
    second.set_result("b")
    await turns()
    assert [step for step in steps.done if "turn" not in step] == ["a", "b", "end"]
    later.cancel()  # nobody is there any more


async def test_an_error_is_raised_where_it_is_waited_for():
    seen = []

    async def run():
        try:
            await first
        except ValueError as error:
            seen.append(str(error))

    first = future()
    Later(run())
    first.set_exception(ValueError("no"))
    await turns()
    assert seen == ["no"]


@pytest.mark.parametrize("done", [0, 1])
async def test_cancelling_cancels_what_is_waited_for(done):
    futures = [future(), future()]
    steps = Steps(*futures)
    later = Later(steps.run())
    for one in futures[:done]:
        one.set_result("a")
    await turns()
    later.cancel()
    await turns()
    assert steps.done == ["a"] * done + ["cancelled"]
    assert futures[done].cancelled()


async def test_cancelling_comes_before_an_answer_that_is_there_already():
    steps = Steps(first := future())
    later = Later(steps.run())
    first.set_result("a")
    later.cancel()
    await turns()
    assert steps.done == ["cancelled"]


async def test_a_failure_is_told_to_the_event_loop():
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    first = future()

    async def run():
        await first
        raise ValueError

    Later(run())
    first.set_result(None)
    await turns()
    assert isinstance(told[0]["exception"], ValueError)
