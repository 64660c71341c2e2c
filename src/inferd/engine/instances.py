"""Instances: the loaded copies of one model version; how the first are opened, and later more.

Where only the counts in instance_group change, a version goes on as it is: it gets more instances,
or closes some. Its other instances, what waits, sequences and statistics stay.
"""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

from inferd.config.gpu_limit import GpuLimits
from inferd.config.host_policy import HostPolicies
from inferd.config.model import ModelConfig
from inferd.core.interfaces import (
    Backend,
    DecoupledInstance,
    Instance,
    Opened,
    Placement,
    Resizable,
    Scheduler,
)
from inferd.engine.attempt import Attempt
from inferd.engine.scheduling import opened
from inferd.engine.warmup import warm_up
from inferd.errors import InvalidConfig, Unavailable
from inferd.repository.layout import placements
from inferd.repository.warmup import Sample
from inferd.schedulers.cores import cores_of, pinned

log = logging.getLogger("inferd.engine")


class Machine(NamedTuple):
    """What instances can be placed on: so many GPUs, and processors, as policies choose them.

    `memory_use` tells what share of a GPU's memory is in use, None when nobody knows; above its
    one of `limits` nothing is opened there.
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
        """Return the processors of an instance, none: any."""
        where = f"model '{config.name}', instance '{place.name}'"
        policy = self.policies.get(place.host_policy)
        if policy is not None:
            return cores_of(policy, where)
        if any(place.host_policy == group.host_policy for group in config.instance_group):
            log.warning("%s: no --host-policy is called '%s'", where, place.host_policy)
        return frozenset()


class Resize(NamedTuple):
    """A change that has been prepared: instances that are open, and the kinds of those to close."""

    places: list[Placement]
    opened: list[Opened]
    closing: list[Hashable]

    def undo(self) -> None:
        """Close what was opened for nothing."""
        for one in self.opened:
            one.alone.close()


class Instances:
    """Opens instances of the model `config`, which `open_one` loads at a place of its own.

    Each answers `samples` before it is used. Giving up `attempt` has what is being opened end.
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
        """What runs them."""

    def open(self, config: ModelConfig) -> list[Opened]:
        """Open the instances that `config` wants. When one cannot be, those before are closed."""
        places, warnings = placements(config, self._gpu_count)
        for warning in warnings:
            log.warning("%s", warning)
        found = self._opened(places)
        self.places = places
        return found

    def can_become(self, config: ModelConfig) -> bool:
        """Tell whether `config`, which differs in its counts, can be had by opening and closing."""
        places, _ = placements(config, self._gpu_count)
        return isinstance(self.scheduler, Resizable) and bool(places)

    def prepare(self, config: ModelConfig) -> Resize:
        """Open what `config` wants and is not there yet; for a thread. Raises as `open` does."""
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
        """Make the change; nothing here waits."""
        scheduler = self.scheduler
        assert isinstance(scheduler, Resizable)
        for one in change.opened:
            scheduler.grow(one)
        are_alike = len(set(map(_kind, (*self.places, *change.places)))) == 1
        for kind in change.closing:
            scheduler.shrink(None if are_alike else kind)
        self.places = change.places

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


def is_resized(before: ModelConfig, after: ModelConfig) -> bool:
    """Tell whether the counts of instance groups are all that differs."""
    return before != after and _uncounted(before) == _uncounted(after)


def _uncounted(config: ModelConfig) -> ModelConfig:
    groups = tuple(replace(group, count=0) for group in config.instance_group)
    return replace(config, instance_group=groups)


def _kind(place: Placement) -> Hashable:
    """Return what all instances have in common that are as good as the one at `place`."""
    return place.gpu, place.device_id, place.rate_limiter, place.host_policy
