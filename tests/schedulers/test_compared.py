"""Models of which nobody knows whether they keep rows apart: what their clients get, and when."""

import asyncio
import logging
import re
from dataclasses import replace

import numpy as np
import pytest
from simulation import MS, SimulatedExecution, SimulatedTimer, now_ms, passes, simulate

from inferd.config.model import DynamicBatching, ModelConfig, ModelInput
from inferd.core.request import InferRequest, InferResponse
from inferd.core.rows import Joining
from inferd.errors import BackendFailed, InferdError, Unavailable
from inferd.observe.stats import Counts
from inferd.schedulers.compared import EVERY, WANTED, ComparedScheduler, sizes_up_to
from inferd.schedulers.dynamic import DynamicScheduler
from inferd.schedulers.execution.batch import BatchPlan
from inferd.schedulers.queueing.queue import RequestQueue
from inferd.schedulers.queueing.timing import FixedTiming
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

CLIENTS = 12
X = ModelInput("X", DataType.FP32, (3,))


class Model(SimulatedExecution):
    """Computes `rows(array)` of all rows of an execution; notes what is joined for clients."""

    def __init__(self, rows, takes_ms=1, count=1):
        super().__init__(count, takes_ms)
        self.rows = rows
        self.outcome = self.compute
        self.joining = None
        self.sizes = set()  # in rows, of runs for comparisons
        self.spent_ms = self.beside_ms = 0

    def start(self, requests, finish, wanted=None):
        took_ms = self.takes_ms(requests)
        self.spent_ms += took_ms
        if self.started is self.uncounted:
            self.beside_ms += took_ms
            self.sizes.add(sum(request.batch_size for request in requests))
        else:
            assert len(requests) == 1 or self.joining.state == "joined"

        def finished(outcome):
            if len(requests) > 1:
                for request in requests:
                    request.shared = True
            finish(outcome)

        super().start(requests, finished)

    def compute(self, requests):
        arrays = [request.inputs[0].numpy() for request in requests]
        try:
            result = self.rows(np.concatenate(arrays))
        except InferdError as error:
            return error
        ends = np.cumsum([len(array) for array in arrays])[:-1]
        return [
            InferResponse("m", "1", request.id, [Tensor.from_numpy("Y", part, DataType.FP32)])
            for request, part in zip(requests, np.split(result, ends), strict=True)
        ]


class Scene:
    """A model that is compared, and clients that send it values of their own."""

    def __init__(self, model, most=4, given=X, wanted=300):
        self.model = model
        config = ModelConfig("m", max_batch_size=most, input=(given,))
        plan = BatchPlan(config)
        queue = RequestQueue("m", DynamicBatching())
        inner = DynamicScheduler(model, queue, FixedTiming(1, (), 0), plan, timer=SimulatedTimer)
        inner.run_alone()
        self.joining, self.counts = Joining("compared", "it does not tell"), Counts()
        model.joining = self.joining
        self.scheduler = ComparedScheduler(inner, plan, self.joining, self.counts, wanted=wanted)
        self.random = np.random.default_rng(7)
        self.wrong = self.sent = 0
        self.longest_ms = 0

    async def ask(self, array, expected):
        request = InferRequest(
            "m", inputs=[Tensor.from_numpy("X", array, DataType.FP32)], batch_size=len(array)
        )
        began_ms = now_ms()
        answer = await self.scheduler.run(request)
        self.longest_ms = max(self.longest_ms, now_ms() - began_ms)
        self.sent += 1
        self.wrong += not np.array_equal(answer.outputs[0].numpy(), expected, equal_nan=True)

    async def client(self, until, values=None, alone=np.negative):
        while not until():
            array = self.random.normal(size=(1, 3)) if values is None else values
            array = array.astype(np.float32)
            await self.ask(array, alone(array))

    async def clients(self, until, count=CLIENTS, **more):
        await asyncio.gather(*(self.client(until, **more) for _ in range(count)))

    def is_decided(self):
        return self.joining.state != "compared"

    def after(self, count):
        """Return whether so many more requests were answered, as something to call."""
        end = self.sent + count
        return lambda: self.sent >= end


def play(model, act, **more):
    async def serve():
        scene = Scene(model, **more)
        await act(scene)
        await scene.scheduler.close(1)
        return scene

    return simulate(serve)


# --- models whose rows are independent ---


