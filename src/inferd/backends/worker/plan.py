"""WorkerPlan: how a worker is run."""

from collections.abc import Callable
from typing import Any

import msgspec

from inferd.backends.worker.process import WorkerProcess
from inferd.backends.worker.reshapes import Reshapes
from inferd.core.interfaces import always

AHEAD = 16
"""The most executions a worker may be given at once, if they are short."""


Make = Callable[[Callable[[str, bool], None]], WorkerProcess]
"""Makes the process, given what takes each line it prints, and whether that went to stderr."""


class WorkerPlan(msgspec.Struct, frozen=True):
    """How one worker is run: `settings` is the document of START.

    `timeout_s` bounds an execution, 0 for no limit; `start_timeout_s` bounds the start, which is
    given up once `is_wanted` returns False. With `retries`, requests lost with a process run once
    more. `ahead` is how many executions the worker may be given at once; if it answers each before
    it begins the next (`answers_each`), those behind the first had not begun when a process ends.
    `reshapes` are for a worker that does not know its configuration. `growth_setting` is the
    backend's setting that gives it more shared memory, if any.
    """

    model: str
    version: int
    settings: dict[str, Any]
    make: Make
    start_timeout_s: float
    is_wanted: Callable[[], bool] = always
    timeout_s: float = 0.0
    retries: bool = False
    ahead: int = 1
    answers_each: bool = False
    reshapes: Reshapes | None = None
    growth_setting: str = ""
