import asyncio
import signal

import pytest

from inferd.aio.signals import catch_signal


class NoHandlers(asyncio.SelectorEventLoop):
    """An event loop as on Windows."""

    def add_signal_handler(self, *_):
        raise NotImplementedError


@pytest.fixture
def handler():
    """The handler of SIGUSR1 before a test, which has it again after."""
    before = signal.getsignal(signal.SIGUSR1)
    yield before
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("make", [asyncio.SelectorEventLoop, NoHandlers])
def test_the_loop_is_told_of_a_signal_with_or_without_handlers_of_its_own(make, handler):
    async def wait():
        heard = asyncio.Queue()
        catch_signal(asyncio.get_running_loop(), "SIGUSR1", heard.put_nowait, "it")
        signal.raise_signal(signal.SIGUSR1)
        return await asyncio.wait_for(heard.get(), 30)

    with asyncio.Runner(loop_factory=make) as runner:
        assert runner.run(wait()) == "it"


def test_a_signal_that_the_system_does_not_have_is_never_heard_of():
    loop = asyncio.new_event_loop()
    catch_signal(loop, "SIGNOTHING", loop.stop)
    loop.close()
