"""Arrangement: which slot of HAProxy a place has, and which group of places a model is sent to.

HAProxy has a fixed number of slots and of groups, which are filled while it runs. All places
together are the group "all", which needs no more than slots. The models that not every place has
are in numbered groups: those that the same places have share one. A version that only some places
of its model have is a model of its own, MODEL/VERSION.
"""

import enum
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from inferd.route.place import Place, PlaceState

ALL = "all"
"""The group of all places."""

DIFFER = "/"
"""In place of a model's name, which has no slash: what is only there if the places differ."""

NEEDS_MODEL = "//"
"""The same, if a request cannot be sent on without knowing its model: for a sequence, too."""


class ModelKind(enum.Enum):
    """What may be done with the requests of a model; the order is from least to most care."""

    REPEATABLE = "repeatable"
    """Sent again, if its place ended before it answered."""
    ONCE = "once"
    """Never sent twice."""
    SEQUENCE = "sequence"
    """Never sent twice, and all of one sequence to the same place."""


_CARE = list(ModelKind)


class KnownPlace(NamedTuple):
    """A place, its address as a number, and what is ready there: models, and their versions."""

    place: Place
    address: str
    models: Mapping[str, ModelKind]
    versions: Mapping[str, frozenset[str]] = MappingProxyType({})


class SlotUse(enum.Enum):
    """What a slot is to be given; the values are HAProxy's."""

    READY = "ready"
    DRAIN = "drain"
    UNUSED = "maint"


class SlotContent(NamedTuple):
    """What is in a slot; `name` is that of the place, "" while it is free."""

    name: str = ""
    # HAProxy wants an address of each server; an unused one is in maintenance.
    address: str = "127.0.0.1"
    http_port: int = 1
    grpc_port: int = 1
    use: SlotUse = SlotUse.UNUSED


class Arrangement(NamedTuple):
    """What HAProxy is to have.

    `slots` are numbered from 0; `groups` are the numbers of slots in each group, by its number from
    1; `models` are (group, kind) by name, or by name/version. `left_out` are places for which there
    was no slot, `lost_models` models for which there was no group. `mixed_models` are texts: the
    models whose newest version is not the same at all places, and which place has which. `asleep`
    are models that only places have which sleep.
    """

    slots: tuple[SlotContent, ...]
    groups: Mapping[int, frozenset[int]]
    models: Mapping[str, tuple[str, ModelKind]]
    left_out: tuple[str, ...] = ()
    lost_models: tuple[str, ...] = ()
    mixed_models: tuple[str, ...] = ()
    asleep: tuple[str, ...] = ()

    def members(self, group: str) -> frozenset[int] | None:
        """Return the slots in a group, None for all; one that is not used yet has none."""
        return None if group == ALL else self.groups.get(int(group), frozenset())


