"""The calls of this process, for module-level functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pb_utils.error import TritonModelException

if TYPE_CHECKING:
    from .pb_utils.calls import Calls

# A list, which can be filled without `global`; a module that is copied for a thread has its own.
_calls: list[Calls] = []


def calls() -> Calls:
    """Return the calls. Raises TritonModelException outside of a process that runs a model."""
    if not _calls:
        raise TritonModelException("this works only where a server runs the model")
    return _calls[0]


def set_calls(one: Calls) -> None:
    """Make `one` the calls of this process."""
    _calls[:] = [one]
