"""What a model says of itself, and how long anybody waits for that."""

import asyncio

import pytest

from inferd.backends.worker.readiness import Readiness

PATIENCE_S = 60.0


class Scene:
    """A model that is asked; `asked_count` is how often."""

    def __init__(self, **limits):
        self.asked_count = 0
        self.readiness = Readiness(self._ask, **({"idle_s": PATIENCE_S} | limits))

    def _ask(self):
        self.asked_count += 1

    async def ask(self, *answers, is_busy=False):
        """Ask once for each of `answers`, or once; all of these are given at the same time."""
        asking = [
            asyncio.ensure_future(self.readiness.ask(is_busy=is_busy)) for _ in answers or (None,)
        ]
        await asyncio.sleep(0)
        for answer in answers[:1]:
            self.readiness.say(is_ready=answer)
        return await asyncio.gather(*asking)


@pytest.mark.parametrize("is_busy", [True, False])
def test_what_the_model_says_is_told(is_busy):
    scene = Scene(busy_s=PATIENCE_S)

    async def play():
        assert await scene.ask(False, is_busy=is_busy) == [False]
        assert await scene.ask(True, is_busy=is_busy) == [True]

    asyncio.run(play())
    assert scene.asked_count == 2


def test_those_who_ask_at_the_same_time_are_told_the_same():
    scene = Scene()
    assert asyncio.run(scene.ask(False, False, False)) == [False] * 3
    assert scene.asked_count == 1


def test_an_idle_model_that_says_nothing_is_not_ready_until_it_says_so():
    scene = Scene(idle_s=0.001, busy_s=0.001)

    async def play():
        assert await scene.ask() == [False]
        assert await scene.ask(is_busy=True) == [False]
        scene.readiness.say(is_ready=True)
        assert await scene.ask(is_busy=True) == [True]

    asyncio.run(play())


@pytest.mark.parametrize("before", [True, False])
def test_of_a_model_that_executes_what_it_said_last_holds(before):
    scene = Scene(busy_s=0.001)

    async def play():
        await scene.ask(before)
        assert await scene.ask(is_busy=True) == [before]

    asyncio.run(play())
