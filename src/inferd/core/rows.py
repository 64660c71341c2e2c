"""Rows: what is known of whether a model computes the items of a batch independently.

A backend says what it knows in a Verdict; what the server makes of it is a Joining.
"""

from typing import Literal

import msgspec

Rows = Literal["independent", "dependent", "open"]

# The constants have the literal as their type, so mypy follows comparisons with them.
INDEPENDENT: Literal["independent"] = "independent"
DEPENDENT: Literal["dependent"] = "dependent"
OPEN: Literal["open"] = "open"


class Verdict(msgspec.Struct, frozen=True):
    """Whether requests may share an execution without changing each other's answers.

    `rows` is "independent" (each row of each output depends on that row of the inputs alone),
    "dependent" (some operator mixes rows) or "open" (nobody can tell before it has run). `reason`
    says why in a few words, naming the operator that decided: it stands in the log, in the index
    and in the statistics. `has_batch_dim` is false if the first dim is known to be no batch dim,
    so that the model takes any length of it, and max_batch_size becomes 0. `is_quantised` is true
    if rows depend on each other only in the scales of dynamic quantisation, which are those of the
    whole batch: what changes is how numbers are rounded.
    """

    rows: Rows
    reason: str = ""
    has_batch_dim: bool = True
    is_quantised: bool = False


UNKNOWN = Verdict(OPEN, "the model's file does not tell")
"""The verdict on models whose framework, or whose backend, says nothing."""


class Joining(msgspec.Struct):
    """Whether the requests of one loaded version are joined, and why; both may change as it serves.

    `state` is "joined", "alone" (each request runs by itself, always) or "compared" (each runs by
    itself, while joined runs are compared with it). An empty `reason` means that its configuration
    leaves no choice, as with max_batch_size 0. `is_risky`: it is joined as its configuration asks,
    though its rows are known to depend on each other.
    """

    state: Literal["joined", "alone", "compared"] = "alone"
    reason: str = ""
    is_risky: bool = False

    @property
    def never_joins(self) -> bool:
        """Whether requests could be joined, by the configuration, and are not."""
        return self.state == "alone" and bool(self.reason)


AS_CONFIGURED = Joining()
"""For models that have no choice, or whose configuration was not asked."""
