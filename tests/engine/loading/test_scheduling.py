import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest

from inferd.config.defaults import normalised
from inferd.config.model import (
    BatchInput,
    Control,
    ControlInput,
    DirectStrategy,
    DynamicBatching,
    ModelConfig,
    ModelInput,
    ModelOutput,
    OldestStrategy,
    QueuePolicy,
    RateLimiter,
    SequenceBatching,
    SequenceState,
)
from inferd.config.options.backends import DelayedStart
from inferd.core.interfaces import Opened, Placement
from inferd.core.request import InferRequest, InferResponse, Sequence
from inferd.core.rows import Joining
from inferd.core.traits import Traits
from inferd.engine.loading.scheduling import Given, as_executed, build_scheduler, opened
from inferd.errors import BackendFailed, InvalidConfig, Overloaded, Unavailable
from inferd.observe.stats import Counts
from inferd.schedulers.concurrent import ConcurrentScheduler
from inferd.schedulers.direct import DirectScheduler
from inferd.schedulers.dynamic import DynamicScheduler
from inferd.schedulers.execution.limiter import ResourceLimiter, limited
from inferd.schedulers.queueing.adaptive import AdaptiveTiming
from inferd.schedulers.queueing.timing import FixedTiming
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

PATIENCE_S = 30
DELAY_US = 20_000


class Separate:
    """A backend that takes the requests of a batch one by one."""

    traits = Traits()


class Together:
    traits = Traits(joins=True)


class Noting:
    """An instance that notes of each execution the shapes of its requests' inputs."""

    def __init__(self):
        self.seen = []

    def execute(self, requests):
        self.seen.append([[tensor.shape for tensor in request.inputs] for request in requests])
        return [
            InferResponse(
                "m", "1", request.id, [Tensor("Y", DataType.INT8, (rows, 1), bytes(rows))]
            )
            for request in requests
            if (rows := self.rows(request))
        ]

    def rows(self, request):
        return request.inputs[0].shape[0]

    def close(self):
        pass


def config_of(batching=None, *, ragged=False, decoupled=False, batch_input=()):
    dims = (-1,) if ragged else (1,)
    return ModelConfig(
        "m",
        max_batch_size=8,
        input=(ModelInput("A", DataType.INT8, dims, allow_ragged_batch=ragged),),
        output=(ModelOutput("Y", DataType.INT8, (1,)),),
        dynamic_batching=batching,
        decoupled=decoupled,
        batch_input=batch_input,
    )


def request_of(*shape):
    size = 1
    for dim in shape:
        size *= dim
    return InferRequest(
        "m", inputs=[Tensor("A", DataType.INT8, shape, bytes(size))], batch_size=shape[0]
    )


def built(config, backend, instances, counts, **given):
    pairs = [opened(config, backend, instance) for instance in instances]
    return build_scheduler(config, pairs, counts, Given(**given), may_run_inline=False)


def executions(config, backend, *requests, instance=None):
    """Return what the instance saw, and how many rows each answer has."""
    instance = instance or Noting()

    async def serve():
        scheduler = built(config, backend, [instance], Counts())
        answers = await asyncio.gather(*map(scheduler.run, requests))
        await scheduler.close(PATIENCE_S)
        return [answer.outputs[0].shape[0] for answer in answers]

    return instance.seen, asyncio.run(serve())


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (config_of(), DirectScheduler),
        (config_of(DynamicBatching()), DynamicScheduler),
        (config_of(decoupled=True), DirectScheduler),
        (config_of(DynamicBatching(), decoupled=True), DirectScheduler),
    ],
)
def test_the_configuration_chooses_the_scheduler(config, kind):
    scheduler = built(config, Separate(), [Noting()], Counts())
    assert type(scheduler) is kind


class Asynchronous:
    def execute(self, requests):
        raise NotImplementedError

    submit = flow = close = execute


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (ModelConfig("m"), ConcurrentScheduler),
        (ModelConfig("m", decoupled=True, dynamic_batching=DynamicBatching()), ConcurrentScheduler),
        (ModelConfig("m", max_batch_size=4, dynamic_batching=DynamicBatching()), DynamicScheduler),
    ],
)
def test_asynchronous_instances_run_requests_at_once_unless_these_wait_for_each_other(config, kind):
    instances = [Asynchronous()]
    scheduler = built(config, Separate(), instances, Counts())
    assert type(scheduler) is kind


