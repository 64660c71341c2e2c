"""Every error inferd raises on purpose, each with one neutral reason.

The raiser knows the reason; each wire file owns the table from reason to its protocol's status.
"""

import enum


class Code(enum.Enum):
    """Why something failed, in words no protocol owns. The eight reasons are Triton's."""

    UNKNOWN = "unknown"
    INTERNAL = "internal"
    NOT_FOUND = "not found"
    INVALID_ARG = "invalid argument"
    UNAVAILABLE = "unavailable"
    UNSUPPORTED = "unsupported"
    ALREADY_EXISTS = "already exists"
    CANCELLED = "cancelled"


class InferdError(Exception):
    """The root: anything raised on purpose. Its text is written for the client."""

    code = Code.INTERNAL

    @property
    def message(self) -> str:
        """The text, as sent to the client."""
        return str(self.args[0]) if self.args else self.code.value


class InvalidRequest(InferdError):
    """The request is malformed or does not fit the model: shape, type, missing input, bad body."""

    code = Code.INVALID_ARG


class InvalidConfig(InferdError):
    """A model or server configuration is wrong; the text names file, line and field."""

    code = Code.INVALID_ARG


class ModelNotFound(InferdError):
    """No such model, or no such version of it."""

    code = Code.NOT_FOUND


class RegionNotFound(InferdError):
    """No shared memory region is registered under that name."""

    code = Code.NOT_FOUND


class ServiceNotFound(InferdError):
    """The server has no service of that name (gRPC health checking)."""

    code = Code.NOT_FOUND


class AlreadyExists(InferdError):
    """The name is taken."""

    code = Code.ALREADY_EXISTS


class Unavailable(InferdError):
    """Not ready, draining, queue full, or timed out while queued."""

    code = Code.UNAVAILABLE


class Unsupported(InferdError):
    """No backend for it, or the feature is off."""

    code = Code.UNSUPPORTED


class Cancelled(InferdError):
    """The client gave the request up."""

    code = Code.CANCELLED


class BackendFailed(InferdError):
    """The framework failed; its own exception is the __cause__."""

    code = Code.INTERNAL
