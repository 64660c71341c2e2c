"""CachingScheduler before a scheduler of the tests: what runs, what is kept, what is counted."""

import asyncio
import functools

import numpy as np
import pytest

from inferd.cache.local import ENTRY_BYTES, LocalStore
from inferd.cache.scheduler import INLINE_BYTES, CachingScheduler
from inferd.core.request import InferResponse, Sequence, Span, WantedOutput
from inferd.errors import BackendFailed, Unavailable
from inferd.observe.statistics import Duration
from inferd.observe.stats import Counts

PATIENCE_S = 30
ROOM = 1 << 20


def run(test):
    """Return `test`, a coroutine function, as one pytest can run; fixtures come as arguments."""

    @functools.wraps(test)
    def runner(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return runner


class Ticks:
    """A clock that goes on by a microsecond each time somebody looks."""

    def __init__(self):
        self.now_ns = 0

    def __call__(self):
        self.now_ns += 1000
        return self.now_ns


class Doubling:
    """A scheduler whose model doubles its input; `seen` are the requests that ran."""

    def __init__(self, clock, tensor):
        self.seen = []
        self.error = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.came = asyncio.Event()
        self.closed_after_s = None
        self.pending_count = 7
        self._clock = clock
        self._tensor = tensor

    async def run(self, request):
        self.seen.append(request)
        self.came.set()
        self.places = [one.place for one in request.outputs]
        request.started_ns = self._clock()
        await self.may_answer.wait()
        request.ended_ns = self._clock()
        if self.error:
            raise self.error
        doubled = self._tensor(2 * request.inputs[0].numpy(), "Y")
        return InferResponse("m", "1", outputs=[doubled])

    async def close(self, timeout_s):
        self.closed_after_s = timeout_s


class Model:
    """What a test has of one cached model."""

    def __init__(self, tensor, size_bytes=ROOM, store=None):
        self.counts = Counts(Ticks())
        self.inner = Doubling(self.counts.clock, tensor)
        self.store = store or LocalStore(size_bytes)
        self.identity = b"first"
        self.misfit = None
        self.scheduler = CachingScheduler(
            self.inner, self.store, lambda: self.identity, self.check, self.counts
        )

    def check(self, request, response):
        if self.misfit:
            raise self.misfit

    async def ask(self, request):
        """Ask as the engine does; return the one output's values."""
        try:
            response = await self.scheduler.run(request)
        except BaseException as error:
            self.counts.add_failure(request, error)
            raise
        self.counts.add_success(request)
        return response.outputs[0].numpy().tolist()

    def told(self):
        return self.counts.statistics("m", "1")


@pytest.fixture
def model(tensor):
    """model(...) is made in the event loop of the test."""
    return lambda *args, **kwargs: Model(tensor, *args, **kwargs)


@run
async def test_the_second_time_the_answer_is_there(model, ask):
    it = model()
    assert await it.ask(ask()) == await it.ask(ask()) == [2, 4]
    assert len(it.inner.seen) == 1
    assert await it.ask(ask([3, 4])) == [6, 8]
    assert len(it.inner.seen) == 2


@run
async def test_hits_are_successes_without_an_execution(model, ask):
    it = model()
    for _ in range(3):
        await it.ask(ask(batch_size=4))
    stats = it.told().inference_stats
    assert (it.told().inference_count, it.told().execution_count) == (4, 1)
    assert stats.compute_infer.count == 1
    assert stats.success.count == stats.queue.count == 3
    assert stats.queue.ns == 0
    assert (stats.cache_hit.count, stats.cache_miss.count) == (2, 1)
    assert stats.success.ns == sum(
        part.ns for part in (stats.compute_infer, stats.cache_hit, stats.cache_miss)
    )


@run
async def test_a_miss_costs_the_looking_and_the_keeping(model, ask):
    it = model()
    await it.ask(ask())
    assert it.told().inference_stats.cache_miss == Duration(1, 2000)
    assert it.told().inference_stats.cache_hit == Duration(0, 0)
    assert (it.store.counts.lookup_ns, it.store.counts.insertion_ns) == (1000, 1000)


@run
async def test_an_error_is_not_kept(model, ask):
    it = model()
    it.inner.error = Unavailable("not now")
    for _ in range(2):
        with pytest.raises(Unavailable):
            await it.ask(ask())
    it.inner.error = None
    assert await it.ask(ask()) == [2, 4]
    stats = it.told().inference_stats
    assert (stats.fail.count, stats.success.count, stats.cache_miss.count) == (2, 1, 3)
    of_success_ns = 2000  # for looking and keeping; those that failed looked as well
    assert stats.cache_miss.ns == of_success_ns + 2 * 1000
    assert stats.success.ns == stats.compute_infer.ns + of_success_ns


@run
async def test_what_breaks_the_models_configuration_is_not_kept(model, ask):
    it = model()
    it.misfit = BackendFailed("that is no output of mine")
    with pytest.raises(BackendFailed):
        await it.ask(ask())
    it.misfit = None
    assert await it.ask(ask()) == [2, 4]
    assert len(it.inner.seen) == 2


@run
async def test_a_request_that_is_given_up_leaves_nothing(model, ask):
    it = model()
    it.inner.may_answer.clear()
    asking = asyncio.create_task(it.ask(ask()))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(it.store.entries) == 0
    assert it.told().inference_stats.cache_miss.count == 1


@run
async def test_the_same_request_may_run_twice_at_once(model, ask):
    it = model()
    it.inner.may_answer.clear()
    both = [asyncio.create_task(it.ask(ask())) for _ in range(2)]
    await asyncio.sleep(0)
    it.inner.may_answer.set()
    assert await asyncio.gather(*both) == [[2, 4], [2, 4]]
    assert len(it.inner.seen) == 2
    assert len(it.store.entries) == 1


@run
async def test_flags_without_a_sequence_are_a_part_of_the_question(model, ask):
    it = model()
    for start in (True, True, False):
        await it.ask(ask(sequence=Sequence(0, start, end=True)))
    assert len(it.inner.seen) == 2
    assert len(it.store.entries) == 2


@run
async def test_requests_of_a_sequence_go_past_the_cache(model, ask):
    it = model()
    for _ in range(2):
        await it.ask(ask(sequence=Sequence(5)))
    assert len(it.inner.seen) == 2
    assert len(it.store.entries) == 0
    stats = it.told().inference_stats
    assert stats.cache_hit.count == stats.cache_miss.count == 0


@run
async def test_what_has_no_key_goes_past_the_cache(model, ask):
    it = model()
    for _ in range(2):
        await it.ask(ask(parameters={"a": "\ud800"}))
    assert len(it.inner.seen) == 2


@run
async def test_while_nobody_knows_what_answers_nothing_is_looked_up(model, ask):
    it = model()
    await it.ask(ask())
    it.identity = None
    await it.ask(ask())
    assert len(it.inner.seen) == 2


@run
async def test_another_model_behind_it_answers_anew(model, ask):
    it = model()
    await it.ask(ask())
    it.identity = b"second"
    await it.ask(ask())
    assert len(it.inner.seen) == 2


@run
async def test_an_answer_is_not_kept_when_the_model_changed_while_it_ran(model, ask):
    it = model()
    it.inner.may_answer.clear()
    asking = asyncio.create_task(it.ask(ask()))
    await asyncio.sleep(0)
    it.identity = b"second"
    it.inner.may_answer.set()
    assert await asking == [2, 4]
    assert len(it.store.entries) == 0


@run
async def test_an_answer_that_comes_after_the_end_is_given_and_not_kept(model, ask):
    it = model()
    it.inner.may_answer.clear()
    asking = asyncio.create_task(it.ask(ask()))
    await asyncio.sleep(0)
    await it.scheduler.close(5)
    it.inner.may_answer.set()
    assert await asking == [2, 4]
    assert len(it.store.entries) == 0
    await it.ask(ask())  # the scheduler behind it decides what happens to those who are late
    assert len(it.inner.seen) == 2


@run
async def test_the_scheduler_behind_it_is_told_to_hurry_if_it_can(model, ask):
    it, hurried = model(), []
    it.scheduler.hurry()
    it.inner.hurry = lambda: hurried.append(True)
    it.inner.stream = it.inner.run
    it.scheduler.hurry()
    assert hurried == [True]


@run
async def test_the_end_empties_the_shelf_and_ends_the_scheduler(model, ask):
    it = model()
    await it.ask(ask())
    assert it.scheduler.pending_count == 7
    await it.scheduler.close(5)
    assert (len(it.store.entries), it.inner.closed_after_s) == (0, 5)


@run
async def test_two_models_share_the_room_and_not_the_answers(model, ask):
    one = model()
    other = model(store=one.store)
    await one.ask(ask())
    await other.ask(ask())
    assert len(one.inner.seen) == len(other.inner.seen) == 1
    assert len(one.store.entries) == 2
    await one.scheduler.close(0)
    assert len(one.store.entries) == 1


@run
async def test_a_stream_of_the_one_answer_is_kept_as_well(model, ask):
    it = model()
    for _ in range(2):
        [answer] = [one async for one in it.scheduler.stream(ask())]
        assert answer.outputs[0].numpy().tolist() == [2, 4]
    assert len(it.inner.seen) == 1


@run
async def test_large_requests_and_answers_are_kept_too(model, ask):
    it = model(64 << 20)
    values = np.arange(INLINE_BYTES)
    for _ in range(2):
        assert await it.ask(ask(values)) == (2 * values).tolist()
    assert len(it.inner.seen) == 1
    assert it.store.used_bytes > 4 * INLINE_BYTES


@run
async def test_an_answer_larger_than_the_cache_is_given_and_not_kept(model, ask):
    it = model(ENTRY_BYTES + 100)
    for _ in range(2):
        assert await it.ask(ask(range(100))) == list(range(0, 200, 2))
    assert len(it.inner.seen) == 2
    assert it.told().inference_stats.cache_miss.count == 2


@run
async def test_a_changed_answer_changes_nothing_that_is_kept(model, ask):
    it = model()
    response = await it.scheduler.run(ask())
    response.outputs[0].data[:] = 0
    assert await it.ask(ask()) == [2, 4]


class Torn(LocalStore):
    """Gives back one byte less than it was given."""

    def shelf(self):
        shelf = super().shelf()
        find = shelf.find

        async def torn(key):
            packed = await find(key)
            return packed and packed[:-1]

        shelf.find = torn
        return shelf


@run
async def test_a_kept_answer_that_cannot_be_read_is_a_miss(model, ask, caplog):
    it = model(store=Torn(ROOM))
    for _ in range(2):
        assert await it.ask(ask()) == [2, 4]
    assert len(it.inner.seen) == 2
    assert "kept answer" in caplog.text


class Place(Span):
    """A span of shared memory, into which the cache does not look."""

    def __init__(self):
        super().__init__(memoryview(b""), ((0,), 0, 0), None)


@run
async def test_inputs_that_their_client_can_change_are_copied_first(model, ask):
    it = model()
    it.inner.may_answer.clear()
    request = ask(spans=[Place()])
    shared = request.inputs[0].data
    asking = asyncio.create_task(it.ask(request))
    await it.inner.came.wait()
    shared[:] = 100  # after it was looked at, before it runs
    it.inner.may_answer.set()
    assert await asking == [2, 4]
    assert await it.ask(ask()) == [2, 4]
    assert len(it.inner.seen) == 1


@run
async def test_nothing_that_is_kept_is_first_written_where_its_client_can_write(model, ask):
    it = model()
    place = Place()
    request = ask(spans=[place], outputs=[WantedOutput("Y", None, 0, place)])
    await it.ask(request)
    assert it.inner.places == [None]
    assert request.outputs[0].place is place
