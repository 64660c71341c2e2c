"""Ray's errors."""


class RayError(Exception):
    """Any."""


class GetTimeoutError(RayError):
    """An answer took too long."""


class RayTaskError(RayError):
    """The other side raised something."""


class ActorUnavailableError(RayError):
    """It may be there again."""