@pytest.mark.slow
def test_a_model_that_keeps_rows_apart_is_joined_after_so_many_comparisons(caplog):
    async def act(scene):
        await scene.clients(scene.is_decided)
        assert scene.joining.state == "joined"
        assert WANTED <= scene.counts.comparison_count <= WANTED + 4
        assert scene.model.sizes == {2, 3, 4}
        before = len(scene.model.started)
        await scene.clients(scene.after(2000))
        assert max(len(ids) for _, ids in scene.model.started[before:]) == 4

    caplog.set_level(logging.INFO)
    scene = play(Model(np.negative), act, wanted=WANTED)
    assert scene.wrong == scene.counts.disagreement_count == 0
    end = (
        r"it does not tell, but 300\d answers were the same alone and joined, in batches of up to 4"
    )
    assert re.fullmatch(end, scene.joining.reason)
    [record] = caplog.records
    assert record.message == f"model 'm': requests are joined: {scene.joining.reason}"


def test_comparisons_take_an_eighth_of_the_time_and_clients_wait_for_one_at_most():
    async def act(scene):
        await scene.clients(scene.after(1500))

    model = Model(np.negative, takes_ms=len)
    scene = play(model, act)
    assert scene.joining.state == "compared"
    assert 0.1 < model.beside_ms / (model.spent_ms - model.beside_ms) <= 1 / 8
    assert scene.longest_ms < CLIENTS + 5


def test_a_slow_model_is_compared_in_runs_of_two():
    async def act(scene):
        await scene.clients(scene.after(300))

    model = Model(np.negative, takes_ms=lambda requests: 900 * len(requests))
    play(model, act, most=64)
    assert model.sizes == {2}
    assert model.beside_ms / (model.spent_ms - model.beside_ms) <= 1 / 8


def test_nothing_is_compared_for_a_lone_client():
    async def act(scene):
        await scene.clients(scene.after(300), count=1)

    scene = play(Model(np.negative), act)
    assert scene.counts.comparison_count == 0
    assert not scene.model.uncounted


def test_equal_requests_prove_nothing():
    async def act(scene):
        await scene.clients(scene.after(1000), values=np.ones((1, 3)))

    scene = play(Model(np.negative), act)
    assert scene.counts.comparison_count == 0


def test_large_batches_are_made_of_no_more_rows_than_were_compared():
    assert list(sizes_up_to(2)) == [2]
    assert list(sizes_up_to(4)) == [2, 3, 4]
    assert list(sizes_up_to(6)) == [2, 3, 4, 6]
    assert list(sizes_up_to(64)) == [2, 3, 4, 8, 16, 32, 64]

    async def act(scene):
        await scene.clients(scene.after(6000))

    model = Model(np.negative)
    play(model, act, most=1000, wanted=10_000)
    assert {2, 3, 4, 8, 16, 32, 64} <= model.sizes
    assert max(model.sizes) == 64


def test_requests_of_other_shapes_are_compared_among_themselves():
    widths = set()

    def rows(array):
        widths.add(array.shape[1])
        return -array

    async def act(scene):
        until = scene.after(2000)
        shapes = [(1, 2), (1, 5), (2, 5)]
        await asyncio.gather(
            *(scene.client(until, scene.random.normal(size=shapes[n % 3])) for n in range(CLIENTS))
        )

    scene = play(Model(rows), act, given=replace(X, dims=(-1,)))
    assert widths == {2, 5}
    assert scene.wrong == 0


# --- models that mix rows ---


def test_a_model_that_mixes_rows_is_found_out_and_no_client_gets_what_it_mixed(caplog):
    async def act(scene):
        await scene.clients(scene.after(600), alone=np.zeros_like)

    scene = play(Model(lambda array: array - array.mean(axis=0)), act)
    assert scene.wrong == 0
    assert scene.joining.state == "alone"
    assert scene.joining.reason.startswith(
        "joined with others, a request got another answer than alone: output 'Y' differs in 3"
    )
    assert scene.counts.disagreement_count > 0
    assert all(len(ids) == 1 for _, ids in scene.model.started)
    assert len(scene.model.uncounted) == 2, "it was compared again after that"
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert scene.joining.reason in record.message


def test_what_mixes_only_the_last_row_is_found_out():
    def rows(array):
        result = array.copy()
        result[-1] += array[0] - array[-1]
        return result

    async def act(scene):
        await scene.clients(scene.after(1000), alone=np.copy)

    scene = play(Model(rows), act)
    assert (scene.wrong, scene.joining.state) == (0, "alone")


def test_what_mixes_only_full_batches_is_found_out():
    async def act(scene):
        await scene.clients(scene.after(2000), alone=np.copy)

    scene = play(Model(lambda array: array[::-1].copy() if len(array) == 8 else array), act, most=8)
    assert (scene.wrong, scene.joining.state) == (0, "alone")


@pytest.mark.slow
def test_what_mixes_rows_after_a_thousand_harmless_ones_is_found_out():
    joined = 0

    def rows(array):
        nonlocal joined
        joined += len(array) if len(array) > 1 else 0
        return array[::-1].copy() if joined > 1000 else array

    async def act(scene):
        await scene.clients(scene.is_decided, alone=np.copy)

    scene = play(Model(rows), act, wanted=WANTED)
    assert (scene.wrong, scene.joining.state) == (0, "alone")
    assert joined > 1000


