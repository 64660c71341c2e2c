"""Builds the scheduler that a model's configuration asks for."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from inferd.aio.timer import PreciseTimer, Timer
from inferd.config.model import (
    DynamicBatching,
    ModelConfig,
    ModelInput,
    QueuePolicy,
    SequenceBatching,
)
from inferd.config.options.backends import NO_DELAY, DelayedStart
from inferd.config.parameter import whole_number
from inferd.core.interfaces import (
    AsyncInstance,
    Backend,
    ConcurrentInstance,
    Instance,
    Opened,
    Scheduler,
)
from inferd.core.rows import AS_CONFIGURED, Joining
from inferd.core.traits import traits_of
from inferd.forward.owned import AbsentScheduler
from inferd.observe.crash.mark import ModelMarks
from inferd.observe.stats import Counts
from inferd.schedulers.compared import ComparedScheduler
from inferd.schedulers.concurrent import ConcurrentScheduler
from inferd.schedulers.direct import DirectScheduler
from inferd.schedulers.dynamic import DynamicScheduler
from inferd.schedulers.execution.batch import BatchPlan, JoinedInstance
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.queueing.adaptive import AdaptiveTiming
from inferd.schedulers.queueing.policy import MAX_WAITING, Levels
from inferd.schedulers.queueing.queue import RequestQueue
from inferd.schedulers.queueing.timing import BatchTiming, DelayedTiming, FixedTiming
from inferd.schedulers.sequence import SequenceRules, SequenceScheduler
from inferd.schedulers.sequence_parts.tensors import (
    Controls,
    SequenceTensors,
    States,
    hidden_outputs,
    state_inputs,
)

QUEUE_SIZE_PARAMETER = "inferd_sequence_max_queue_size"
"""The config parameter with the number of a sequence model's requests that may wait."""

QUEUE_TIMEOUT_PARAMETER = "inferd_sequence_default_timeout_microseconds"
"""The config parameter with the time that each may wait."""

_Timers = Callable[[Callable[[], None]], Timer]

_MOST = 10**18 - 1  # the largest value of these parameters

_NO_TIMEOUT_US = 1 << 62
"""A timeout that never comes; a request's own is shorter."""


class Given(NamedTuple):
    """What a scheduler depends on beside the configuration.

    `folder` is the model's. `delayed_start` is for schedulers that batch, and `joining` says
    whether they may. `marks` are for the threads that run it.
    """

    folder: Path = Path()
    delayed_start: DelayedStart = NO_DELAY
    joining: Joining = AS_CONFIGURED
    marks: ModelMarks | None = None


NOTHING_GIVEN = Given()


def opened(
    config: ModelConfig,
    backend: Backend,
    instance: Instance,
    cores: frozenset[int] = frozenset(),
) -> Opened:
    """Return `instance`, which `backend` opened for `config`, in the form that takes requests.

    If the backend joins, several requests reach it as one; a model that reshapes goes through the
    same path even for one request. An instance that runs elsewhere joins them there.
    """
    # The worker joins them itself, next to the model: joining here would copy twice.
    if isinstance(instance, AsyncInstance) or traits_of(instance).works_elsewhere:
        return Opened(instance, instance, cores)
    return as_joined(as_executed(config), backend, instance, cores)


def as_joined(
    config: ModelConfig,
    backend: Backend,
    instance: Instance,
    cores: frozenset[int] = frozenset(),
) -> Opened:
    """Return `instance` as `opened` does, in the process it runs in; it was opened for `config`."""
    if not backend.traits.joins:
        return Opened(instance, instance, cores)
    sequence = config.sequence_batching
    # Direct strategy: a model holds state by row, so a request that ran again alone would be in the
    # wrong row.
    has_rows = sequence is not None and sequence.oldest is None
    plan = BatchPlan(config)
    together = JoinedInstance(instance, plan, keeps_rows=has_rows)
    return Opened(together if plan.reshapes else instance, together, cores)


def build_scheduler(
    config: ModelConfig,
    instances: Sequence[Opened],
    counts: Counts,
    given: Given = NOTHING_GIVEN,
    *,
    may_run_inline: bool,
) -> Scheduler:
    """Return the scheduler that `config`, complete and checked, asks for; it counts in `counts`.

    Without instances, which are in other processes of the server, it runs nothing. Raises
    InvalidConfig for sequence_batching that is not possible.
    """
    if not instances:
        return AbsentScheduler()
    are_concurrent = all(isinstance(one.alone, ConcurrentInstance) for one in instances)
    is_batched = config.dynamic_batching is not None and not config.decoupled
    if are_concurrent and not is_batched and config.sequence_batching is None:
        return ConcurrentScheduler(config.name, instances, counts)

    def execution_of(numbers: slice) -> Execution:
        some = instances[numbers]
        return Execution(
            config.name, some, may_run_inline=may_run_inline, counts=counts, marks=given.marks
        )

    scheduler = choose_scheduler(config, execution_of, len(instances), given)
    if given.joining.state == "compared" and isinstance(scheduler, DynamicScheduler):
        return ComparedScheduler(scheduler, BatchPlan(as_executed(config)), given.joining, counts)
    return scheduler