def test_a_configured_model_without_a_scheduler_runs_each_request_alone():
    seen, _ = executions(config_of(), Together(), request_of(1, 1), request_of(2, 1))
    assert seen == [[[(1, 1)]], [[(2, 1)]]]


@pytest.mark.parametrize(
    ("backend", "expected"),
    [(Separate(), [[[(1, 1)], [(2, 1)]]]), (Together(), [[[(3, 1)]]])],
)
def test_a_batch_is_joined_for_backends_that_say_so(backend, expected):
    batching = DynamicBatching(max_queue_delay_microseconds=DELAY_US)
    seen, rows = executions(config_of(batching), backend, request_of(1, 1), request_of(2, 1))
    assert (seen, rows) == (expected, [1, 2])


def test_preferred_sizes_delay_and_policies_are_the_configurations():
    policy = QueuePolicy(max_queue_size=3)
    batching = DynamicBatching((2, 8), 10**9, default_queue_policy=policy)

    async def serve():
        instance = Noting()
        scheduler = built(config_of(batching), Separate(), [instance], Counts())
        await asyncio.gather(*(scheduler.run(request_of(1, 1)) for _ in range(2)))
        late = [asyncio.ensure_future(scheduler.run(request_of(3, 1))) for _ in range(2)]
        await asyncio.wait(late, timeout=0)
        assert not any(one.done() for one in late)
        await scheduler.close(PATIENCE_S)
        return instance.seen

    assert asyncio.run(serve()) == [[[(1, 1)], [(1, 1)]], [[(3, 1)], [(3, 1)]]]


def test_a_full_queue_is_the_configurations_too():
    batching = DynamicBatching(
        max_queue_delay_microseconds=10**9, default_queue_policy=QueuePolicy(max_queue_size=1)
    )

    async def serve():
        scheduler = built(config_of(batching), Separate(), [Noting()], Counts())
        waits = asyncio.ensure_future(scheduler.run(request_of(1, 1)))
        await asyncio.wait([waits], timeout=0)
        with pytest.raises(Unavailable, match="max_queue_size is 1"):
            await scheduler.run(request_of(1, 1))
        await scheduler.close(PATIENCE_S)
        await waits

    asyncio.run(serve())


@pytest.mark.parametrize("batching", [None, DynamicBatching()])
def test_a_ragged_model_gets_its_batch_inputs_whatever_schedules_it(batching):
    class Ragged(Noting):
        def rows(self, request):
            return request.inputs[1].shape[0]

    counts = BatchInput("BATCH_ELEMENT_COUNT", ("N",), DataType.INT32, ("A",))
    config = config_of(batching, ragged=True, batch_input=(counts,))
    seen, rows = executions(config, Together(), request_of(1, 5), instance=Ragged())
    assert (seen, rows) == ([[[(5,), (1,)]]], [1])


class Elsewhere(Noting):
    """An AsyncInstance as far as anybody asks, which makes batches itself."""

    is_free, running_count, unavailable_reason, retries = True, 0, "", False
    on_change = attach = begin = cancel = begin_stream = credit = print
    cancel_stream = closed = says_ready = print


def test_what_is_joined_elsewhere_is_not_joined_here_too_though_a_rate_limiter_holds_it():
    counts = BatchInput("BATCH_ELEMENT_COUNT", ("N",), DataType.INT32, ("A",))
    config = config_of(DynamicBatching(), ragged=True, batch_input=(counts,))
    limiter = ResourceLimiter({})
    place = Placement("m_0", rate_limiter=RateLimiter())
    instance = limited(Elsewhere(), limiter.enter("m", place))
    assert opened(config, Together(), instance) == Opened(instance, instance)


def sequence_config(**fields):
    said = {
        "max_batch_size": 4,
        "input": (ModelInput("X", DataType.INT8, (1,)),),
        "output": (ModelOutput("Y", DataType.INT8, (1,)),),
        "sequence_batching": SequenceBatching(1_000_000),
    }
    return ModelConfig("m", **(said | fields))


