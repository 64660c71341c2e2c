"""Opening: puts the instances of a version onto GPUs and CPU cores, and warms them up."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from inferd.config.model import ModelConfig
from inferd.config.options.gpu_limit import GpuLimits
from inferd.config.options.host_policy import HostPolicies
from inferd.core.interfaces import Backend, DecoupledInstance, Instance, Opened, Placement
from inferd.engine.loading.scheduling import opened
from inferd.engine.loading.side_by_side import open_side_by_side
from inferd.engine.loading.warmup import warm_up
from inferd.engine.serving.instances import kind_of
from inferd.errors import InvalidConfig, Unavailable
from inferd.repository.warmup import Sample
from inferd.schedulers.execution.cores import cores_of, pinned

log = logging.getLogger("inferd.engine")


class Machine(NamedTuple):
    """What instances can be placed on: GPUs, and CPU cores as `policies` choose them.

    `memory_use` returns the share of a GPU's memory that is in use, None when that is not known;
    when it is above the GPU's entry in `limits`, nothing is opened there. Up to `thread_count`
    instances of a version are opened at once.
    """

    policies: HostPolicies
    limits: GpuLimits
    memory_use: Callable[[int], float | None]
    thread_count: int = 1

    def check_room(self, config: ModelConfig, places: Sequence[Placement]) -> None:
        """Raise Unavailable when a GPU among `places` is too full for one more load."""
        # In a fixed order, so that two loads complain of the same GPU.
        for gpu in sorted({place.device_id for place in places if place.gpu} & self.limits.keys()):
            use, limit = self.memory_use(gpu), self.limits[gpu]
            if use is None:
                log.warning(
                    "model '%s': --model-load-gpu-limit has no effect, GPU %d does not tell how "
                    "much of its memory is in use",
                    config.name,
                    gpu,
                )
            elif use > limit:
                msg = (
                    f"model '{config.name}': of the memory of GPU {gpu} {use:.3f} is in use, "
                    f"--model-load-gpu-limit allows {limit:g} for a load"
                )
                raise Unavailable(msg)

    def cores_of(self, config: ModelConfig, place: Placement) -> frozenset[int]:
        """Return the CPU cores an instance is pinned to; empty: any."""
        where = f"model '{config.name}', instance '{place.name}'"
        policy = self.policies.get(place.host_policy)
        if policy is not None:
            return cores_of(policy, where)
        # Only a policy that a group names; every instance has a default one.
        if any(place.host_policy == group.host_policy for group in config.instance_group):
            log.warning("%s: no --host-policy is called '%s'", where, place.host_policy)
        return frozenset()


def open_all(
    config: ModelConfig,
    backend: Backend,
    open_one: Callable[[Placement], Instance],
    samples: Sequence[Sample],
    machine: Machine,
    places: Sequence[Placement],
) -> list[Opened]:
    """Return an open instance of the model of `config` for each of `places` on `machine`.

    `open_one` loads one of them, which answers `samples` before it is used; several are
    loaded side by side, unless the backend opens in turn. When one fails, the others are closed.
    """
    # Before anything is opened: memory that a load takes cannot be had back in time.
    machine.check_room(config, places)
    all_cores = [machine.cores_of(config, place) for place in places]
    openers = [
        partial(_open_on, cores, open_one, place)
        for place, cores in zip(places, all_cores, strict=True)
    ]
    # Frameworks whose loading is not safe in several threads.
    thread_count = 1 if backend.traits.opens_in_turn else machine.thread_count
    instances = open_side_by_side(openers, thread_count)
    with ExitStack() as undo:
        for instance in instances:
            undo.callback(instance.close)
        if config.decoupled and not all(isinstance(i, DecoupledInstance) for i in instances):
            msg = f"model '{config.name}': backend '{config.backend}' runs no decoupled models"
            raise InvalidConfig(msg)
        pairs = [
            opened(config, backend, instance, cores)._replace(kind=kind_of(place))
            for instance, cores, place in zip(instances, all_cores, places, strict=True)
        ]
        # Warm-up runs what requests will run, joined where they are joined.
        together = [pair.together for pair in pairs]
        warm_up(config, instances if config.decoupled else together, samples)
        undo.pop_all()
    return pairs


def _open_on(
    cores: frozenset[int], open_one: Callable[[Placement], Instance], place: Placement
) -> Instance:
    # Threads that a framework starts while loading inherit the processors.
    with pinned(cores):
        return open_one(place)