def choose_scheduler(
    config: ModelConfig,
    execution_of: Callable[[slice], Execution],
    instance_count: int,
    given: Given = NOTHING_GIVEN,
    timer: _Timers = PreciseTimer,
) -> Scheduler:
    """Return the scheduler for `instance_count` instances.

    `execution_of` returns the Execution of a slice of them. A decoupled model without sequences
    answers each request by itself, whatever it says about batching; its priority levels and queue
    policies say which requests wait, and how long. Raises as `build_scheduler` does.
    """
    plan = BatchPlan(as_executed(config))
    if config.sequence_batching is not None:
        # One each: a sequence stays on its instance.
        executions = [execution_of(slice(n, n + 1)) for n in range(instance_count)]
        return _sequence(config, executions, plan, given, timer)
    execution = execution_of(slice(None))
    batching = config.dynamic_batching
    if batching is None or config.decoupled:
        return DirectScheduler(execution, Levels(batching))
    never_joins = given.joining.never_joins
    # Those need a queue even where nothing is joined.
    if never_joins and not (batching.preserve_ordering or batching.priority_levels):
        return DirectScheduler(execution, Levels(batching))
    timing = _dynamic_timing(config, batching, execution.instance_count, given.delayed_start)
    queue = RequestQueue(config.name, batching)
    keeps_order = batching.preserve_ordering
    scheduler = DynamicScheduler(
        execution, queue, timing, plan, keeps_order=keeps_order, timer=timer
    )
    if never_joins or given.joining.state == "compared":
        scheduler.run_alone()
    return scheduler


def as_executed(config: ModelConfig, *, joins: bool = False) -> ModelConfig:
    """Return `config` with all inputs and outputs that the backend sees.

    These include the controls and states of sequences, which clients do not see, and, if it
    `joins`, what describes a batch. Raises InvalidConfig for sequence_batching that is not
    possible.
    """
    if joins and config.batch_input:
        config = replace(config, input=(*config.input, *_batch_inputs(config)))
    sequence = config.sequence_batching
    if sequence is None:
        return config
    inputs = (*config.input, *Controls(config).inputs, *state_inputs(config))
    outputs = (*config.output, *hidden_outputs(config))
    return replace(config, input=inputs, output=outputs)


def _batch_inputs(config: ModelConfig) -> list[ModelInput]:
    """Return the inputs that describe a batch; like ragged ones, they have no batch dim."""
    return [
        ModelInput(name, one.datatype, (-1,), allow_ragged_batch=True)
        for one in config.batch_input
        for name in one.target_name
        if one.datatype is not None
    ]


def _dynamic_timing(
    config: ModelConfig, batching: DynamicBatching, count: int, delayed_start: DelayedStart
) -> BatchTiming:
    most, preferred = config.max_batch_size, batching.preferred_batch_size
    delay_us = batching.max_queue_delay_microseconds
    # A test that holds requests must know which batches they make: Triton's rule determines that.
    if delayed_start.count:
        return DelayedTiming(most, preferred, delay_us, delayed_start.count)
    # With a batch of one there is nothing to measure.
    if batching.is_adaptive and most > 1:
        return AdaptiveTiming(most, count)
    return FixedTiming(most, preferred, delay_us)


def _sequence(
    config: ModelConfig,
    executions: Sequence[Execution],
    plan: BatchPlan,
    given: Given,
    timer: _Timers,
) -> SequenceScheduler:
    sequence = config.sequence_batching
    assert sequence is not None
    rows = max(1, config.max_batch_size)
    oldest = sequence.oldest
    idle_us = sequence.max_sequence_idle_microseconds
    if oldest is None:
        timing, per_instance = _row_timing(sequence, rows), rows
    else:
        # preserve_ordering needs nothing: an instance runs one batch at a time, none overtakes.
        delay_us = oldest.max_queue_delay_microseconds
        timing = FixedTiming(rows, oldest.preferred_batch_size, delay_us)
        per_instance = oldest.max_candidate_sequences or rows
    iterates = sequence.iterative_sequence
    rules = SequenceRules(per_instance, oldest is None, idle_us, iterates, given.delayed_start)
    batching = DynamicBatching(default_queue_policy=queue_policy(config))
    queues = RequestQueue(config.name, batching), RequestQueue(config.name, batching)
    tensors = SequenceTensors(plan, Controls(config), States(config, given.folder))
    return SequenceScheduler(executions, queues, timing, tensors, rules, timer=timer)


def _row_timing(sequence: SequenceBatching, rows: int) -> FixedTiming:
    """Return a timing that waits for the delay unless enough rows have a request."""
    direct = sequence.direct
    if direct is None or not direct.minimum_slot_utilization:
        return FixedTiming(rows, (), 0)
    enough = _rows_for(direct.minimum_slot_utilization, rows)
    # Each size from `enough` on is as good, so that the batch goes as soon as one is reached.
    # Bounded by what may wait at all, since it is a set.
    sizes = range(enough, min(rows, MAX_WAITING) + 1)
    return FixedTiming(rows, sizes, direct.max_queue_delay_microseconds)


def _rows_for(share: float, rows: int) -> int:
    """Return how many of `rows` make at least `share`: a float of 32 bits, as it is configured.

    Made wider, one like 0.2 lies above its number, and the rows that make it would fall short.
    """
    least = np.float32(share)
    enough = min(ceil(share * rows), rows)
    while enough > 1 and np.float32((enough - 1) / rows) >= least:
        enough -= 1
    return enough


def queue_policy(config: ModelConfig) -> QueuePolicy:
    """Return the policy of the queues of a model with sequences. Raises InvalidConfig."""
    timeout_us = whole_number(config, QUEUE_TIMEOUT_PARAMETER, 0, 0, _MOST)
    return QueuePolicy(
        default_timeout_microseconds=timeout_us or _NO_TIMEOUT_US,
        allow_timeout_override=True,
        max_queue_size=whole_number(config, QUEUE_SIZE_PARAMETER, 0, 0, _MOST),
    )
