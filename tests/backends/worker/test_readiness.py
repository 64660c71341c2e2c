"""What a model says of itself, and how long anybody waits for that."""

import asyncio
import selectors

import pytest

from inferd.backends.worker.readiness import Readiness

PATIENCE_S = 60.0


class Passing(selectors.DefaultSelector):
    """Lets time pass instead of waiting."""

    now_s = 0.0

    def select(self, timeout=None):
        self.now_s += timeout or 0.0
        return super().select(0)


class PassingLoop(asyncio.SelectorEventLoop):
    """An event loop where nobody waits for anything but time, of which none is lost."""

    def __init__(self):
        self._passing = Passing()
        super().__init__(self._passing)

    def time(self):
        return self._passing.now_s


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


def test_an_idle_model_that_says_nothing_is_asked_again_ever_less_often():
    scene = Scene(idle_s=5.0)
    counts = []

    async def play():
        for _ in range(8):  # each for five seconds
            assert await scene.ask() == [False]
            counts.append(scene.asked_count)
        assert await scene.ask(True) == [True]
        assert await scene.ask() == [False]

    with asyncio.Runner(loop_factory=PassingLoop) as runner:
        runner.run(play())
    assert counts == [1, 2, 2, 3, 3, 3, 3, 4]
    assert scene.asked_count == 5


def test_a_model_is_not_asked_again_before_its_time_nor_while_it_executes():
    scene = Scene(busy_s=0.001)

    async def play():
        for _ in range(3):
            assert await scene.ask(is_busy=True) == [True]
        assert await scene.ask(False) == [False]

    asyncio.run(play())
    assert scene.asked_count == 1


@pytest.mark.parametrize("before", [True, False])
def test_of_a_model_that_executes_what_it_said_last_holds(before):
    scene = Scene(busy_s=0.001)

    async def play():
        await scene.ask(before)
        assert await scene.ask(is_busy=True) == [before]

    asyncio.run(play())
