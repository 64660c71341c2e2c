"""Failures on their way back to the origin: an error keeps its class and text."""

import asyncio
import logging

import inferd.errors
from inferd.errors import BackendFailed, Cancelled, Code, InferdError, Unavailable, foreign_text

log = logging.getLogger("inferd.engine")

Failure = tuple[str, str]
"""The name of an error's class, and its text."""

_CLASSES: dict[str, type[InferdError]] = {
    name: kind
    for name, kind in vars(inferd.errors).items()
    # Refused is a client's error, and its constructor takes two arguments.
    if isinstance(kind, type) and issubclass(kind, InferdError) and name != "Refused"
}
# Of several classes with one code the first stays, the most general of the module.
_BY_CODE: dict[Code, str] = {kind.code: name for name, kind in reversed(_CLASSES.items())}


def encode_failure(error: InferdError) -> Failure:
    """Return `error` as a message has it.

    A class that only its own module knows becomes the nearest one with the same reason.
    """
    # Subclasses of other modules cannot be made there: their nearest known base says the same.
    for kind in type(error).__mro__:
        known = _CLASSES.get(kind.__name__)
        if known is kind and known.code is error.code:
            return kind.__name__, error.message
    return _BY_CODE.get(error.code, "InferdError"), error.message


def decode_failure(failure: Failure) -> InferdError:
    """Return the error that `failure` stands for. Raises ValueError for an unknown class."""
    name, text = failure
    kind = _CLASSES.get(name)
    if kind is None:
        raise ValueError(f"an error of class {name!r}")
    return kind(text)


def lost(number: int, why: str) -> InferdError:
    """Return the error of a request that process `number` had when its link ended."""
    msg = f"process {number} of the server, which had the request, {why}; it may have run"
    error = Unavailable(msg)
    # A caller that may run a request twice asks for this.
    error.is_lost = True
    return error


def known(error: BaseException) -> InferdError:
    """Return the error as its origin gets it; one that nobody expected is logged."""
    if isinstance(error, InferdError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return cancelled()
    # The traceback is of use here alone: the origin has other frames.
    log.error("a request of another process failed", exc_info=error)
    return BackendFailed(foreign_text(error))


def cancelled() -> InferdError:
    """Return the error of a request that its origin has given up."""
    return Cancelled("the request was given up")
