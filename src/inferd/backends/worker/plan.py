"""Plan: how a worker is run."""

from collections.abc import Callable
from typing import Any

import msgspec

from inferd.backends.worker.process import Process
from inferd.backends.worker.reshapes import Reshapes
from inferd.core.interfaces import always

AHEAD = 16
"""So many executions a worker may be given at once, when they are short."""


class Plan(msgspec.Struct, frozen=True):
    """How one worker is run: `settings` is the document of START.

    `timeout_s` bounds an execution, 0 for any; `start_timeout_s` the start, which is given up when
    it `is_wanted` no more. With `retries` what was lost with a process runs once more. `ahead` is
    how many executions it may be given at once; where it answers each before it begins the next,
    `answers_each`, what stood behind the first was not in a process that has ended. `reshapes` are
    for a worker that does not know its configuration. `growth_setting` is the setting of the
    backend that gives it more shared memory, if one does.
    """

    model: str
    version: int
    settings: dict[str, Any]
    make: Callable[[Callable[[str, bool], None]], Process]
    start_timeout_s: float
    is_wanted: Callable[[], bool] = always
    timeout_s: float = 0.0
    retries: bool = False
    ahead: int = 1
    answers_each: bool = False
    reshapes: Reshapes | None = None
    growth_setting: str = ""