def stepped(config, backend, instances, steps):
    """Return the errors of the steps, each (value, sequence), after all have ended."""

    async def go():
        counts = Counts()
        scheduler = built(config, backend, instances, counts)
        async with asyncio.timeout(PATIENCE_S):
            runs = [scheduler.run(request_of_sequence(*step)) for step in steps]
            outcomes = await asyncio.gather(*runs, return_exceptions=True)
            await scheduler.close(PATIENCE_S)
        return [one if isinstance(one, Exception) else None for one in outcomes]

    return asyncio.run(go())


def request_of_sequence(value, id):
    tensor = Tensor("X", DataType.INT8, (1, 1), bytes([value]))
    request = InferRequest("m", inputs=[tensor], batch_size=1)
    request.sequence = Sequence(id, start=True, end=True)
    return request


@pytest.mark.parametrize(
    ("strategy", "shapes"),
    [
        ({"direct": DirectStrategy()}, {(1, 1), (2, 1), (3, 1), (4, 1)}),
        ({"direct": DirectStrategy(10_000_000, 1.0)}, {(4, 1)}),
        ({"oldest": OldestStrategy(4, (4,), 10_000_000)}, {(4, 1)}),
        ({"oldest": OldestStrategy()}, {(1, 1), (2, 1), (3, 1), (4, 1)}),
    ],
)
def test_sequences_run_as_their_strategy_says(strategy, shapes):
    config = sequence_config(sequence_batching=SequenceBatching(1_000_000, **strategy))
    instance = Noting()
    steps = [(1, name) for name in "abcd"]
    assert stepped(config, Together(), [instance], steps) == [None] * 4
    assert {shape for [shapes] in instance.seen for shape in shapes} <= shapes


@pytest.mark.parametrize(
    ("share", "rows", "enough"),
    [
        (0.1, 10, 1),
        (0.2, 10, 2),
        (0.3, 10, 3),
        (0.4, 5, 2),
        (0.8, 5, 4),
        (0.51, 4, 3),
        (0.75, 4, 3),
    ],
)
def test_a_share_of_the_rows_is_enough_though_32_bits_make_it_a_little_more(share, rows, enough):
    direct = DirectStrategy(10_000_000, float(np.float32(share)))  # as it comes from protobuf
    batching = SequenceBatching(1_000_000, direct=direct)
    config = sequence_config(sequence_batching=batching, max_batch_size=rows)
    instance = Noting()
    steps = [(1, f"s{n}") for n in range(enough)]
    assert stepped(config, Together(), [instance], steps) == [None] * enough
    assert instance.seen == [[[(enough, 1)]]]


@pytest.mark.parametrize(
    ("strategy", "failures"),
    [
        ({"direct": DirectStrategy(10_000_000, 1.0)}, 4),
        ({"oldest": OldestStrategy(4, (4,), 10_000_000)}, 1),
    ],
)
def test_a_row_that_fails_takes_others_with_it_only_where_rows_count(strategy, failures):
    class Picky(Noting):
        def execute(self, requests):
            if any(9 in bytes(request.inputs[0].data) for request in requests):
                msg = "nine"
                raise BackendFailed(msg)
            return super().execute(requests)

    config = sequence_config(sequence_batching=SequenceBatching(1_000_000, **strategy))
    errors = stepped(config, Together(), [Picky()], [(n, f"s{n}") for n in (1, 9, 2, 3)])
    assert len([error for error in errors if error]) == failures


def test_parameters_of_the_model_bound_what_waits_in_sequences():
    limit = {"inferd_sequence_max_queue_size": "2"}
    config = sequence_config(max_batch_size=0, parameters=limit)
    steps = [(1, name) for name in "abcdef"]
    errors = stepped(config, Separate(), [Noting()], steps)
    assert [type(error) for error in errors if error] == [Overloaded] * 3


@pytest.mark.parametrize("name", ["max_queue_size", "default_timeout_microseconds"])
@pytest.mark.parametrize("text", ["-1", "ten", "1" * 19, "²"])
def test_a_bound_that_is_no_number_is_refused(name, text):
    config = sequence_config(parameters={f"inferd_sequence_{name}": text})
    with pytest.raises(InvalidConfig, match=f"inferd_sequence_{name}"):
        built(config, Separate(), [Noting()], Counts())


