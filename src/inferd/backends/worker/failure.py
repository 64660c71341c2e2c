"""Failures that only workers know."""

from inferd.errors import Code, InferdError, Unavailable


class Lost(Unavailable):
    """The worker process ended while the request was in it."""

    is_lost = True


class Untaken(Lost):
    """The worker process had ended before the request came to it."""

    is_untaken = True


class UnknownFailure(InferdError):
    """The model says that it does not know why."""

    code = Code.UNKNOWN
