"""Every error inferd raises on purpose, each with one neutral reason.

The raiser knows the reason; each wire file owns the table from reason to its protocol's status.
"""

import enum
import re

MAX_FOREIGN = 1000
"""Of the text of an exception that is not ours so much is repeated."""


class Code(enum.Enum):
    """Why something failed, in words no protocol owns. The first eight reasons are Triton's."""

    UNKNOWN = "unknown"
    INTERNAL = "internal"
    NOT_FOUND = "not found"
    INVALID_ARG = "invalid argument"
    UNAVAILABLE = "unavailable"
    UNSUPPORTED = "unsupported"
    ALREADY_EXISTS = "already exists"
    CANCELLED = "cancelled"
    RESTRICTED = "restricted"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    TOO_LARGE = "too large"


class InferdError(Exception):
    """The root: anything raised on purpose. Its text is written for the client."""

    code = Code.INTERNAL
    is_lost = False
    """Whether it says nothing about the request: what ran it went away, another may run it."""
    is_untaken = False
    """Whether nothing ever ran it, so that running it is no repetition."""
    retry_s = 0
    """After so many seconds it is worth trying again; 0: that is not known."""

    @property
    def message(self) -> str:
        """The text, as sent to the client; half a character, which no protocol takes, escaped."""
        text = str(self.args[0]) if self.args else self.code.value
        return text if text.isascii() else text.encode(errors="backslashreplace").decode()


class InvalidRequest(InferdError):
    """The request is malformed or does not fit the model: shape, type, missing input, bad body."""

    code = Code.INVALID_ARG


class UnknownCall(InferdError):
    """A call that does not say which of several things is wanted, or none of them."""

    code = Code.UNKNOWN


class InvalidConfig(InferdError):
    """A model or server configuration is wrong; the text names file, line and field."""

    code = Code.INVALID_ARG


class NoVersion(InvalidConfig):
    """A model's version policy chooses none of the versions there are, or there are none."""


class NoDatatype(InvalidConfig):
    """An input or output of a model's configuration has no datatype."""


class NotUnique(InvalidConfig):
    """Several models in the repositories have the name, so none of them is meant."""


class NotLoadable(InferdError):
    """What a load asks for lies in no repository, or cannot be read there."""

    code = Code.INTERNAL  # not NOT_FOUND: Triton's answer, which clients know


class LoadFailed(InferdError):
    """A version of the model that is to be loaded did not come up; the text has the reasons."""

    code = Code.INVALID_ARG


class ModelNotFound(InferdError):
    """No such model, or no such version of it."""

    code = Code.NOT_FOUND


class RegionNotFound(InferdError):
    """No shared memory region is registered under that name."""

    code = Code.NOT_FOUND


class RegionFailed(InferdError):
    """Shared memory that cannot be opened, is smaller than was said, or too small for an output."""

    code = Code.INTERNAL


class ServiceNotFound(InferdError):
    """The server has no service of that name (gRPC health checking)."""

    code = Code.NOT_FOUND


class AlreadyExists(InferdError):
    """The name is taken."""

    code = Code.ALREADY_EXISTS


class Unavailable(InferdError):
    """Not ready, draining, queue full, or timed out while queued."""

    code = Code.UNAVAILABLE


class Overloaded(Unavailable):
    """There is more to do than the server takes on; it may be asked again a little later."""

    retry_s = 1


class TooLarge(InferdError):
    """A request that takes more memory than there may ever be for it."""

    code = Code.TOO_LARGE


class Unsupported(InferdError):
    """No backend for it, or the feature is off."""

    code = Code.UNSUPPORTED


class Cancelled(InferdError):
    """The client gave the request up."""

    code = Code.CANCELLED


class Restricted(InferdError):
    """The call belongs to a restricted API, and lacks the header that opens it."""

    code = Code.RESTRICTED


class Unauthenticated(InferdError):
    """The call came without an API key, or with one that is not known."""

    code = Code.UNAUTHENTICATED


class Forbidden(InferdError):
    """The API key is good, but not for this call."""

    code = Code.FORBIDDEN


class Refused(InferdError):
    """What a server answered to one of our clients; `reason` is the word of its protocol."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class BackendFailed(InferdError):
    """The framework failed; its own exception is the __cause__."""

    code = Code.INTERNAL


def foreign_text(error: BaseException) -> str:
    """Return what an exception that is not ours may tell clients: its type and text.

    Of paths only the last name is kept, and of a long text both ends.
    """
    try:
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:  # noqa: BLE001  one that cannot even say what is wrong
        text = type(error).__name__
    text = _PATH.sub("", text)
    if len(text) > MAX_FOREIGN:
        text = f"{text[: MAX_FOREIGN // 2]} ... {text[-MAX_FOREIGN // 2 :]}"
    return text


_PATH = re.compile(r"(?:file://|(?<![\w.:/]))(?:/[^\s/'\":,;()]+)+/(?=[^\s/])")