def test_a_backend_sees_controls_and_states_as_inputs_and_outputs():
    control = Control("CONTROL_SEQUENCE_START", int32_false_true=(0, 1))
    batching = SequenceBatching(
        control_input=(ControlInput("S", (control,)),),
        state=(SequenceState("I", "O", DataType.FP32, (2,)),),
    )
    executed = as_executed(sequence_config(sequence_batching=batching))
    assert [one.name for one in executed.input] == ["X", "S", "I"]
    assert [one.name for one in executed.output] == ["Y", "O"]


def test_a_backend_sees_what_describes_a_batch_as_inputs_without_a_batch_dim():
    counts = BatchInput("BATCH_ELEMENT_COUNT", ("N", "M"), DataType.FP32, ("X",))
    config = sequence_config(sequence_batching=None, batch_input=(counts,))
    made = ModelInput("N", DataType.FP32, (-1,), allow_ragged_batch=True)
    assert as_executed(config, joins=True).input[-2:] == (made, replace(made, name="M"))
    assert as_executed(config) == config


@pytest.mark.parametrize(
    ("batching", "max_batch_size", "timing"),
    [
        (DynamicBatching(), 8, AdaptiveTiming),
        (DynamicBatching(priority_levels=2, default_priority_level=1), 8, AdaptiveTiming),
        (DynamicBatching(preferred_batch_size=(8,)), 8, FixedTiming),
        (DynamicBatching(max_queue_delay_microseconds=1), 8, FixedTiming),
        (DynamicBatching(), 1, FixedTiming),
        (DynamicBatching(), 0, FixedTiming),
    ],
)
def test_numbers_that_are_not_given_are_found(batching, max_batch_size, timing):
    config = replace(config_of(batching), max_batch_size=max_batch_size)
    filled_in = normalised(normalised(config, "m"), "m")
    scheduler = built(filled_in, Separate(), [Noting()], Counts())
    assert type(scheduler._timing) is timing


@pytest.mark.parametrize("batching", [DynamicBatching(is_adaptive=True), DynamicBatching((8,), 0)])
def test_what_batches_is_held_until_so_many_wait(batching):
    async def go():
        instance = Noting()
        scheduler = built(
            config_of(batching),
            Separate(),
            [instance],
            Counts(),
            delayed_start=DelayedStart(3),
        )
        await asyncio.gather(*(scheduler.run(request_of(1, 1)) for _ in range(3)))
        await scheduler.close(PATIENCE_S)
        return instance.seen

    [[*together]] = asyncio.run(go())
    assert len(together) == 3


@pytest.mark.parametrize(
    ("batching", "kind"),
    [
        (DynamicBatching(is_adaptive=True), DirectScheduler),
        (DynamicBatching(preserve_ordering=True), DynamicScheduler),
        (DynamicBatching(priority_levels=2, default_priority_level=1), DynamicScheduler),
    ],
)
def test_requests_that_are_not_to_be_joined_never_are_whatever_waits(batching, kind):
    class Slow(Noting):
        def execute(self, requests):
            time.sleep(0.001)
            return super().execute(requests)

    async def go():
        instance, joining = Slow(), Joining("alone", "its rows depend on each other")
        scheduler = built(
            config_of(batching),
            Together(),
            [instance],
            Counts(),
            joining=joining,
        )
        assert type(scheduler) is kind
        waiting = [asyncio.ensure_future(scheduler.run(request_of(1, 1))) for _ in range(5)]
        await asyncio.sleep(0)
        await scheduler.close(PATIENCE_S)  # nor does the hurry of the end join what waits
        await asyncio.gather(*waiting)
        return instance.seen

    assert asyncio.run(go()) == [[[(1, 1)]]] * 5


def test_sequences_are_held_as_well():
    async def go():
        instance = Noting()
        config = sequence_config()
        delayed_start = DelayedStart(2)
        scheduler = built(
            config,
            Separate(),
            [instance],
            Counts(),
            delayed_start=delayed_start,
        )
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(scheduler.run(request_of_sequence(1, n)) for n in (1, 2)))
        await scheduler.close(PATIENCE_S)
        return instance.seen

    [[*together]] = asyncio.run(go())
    assert len(together) == 2