def test_what_mixes_rows_after_it_was_joined_is_found_out_by_samples():
    is_mixing = False

    def rows(array):
        return array[::-1].copy() if is_mixing else array

    async def act(scene):
        nonlocal is_mixing
        await scene.clients(scene.is_decided, alone=np.copy)
        assert scene.joining.state == "joined"
        compared = scene.counts.comparison_count
        await scene.clients(scene.after(4 * EVERY), alone=np.copy)
        assert compared < scene.counts.comparison_count <= compared + 5
        is_mixing = True
        await scene.clients(lambda: scene.joining.state == "alone", alone=np.copy)
        wrong = scene.wrong
        await scene.clients(scene.after(1000), alone=np.copy)
        assert scene.wrong == wrong

    scene = play(Model(rows), act)
    assert 0 < scene.wrong < 2 * EVERY
    assert scene.counts.disagreement_count == 1


def test_a_model_that_is_not_deterministic_is_told_from_one_that_mixes_rows():
    random = np.random.default_rng(1)

    async def act(scene):
        await scene.clients(scene.after(1000), alone=lambda array: np.full_like(array, np.nan))

    scene = play(Model(lambda array: random.normal(size=array.shape).astype(np.float32)), act)
    assert scene.joining.state == "alone"
    assert "it gave two answers to the same request" in scene.joining.reason


def test_a_model_that_fails_when_joined_is_not_joined():
    def rows(array):
        if len(array) > 1:
            msg = "one row only"
            raise BackendFailed(msg)
        return array

    async def act(scene):
        await scene.clients(scene.after(1000), alone=np.copy)

    scene = play(Model(rows), act)
    assert (scene.wrong, scene.joining.state) == (0, "alone")
    assert "requests fail that succeed alone" in scene.joining.reason


def test_runs_that_do_not_come_back_are_tried_again_but_not_for_ever():
    def rows(array):
        if len(array) > 1:
            msg = "its process has ended"
            raise Unavailable(msg)
        return array

    async def act(scene):
        await scene.clients(scene.after(1000), alone=np.copy)

    scene = play(Model(rows), act)
    assert len(scene.model.uncounted) == 3
    assert scene.joining.reason == "joined runs are not answered: its process has ended"


# --- in between ---


def test_an_output_without_a_row_for_each_item_ends_it_at_once():
    async def act(scene):
        await scene.clients(scene.after(100))
        assert scene.scheduler.stop_joining()
        assert not scene.scheduler.stop_joining()
        compared = scene.counts.comparison_count
        await scene.clients(scene.after(1000))
        assert scene.counts.comparison_count == compared

    assert play(Model(np.negative), act).joining.state == "alone"


def test_in_a_hurry_nothing_is_compared_or_joined():
    async def act(scene):
        await scene.clients(scene.after(200))
        scene.scheduler.hurry()
        compared = len(scene.model.uncounted)
        await scene.clients(scene.after(1000))
        assert len(scene.model.uncounted) == compared
        assert all(len(ids) == 1 for _, ids in scene.model.started)

    play(Model(np.negative), act)


def test_closing_waits_for_a_comparison_that_runs():
    async def act(scene):
        clients = asyncio.ensure_future(scene.clients(scene.after(10_000)))
        while scene.model.started is not scene.model.uncounted and not scene.model.uncounted:
            await passes(1)
        closing = asyncio.ensure_future(scene.scheduler.close(10))
        with pytest.raises(Unavailable):
            await clients
        await closing
        assert scene.model.running == 0

    play(Model(np.negative, takes_ms=7), act)


def test_a_client_that_fails_is_not_sampled():
    def rows(array):
        if array.max() > 5:
            msg = "too large"
            raise BackendFailed(msg)
        return array

    async def act(scene):
        async def failing():
            for _ in range(200):
                with pytest.raises(BackendFailed):
                    await scene.ask(np.full((1, 3), 9, np.float32), 0)

        await asyncio.gather(failing(), scene.clients(scene.after(500), alone=np.copy))

    scene = play(Model(rows), act)
    assert (scene.wrong, scene.joining.state) == (0, "compared")
    assert scene.counts.comparison_count > 0


def test_times_are_those_of_the_clients_alone():
    """What a comparison takes is in no request's time but, at most, in its queue."""

    async def act(scene):
        await scene.clients(scene.after(500))
        assert scene.model.uncounted
        request = InferRequest("m", inputs=[Tensor("X", DataType.FP32, (1, 3), bytes(12))])
        await scene.scheduler.run(request)
        assert request.ended_ns - request.started_ns == 1 * MS

    play(Model(np.negative), act)
