"""Every error inferd raises on purpose, each with one protocol-neutral reason.

The code that raises knows the reason; `inferd.wire` maps reasons to the statuses of each
API, `inferd.http.grpc.status` to those of gRPC.
"""

import enum
import re

MAX_FOREIGN = 1000
"""The most characters repeated of the text of an exception that is not ours."""


class Code(enum.Enum):
    """Why something failed, in protocol-neutral words. The first eight reasons are Triton's."""

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
    """The base class of every error raised on purpose. Its text is written for the client."""

    code = Code.INTERNAL
    is_lost = False
    """Whether the worker that had the request ended: not its fault, another may run it."""
    is_untaken = False
    """Whether nothing ever ran the request, so that running it is no repetition."""
    retry_s = 0
    """The seconds after which a retry is worthwhile; 0: not known."""

    @property
    def message(self) -> str:
        """The text sent to the client; lone surrogates, which no protocol carries, are escaped."""
        text = str(self.args[0]) if self.args else self.code.value
        return text if text.isascii() else text.encode(errors="backslashreplace").decode()


class InvalidRequest(InferdError):
    """The request is malformed or does not fit the model: shape, type, missing input, bad body."""

    code = Code.INVALID_ARG


class UnknownCall(InferdError):
    """The call does not say which of several things is wanted, or names an unknown one."""

    code = Code.UNKNOWN


FieldPath = tuple[str | int, ...]
"""The way to a field of config.pbtxt: names, and the number or key of one of several."""


class InvalidConfig(InferdError):
    """A model or server configuration is wrong; the text names file, line and field.

    `path` is the field's, () if it is not known; `line` and `column` are set, counted from 1, if
    the file cannot be read there.
    """

    code = Code.INVALID_ARG
    line = column = 0

    def __init__(self, message: str, path: FieldPath = ()) -> None:
        super().__init__(message)
        self.path = path


class NoVersion(InvalidConfig):
    """A model has no versions, or its version policy chooses none of them."""


class NoDatatype(InvalidConfig):
    """An input or output of a model's configuration has no datatype."""


class NotUnique(InvalidConfig):
    """Several models in the repositories have the name, so none of them is meant."""


class NotLoadable(InferdError):
    """What a load asks for is in no repository, or cannot be read there."""

    code = Code.INTERNAL  # not NOT_FOUND: Triton's answer, which clients know


class LoadFailed(InferdError):
    """A version of the model to be loaded failed to load; the text has the reasons."""

    code = Code.INVALID_ARG


class ModelNotFound(InferdError):
    """No such model, or no such version of it."""

    code = Code.NOT_FOUND


class RegionNotFound(InferdError):
    """No shared memory region is registered under that name."""

    code = Code.NOT_FOUND


class RegionFailed(InferdError):
    """Shared memory cannot be opened, is smaller than declared, or too small for an output."""

    code = Code.INTERNAL


class ServiceNotFound(InferdError):
    """The server has no service of that name (gRPC health checking)."""

    code = Code.NOT_FOUND


class DocumentNotFound(InferdError):
    """The server hands out no document of that name, or has nothing at that URL."""

    code = Code.NOT_FOUND


class AlreadyExists(InferdError):
    """The name is taken."""

    code = Code.ALREADY_EXISTS


class Unavailable(InferdError):
    """Not ready, draining, queue full, or timed out in a queue."""

    code = Code.UNAVAILABLE


class Overloaded(Unavailable):
    """There is more to do than the server takes on; a client may retry a little later."""

    retry_s = 1


class TooLarge(InferdError):
    """A request that takes more memory than there may ever be for it."""

    code = Code.TOO_LARGE


class Unsupported(InferdError):
    """There is no backend for it, or the feature is off."""

    code = Code.UNSUPPORTED


class Cancelled(InferdError):
    """The client gave up the request."""

    code = Code.CANCELLED


class Restricted(InferdError):
    """The call belongs to a restricted API, and lacks the header that grants access."""

    code = Code.RESTRICTED


class Unauthenticated(InferdError):
    """The call has no API key, or an unknown one."""

    code = Code.UNAUTHENTICATED


class Forbidden(InferdError):
    """The API key is valid, but not for this call, or nobody, or no such web page, may make it."""

    code = Code.FORBIDDEN


class Refused(InferdError):
    """A server refused a call of one of our clients; `reason` is its protocol's status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class BackendFailed(InferdError):
    """The framework failed; its own exception is the __cause__."""

    code = Code.INTERNAL


def foreign_text(error: BaseException) -> str:
    """Return what clients may see of an exception that is not ours: its type and text.

    Of paths only the last component is kept, of a long text both ends, and of XGBoost's texts not
    the stack of C++ behind them, which has addresses in the server's memory.
    """
    try:
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:  # noqa: BLE001  its own __str__ fails
        text = type(error).__name__
    text = _PATH.sub("", _STACK.sub("", text))
    if len(text) > MAX_FOREIGN:
        text = f"{text[: MAX_FOREIGN // 2]} ... {text[-MAX_FOREIGN // 2 :]}"
    return text


_STACK = re.compile(r"\nStack trace:\n\s*\[bt\].*", re.DOTALL)
_PATH = re.compile(r"(?:file://|(?<![\w.:/]))(?:/[^\s/'\":,;()]+)+/(?=[^\s/])")
