"""Which scheduler runs a model's requests, as its configuration says."""

from collections.abc import Sequence

from inferd.config.model import DynamicBatching, ModelConfig
from inferd.core.interfaces import Backend, Instance, Scheduler
from inferd.observe.stats import Counts
from inferd.schedulers.adaptive import AdaptivePace
from inferd.schedulers.batch import BatchPlan, JoinedInstance
from inferd.schedulers.direct import DirectScheduler
from inferd.schedulers.dynamic import DynamicScheduler
from inferd.schedulers.execution import Execution
from inferd.schedulers.pace import FixedPace, Pace
from inferd.schedulers.queue import RequestQueue


def build_scheduler(
    config: ModelConfig,
    backend: Backend,
    instances: Sequence[Instance],
    counts: Counts,
    *,
    may_run_inline: bool,
) -> Scheduler:
    """Return the scheduler that `config`, complete and checked, asks for; it counts in `counts`.

    A decoupled model answers each request by itself, whatever it says about batching.
    """
    plan = BatchPlan(config)
    joined = joined_instances(backend, instances, plan)
    execution = Execution(
        config.name,
        joined if plan.reshapes else instances,
        may_run_inline=may_run_inline,
        joined=joined,
        counts=counts,
    )
    batching = config.dynamic_batching
    if batching is None or config.decoupled:
        return DirectScheduler(execution)
    return _dynamic(config, batching, execution, plan)


def joined_instances(
    backend: Backend, instances: Sequence[Instance], plan: BatchPlan
) -> Sequence[Instance]:
    """Return `instances` as they take several requests at once: as one, if the backend joins."""
    if getattr(backend, "joins", False):
        return [JoinedInstance(instance, plan) for instance in instances]
    return instances


def _dynamic(
    config: ModelConfig, batching: DynamicBatching, execution: Execution, plan: BatchPlan
) -> DynamicScheduler:
    pace: Pace
    if batching.is_adaptive and config.max_batch_size > 1:
        pace = AdaptivePace(config.max_batch_size, execution.instance_count)
    else:
        delay_us = batching.max_queue_delay_microseconds
        pace = FixedPace(config.max_batch_size, batching.preferred_batch_size, delay_us)
    queue = RequestQueue(config.name, batching)
    return DynamicScheduler(execution, queue, pace, plan, keeps_order=batching.preserve_ordering)
