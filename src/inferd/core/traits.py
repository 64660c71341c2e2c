"""Traits: what a backend, and an open instance, promise; the server runs their models accordingly.

All that the server knows of them is said here, or is one more protocol in `core.interfaces` that
they have. Whoever says nothing promises nothing: the usual values are safe for any framework.
"""

from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from inferd.core.rows import UNKNOWN, Verdict


class Traits(msgspec.Struct, frozen=True):
    """What holds of all models of a backend.

    `is_bounded`: an execution always ends by itself, in a time that the sizes of its inputs
    determine; `is_concurrent`: one instance may execute in several threads at once. Only with both
    may short executions run on the event loop. One that `joins` gets the requests of a batch as
    one, joined along the batch dim, with ragged inputs and batch_input as the configuration says;
    others get a batch as several requests. With `opens_in_turn` the instances of a version are
    opened one after the other. `is_lax`: the authors of its models have always been free to leave
    outputs out and to give them any shape.
    """

    is_bounded: bool = False
    is_concurrent: bool = False
    joins: bool = False
    opens_in_turn: bool = False
    is_lax: bool = False


class Turn(AbstractContextManager[None], Protocol):
    """What an instance shares with others: its thread enters it, and runs requests inside."""

    def renew(self) -> None:
        """Let others whose turn it is run. Raises Unavailable if the instance was closed."""
        ...


class InstanceTraits(msgspec.Struct, frozen=True):
    """What holds of one instance.

    One that is not `is_bounded` cannot keep that promise of its backend. One that
    `works_elsewhere` takes all requests of a batch and joins them itself. Its thread enters `turn`,
    if there is one, before it takes a request, and may have to wait there. `verdict` is what is
    known of the rows of its model.
    """

    is_bounded: bool = True
    works_elsewhere: bool = False
    turn: Turn | None = None
    verdict: Verdict = UNKNOWN


USUAL = InstanceTraits()
"""The traits of an instance that says nothing."""


def traits_of(instance: object) -> InstanceTraits:
    """Return what an open instance says of itself in its attribute `traits`, if it has one."""
    # The one place where the attribute may be missing: fakes and backends of other packages say
    # nothing.
    found: InstanceTraits = getattr(instance, "traits", USUAL)
    return found
