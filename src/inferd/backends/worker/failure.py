"""Errors specific to workers.

Not compiled: compiled code knows no attributes of a class that a class below it replaces.
"""

from inferd.errors import Code, InferdError, Unavailable


class Lost(Unavailable):
    """The worker process ended while the request was in it."""

    is_lost = True


class Untaken(Lost):
    """The request was never begun: the worker had ended, or had no room for it."""

    is_untaken = True


class UnknownFailure(InferdError):
    """The model reported the error code UNKNOWN."""

    code = Code.UNKNOWN


class NotFoundFailure(InferdError):
    """The model reported the error code NOT_FOUND; the model itself was found."""

    code = Code.NOT_FOUND
