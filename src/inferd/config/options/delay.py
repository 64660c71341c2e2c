"""DelayedStart: Triton's test hooks, by which a model runs nothing until enough requests wait."""

from collections.abc import Mapping
from dataclasses import dataclass

from inferd.errors import InvalidConfig

DELAY_VARIABLE = "TRITONSERVER_DELAY_SCHEDULER"
BACKLOG_VARIABLE = "TRITONSERVER_BACKLOG_DELAY_SCHEDULER"

_MAX_DIGITS = 9


@dataclass(frozen=True, slots=True)
class DelayedStart:
    """How many requests must wait before a model that batches runs its first one.

    `backlog_count` is how many must wait in sequences that have no slot.
    """

    count: int = 0
    backlog_count: int = 0


NO_DELAY = DelayedStart()
"""Nothing is delayed."""


def read_delayed_start(environment: Mapping[str, str]) -> DelayedStart:
    """Return the delay set by the variables in `environment`. Raises InvalidConfig."""
    return DelayedStart(
        _number(environment, DELAY_VARIABLE), _number(environment, BACKLOG_VARIABLE)
    )


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name) or "0"
    # isdecimal() alone is true for digits of every script.
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        msg = f"environment variable {name} is '{text[:99]}', expected a number of requests"
        raise InvalidConfig(msg)
    return int(text)
