"""Instances: the loaded copies of one model version, opened at its load or added later.

When only the counts in instance_group change, a version is not reloaded: it opens more instances,
or closes some. Its other instances, waiting requests, sequences and statistics stay.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

from inferd.config.model import ModelConfig
from inferd.core.interfaces import AsyncInstance, Instance, Opened, Placement, Resizable, Scheduler
from inferd.core.load import Attempt
from inferd.forward.home import EVERYWHERE, Home
from inferd.repository.layout import placements
from inferd.schedulers.execution.limiter import LimitedInstance

log = logging.getLogger("inferd.engine")


class Resize(NamedTuple):
    """A prepared change: the new instances, already open, and the kinds of those to close.

    `total` is how many there are then in all processes of the server; `places` are those in this.
    """

    places: list[Placement]
    opened: list[Opened]
    closing: list[Hashable]
    total: int

    def undo(self) -> None:
        """Close the instances opened for the change."""
        for one in self.opened:
            one.alone.close()


class Instances:
    """The instances of one version, and the `scheduler` that runs them, told to `run_by`.

    `open_all` opens one at each of the given placements, or none. Giving up `attempt` ends that.
    Of the instances that a configuration asks for, this process has those that `home` says.
    """

    def __init__(
        self,
        gpu_count: int,
        open_all: Callable[[Sequence[Placement]], list[Opened]],
        attempt: Attempt,
        home: Home = EVERYWHERE,
    ) -> None:
        self._gpu_count = gpu_count
        self._open_all = open_all
        self._home = home
        self.total = 0
        """How many instances there are in all processes of the server."""
        self._note_total: Callable[[int], None] = lambda _: None
        self.attempt = attempt
        self.are_on_gpu = False
        self.places: list[Placement] = []
        self.scheduler: Scheduler | None = None
        self.remote: list[AsyncInstance] = []
        """Those of the instances in use that run elsewhere."""

    def run_by(self, scheduler: Scheduler) -> None:
        """Note the scheduler that runs the instances, and which of them run elsewhere.

        To ask that of an instance takes 40 µs, and each check of a server's health asks for all.
        """
        self.scheduler = scheduler
        # Asked once, since checks of a Protocol at run time are slow.
        if isinstance(scheduler, Resizable):
            self.remote = remote_of(scheduler.instances)

    def open(self, config: ModelConfig) -> list[Opened]:
        """Open the instances `config` asks for. When one fails to, those before it are closed."""
        places, warnings = placements(config, self._gpu_count)
        for warning in warnings:
            log.warning("%s", warning)
        self.total = len(places)
        self.are_on_gpu = any(place.gpu for place in places)
        self.places = self._home.own(places)
        return self._open_all(self.places) if self.places else []

    def tell_total(self, note: Callable[[int], None]) -> None:
        """Call `note` with the number of instances in all processes, now and when it changes."""
        self._note_total = note
        note(self.total)

    def can_become(self, config: ModelConfig) -> bool:
        """Tell whether opening and closing instances is enough for `config`, with other counts.

        The first instance in this process takes a scheduler, too, and the last one stays.
        """
        places = self._home.own(placements(config, self._gpu_count)[0])
        if not self.places:
            return not places
        return isinstance(self.scheduler, Resizable) and bool(places)

    def prepare(self, config: ModelConfig) -> Resize:
        """Open what `config` asks for beyond what is open; for a thread. Raises as `open` does."""
        every, _ = placements(config, self._gpu_count)
        places = self._home.own(every)
        # What there is minus what is wanted, by kind: instances of a kind are interchangeable.
        surplus = Counter(map(kind_of, self.places))
        missing = []
        for place in places:
            if surplus[kind_of(place)]:
                surplus[kind_of(place)] -= 1
            else:
                missing.append(place)
        opened = self._open_all(missing) if places else []
        return Resize(places, opened, list(surplus.elements()), len(every))

    def apply(self, change: Resize) -> None:
        """Make the change, without waiting for anything."""
        self.total = change.total
        self._note_total(change.total)
        if not change.places:
            return
        scheduler = self.scheduler
        assert isinstance(scheduler, Resizable)
        for one in remote_of([one.alone for one in change.opened]):
            # Before they get requests.
            one.attach(asyncio.get_running_loop())
        for one in change.opened:
            scheduler.grow(one)
        are_alike = len(set(map(kind_of, (*self.places, *change.places)))) == 1
        for kind in change.closing:
            # Any may go then, so the scheduler may choose one that is idle.
            scheduler.shrink(None if are_alike else kind)
        self.places = change.places
        self.run_by(scheduler)


def remote_of(instances: Sequence[Instance]) -> list[AsyncInstance]:
    """Return those of `instances` that run elsewhere, including those under a rate limiter."""
    inner = [one.inner if isinstance(one, LimitedInstance) else one for one in instances]
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


def kind_of(place: Placement) -> Hashable:
    """Return a key that is equal for all instances interchangeable with the one at `place`."""
    return place.gpu, place.device_id, place.rate_limiter, place.host_policy
