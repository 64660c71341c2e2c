"""Instances: the loaded copies of one model version, opened at its load or added later.

When only the counts in instance_group change, a version is not reloaded: it opens more instances,
or closes some. Its other instances, waiting requests, sequences and statistics stay.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

from inferd.config.model import ModelConfig
from inferd.config.options.gpu_limit import GpuLimits
from inferd.config.options.host_policy import HostPolicies
from inferd.core.interfaces import (
    AsyncInstance,
    Backend,
    DecoupledInstance,
    Instance,
    Opened,
    Placement,
    Resizable,
    Scheduler,
)
from inferd.engine.loading.attempt import Attempt
from inferd.engine.loading.scheduling import opened
from inferd.engine.loading.warmup import warm_up
from inferd.errors import InvalidConfig, Unavailable
from inferd.repository.layout import placements
from inferd.repository.warmup import Sample
from inferd.schedulers.execution.cores import cores_of, pinned

log = logging.getLogger("inferd.engine")


class Machine(NamedTuple):
    """What instances can be placed on: `gpu_count` GPUs, and CPU cores as `policies` choose them.

    `memory_use` returns the share of a GPU's memory that is in use, None when that is not known;
    when it is above the GPU's entry in `limits`, nothing is opened there.
    """

    gpu_count: int
    policies: HostPolicies
    limits: GpuLimits
    memory_use: Callable[[int], float | None]

    def check_room(self, config: ModelConfig, places: Sequence[Placement]) -> None:
        """Raise Unavailable when a GPU among `places` is too full for one more load."""
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
        if any(place.host_policy == group.host_policy for group in config.instance_group):
            log.warning("%s: no --host-policy is called '%s'", where, place.host_policy)
        return frozenset()


class Resize(NamedTuple):
    """A prepared change: the new instances, already open, and the kinds of those to close."""

    places: list[Placement]
    opened: list[Opened]
    closing: list[Hashable]

    def undo(self) -> None:
        """Close the instances opened for the change."""
        for one in self.opened:
            one.alone.close()


class Instances:
    """Opens the instances of the model of `config`; `open_one` loads one at a given placement.

    Each instance answers `samples` before it is used. Giving up `attempt` aborts its opening.
    """

    def __init__(
        self,
        config: ModelConfig,
        backend: Backend,
        open_one: Callable[[Placement], Instance],
        samples: Sequence[Sample],
        machine: "Machine",
        attempt: Attempt,
    ) -> None:
        self._config = config
        self._backend = backend
        self._open_one = open_one
        self._samples = samples
        self._machine = machine
        self.attempt = attempt
        self._gpu_count = machine.gpu_count
        self.places: list[Placement] = []
        self.scheduler: Scheduler | None = None
        """The scheduler that runs them."""

    def open(self, config: ModelConfig) -> list[Opened]:
        """Open the instances `config` asks for. When one fails to, those before it are closed."""
        places, warnings = placements(config, self._gpu_count)
        for warning in warnings:
            log.warning("%s", warning)
        found = self._opened(places)
        self.places = places
        return found

    def can_become(self, config: ModelConfig) -> bool:
        """Tell whether opening and closing instances is enough for `config`, with other counts."""
        places, _ = placements(config, self._gpu_count)
        return isinstance(self.scheduler, Resizable) and bool(places)

    def prepare(self, config: ModelConfig) -> Resize:
        """Open what `config` asks for beyond what is open; for a thread. Raises as `open` does."""
        places, _ = placements(config, self._gpu_count)
        surplus = Counter(map(_kind, self.places))
        missing = []
        for place in places:
            if surplus[_kind(place)]:
                surplus[_kind(place)] -= 1
            else:
                missing.append(place)
        return Resize(places, self._opened(missing), list(surplus.elements()))

    def apply(self, change: Resize) -> None:
        """Make the change, without waiting for anything."""
        scheduler = self.scheduler
        assert isinstance(scheduler, Resizable)
        for one in remote_of([one.alone for one in change.opened]):
            one.attach(asyncio.get_running_loop())
        for one in change.opened:
            scheduler.grow(one)
        are_alike = len(set(map(_kind, (*self.places, *change.places)))) == 1
        for kind in change.closing:
            scheduler.shrink(None if are_alike else kind)
        self.places = change.places

    def remote(self) -> list[AsyncInstance]:
        """Return those of the instances in use that run elsewhere."""
        scheduler = self.scheduler
        return remote_of(scheduler.instances) if isinstance(scheduler, Resizable) else []

    def _opened(self, places: Sequence[Placement]) -> list[Opened]:
        config = self._config
        self._machine.check_room(config, places)
        with ExitStack() as undo:
            instances: list[Instance] = []
            all_cores = [self._machine.cores_of(config, place) for place in places]
            for place, cores in zip(places, all_cores, strict=True):
                with pinned(cores):
                    instances.append(self._open_one(place))
                undo.callback(instances[-1].close)
            if config.decoupled and not all(isinstance(i, DecoupledInstance) for i in instances):
                msg = f"model '{config.name}': backend '{config.backend}' runs no decoupled models"
                raise InvalidConfig(msg)
            pairs = [
                opened(config, self._backend, instance, cores)._replace(kind=_kind(place))
                for instance, cores, place in zip(instances, all_cores, places, strict=True)
            ]
            together = [pair.together for pair in pairs]
            warm_up(config, instances if config.decoupled else together, self._samples)
            undo.pop_all()
        return pairs


def remote_of(instances: Sequence[Instance]) -> list[AsyncInstance]:
    """Return those of `instances` that run elsewhere, including those under a rate limiter."""
    inner = [getattr(instance, "inner", instance) for instance in instances]
    return [instance for instance in inner if isinstance(instance, AsyncInstance)]


def is_resized(before: ModelConfig, after: ModelConfig) -> bool:
    """Tell whether the counts of instance groups are all that differs."""
    return before != after and _uncounted(before) == _uncounted(after)


def _uncounted(config: ModelConfig) -> ModelConfig:
    """Return `config` without counts, and without names that its author has not given.

    The group of a configuration that lists none has another such name than a group listed first.
    """
    groups = tuple(
        replace(
            group,
            count=0,
            name="" if group.name in (config.name, f"{config.name}_{number}") else group.name,
        )
        for number, group in enumerate(config.instance_group)
    )
    return replace(config, instance_group=groups)


def _kind(place: Placement) -> Hashable:
    """Return a key that is equal for all instances interchangeable with the one at `place`."""
    return place.gpu, place.device_id, place.rate_limiter, place.host_policy
