"""Space: the settings that are tried, each with the values that it may have, in their order."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

INSTANCES = "instances"
THREADS = "threads"
BATCH = "batch"
DELAY = "delay_us"
PROCESS = "process"
PROVIDER = "provider"

Value = int | str


class Knob(NamedTuple):
    """A setting and its values: numbers from small to large, or words in any order."""

    name: str
    values: tuple[Value, ...]

    @property
    def is_ordered(self) -> bool:
        """Tell whether neighbours among the values are alike."""
        return all(isinstance(one, int) for one in self.values)


class Space:
    """All candidates: one value for each knob, as a tuple in the order of the `knobs`.

    Settings that say the same are one candidate: without batches there is no delay.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self.knobs = tuple(knobs)
        names = [knob.name for knob in knobs]
        self._batch = names.index(BATCH) if BATCH in names else -1
        self._delay = names.index(DELAY) if DELAY in names else -1
        combinations = itertools.product(*(knob.values for knob in knobs))
        self.candidates = [one for one in combinations if one == self.canonical(one)]

    def canonical(self, candidate: tuple[Value, ...]) -> tuple[Value, ...]:
        """Return the candidate that says the same."""
        # A knob that is missing has the position -1.
        if min(self._batch, self._delay) < 0 or candidate[self._batch] != 1:
            return candidate
        first = self.knobs[self._delay].values[0]
        # Without batches nothing waits, so all delays are the same candidate.
        return (*candidate[: self._delay], first, *candidate[self._delay + 1 :])

    def named(self, candidate: tuple[Value, ...]) -> dict[str, Value]:
        """Return the values of a candidate by the names of their knobs."""
        return {knob.name: value for knob, value in zip(self.knobs, candidate, strict=True)}

    def positions(self) -> Iterator[list[float]]:
        """Yield, for each candidate, where each of its values stands among those of its knob."""
        for candidate in self.candidates:
            yield [
                float(knob.values.index(value))
                for knob, value in zip(self.knobs, candidate, strict=True)
            ]