class Arranger:
    """Arranges places in `slot_count` slots and `group_count` groups, moving as few as it can."""

    def __init__(self, slot_count: int, group_count: int) -> None:
        self._group_count = group_count
        # Empty slots, so the first configuration can be written before any place is known.
        self.last = Arrangement((SlotContent(),) * slot_count, {}, {})
        """The last arrangement."""
        self._freed_at = [0] * slot_count  # the slot free for longest is used first
        self._round = 0

    def arrange(self, known: Iterable[KnownPlace], asleep: Iterable[str] = ()) -> Arrangement:
        """Return the arrangement for all places that are `known` now; others have `asleep`."""
        self._round += 1
        by_name = {one.place.name: one for one in known}
        slots, left_out = self._slots(by_name)
        numbers = {content.name: number for number, content in enumerate(slots) if content.name}
        kinds: dict[str, ModelKind] = {}
        for name in numbers:
            for model, kind in by_name[name].models.items():
                # A model that any place keeps sequences of is treated with that care everywhere.
                kinds[model] = max(kind, kinds.get(model, kind), key=_CARE.index)
        everywhere = frozenset(numbers.values())
        sets = _sets({number: by_name[name] for name, number in numbers.items()})
        # A blank ends a key in HAProxy's map, so such a model is routed only if all places have it.
        blank = sorted(one for one in sets if " " in one)
        spaced = [(one, sets.pop(one)) for one in blank]
        # What all places have needs no group.
        groups, lost = self._groups({one for one in sets.values() if one != everywhere}, sets)
        lost += tuple(model for model, where in spaced if where != everywhere)
        group_of = {found: str(number) for number, found in groups.items()} | {everywhere: ALL}
        models = {
            # The kind is the model's, whichever version.
            model: (group_of[found], kinds[model.partition("/")[0]])
            for model, found in sorted(sets.items())
            if found in group_of
        }
        taking = [by_name[one.name] for one in slots if one.use is SlotUse.READY]
        self.last = Arrangement(
            slots,
            groups,
            models,
            left_out,
            lost,
            tuple(_mixed(taking)),
            # Awake somewhere: requests go there.
            tuple(sorted(one for one in asleep if one not in kinds and " " not in one)),
        )
        return self.last

    def _slots(
        self, known: Mapping[str, KnownPlace]
    ) -> tuple[tuple[SlotContent, ...], tuple[str, ...]]:
        slots = list(self.last.slots)
        staying = {
            model
            for one in known.values()
            if one.place.state is PlaceState.READY
            for model in one.models
        }
        for number, content in enumerate(slots):
            # First, so that the slots of those that have gone are free below.
            if content.name and content.name not in known:
                slots[number] = content._replace(name="", use=SlotUse.UNUSED)
                self._freed_at[number] = self._round
        taken = {content.name: number for number, content in enumerate(slots) if content.name}
        free = [number for number, content in enumerate(slots) if not content.name]
        # Longest free first: HAProxy may still have connections to whoever had a slot last.
        free.sort(key=lambda number: (self._freed_at[number], number))
        left_out = []
        for name, one in known.items():
            number = taken.get(name, -1)
            if number < 0:
                if not free:
                    left_out.append(name)
                    continue
                number = free.pop(0)
            slots[number] = _content(one, staying)
        return tuple(slots), tuple(left_out)

    def _groups(
        self, wanted: set[frozenset[int]], sets: Mapping[str, frozenset[int]]
    ) -> tuple[dict[int, frozenset[int]], tuple[str, ...]]:
        """Return the groups, and the models for which there is none.

        A group that is given up is used again only if there is no other: HAProxy's map still leads
        its models there while its places change.
        """
        before = self.last.groups
        found = {number: one for number, one in before.items() if one in wanted}
        # In a fixed order, so that the same places always give the same groups.
        rest = sorted(wanted - set(found.values()), key=sorted)
        unused = [one for one in range(1, self._group_count + 1) if one not in before]
        lost: set[frozenset[int]] = set()
        for one in rest:
            number = self._earlier([model for model, where in sets.items() if where == one], found)
            if number is None and unused:
                number = unused.pop(0)
            if number is None:
                given_up = [one for one in before if one not in found]
                number = given_up[0] if given_up else None
            if number is None:
                lost.add(one)
            else:
                found[number] = one
        return found, tuple(sorted(model for model, where in sets.items() if where in lost))

    def _earlier(self, models: Iterable[str], found: Mapping[int, frozenset[int]]) -> int | None:
        """Return the group that most of `models` were in, if it is to be had: sequences stay."""
        groups = Counter(
            int(group)
            for group, _ in (self.last.models[one] for one in models if one in self.last.models)
            if group != ALL and int(group) not in found
        )
        return groups.most_common(1)[0][0] if groups else None


def _sets(known: Mapping[int, KnownPlace]) -> dict[str, frozenset[int]]:
    """Return the slots that have each model, and each version that only some of those have."""
    models: dict[str, set[int]] = {}
    versions: dict[tuple[str, str], set[int]] = {}
    for slot, one in known.items():
        for model in one.models:
            models.setdefault(model, set()).add(slot)
            for version in one.versions.get(model, ()):
                versions.setdefault((model, version), set()).add(slot)
    # A version that all places of its model have goes where the model goes.
    apart = {
        f"{model}/{version}": found
        for (model, version), found in versions.items()
        if found != models[model]
    }
    return {name: frozenset(found) for name, found in (models | apart).items()}


def _mixed(known: Iterable[KnownPlace]) -> Iterator[str]:
    """Yield the models whose newest version is not the same at all places, with what each has."""
    newest: dict[str, dict[str, list[str]]] = {}
    for one in known:
        for model, versions in one.versions.items():
            version = max(versions, key=_age)
            newest.setdefault(model, {}).setdefault(version, []).append(one.place.name)
    for model, places in sorted(newest.items()):
        if len(places) > 1:
            texts = (
                f"{version} at {', '.join(places[version])}" for version in sorted(places, key=_age)
            )
            yield f"{model} ({'; '.join(texts)})"


def _age(version: str) -> tuple[int, str]:
    """Return what orders versions, whose numbers have any length and no leading zeros."""
    return len(version), version


def _content(known: KnownPlace, staying: Container[str]) -> SlotContent:
    """Return what a slot has; a place drains once others have what it has, the `staying` models.

    Until then it is better than none: who takes its place may not have been seen yet.
    """
    place = known.place
    is_draining = place.state is PlaceState.DRAINING and all(one in staying for one in known.models)
    use = SlotUse.DRAIN if is_draining else SlotUse.READY
    return SlotContent(place.name, known.address, place.http_port, place.grpc_port, use)
