"""What goes wrong for a client: no server, no answer, an answer that cannot be read, a refusal."""

from collections.abc import Mapping

from inferd.errors import Code, InferdError, Refused

MAX_SHOWN = 1000
"""The most characters of a server's text in an error."""


class ClientError(InferdError):
    """The base class of what a call raises; wrong arguments are InvalidRequest."""


# ValueError as well, since wrong arguments of Python functions are expected to be one.
class InvalidTarget(ClientError, ValueError):
    """The URL of a server, or an option of a client, cannot be used."""

    code = Code.INVALID_ARG


class ConnectFailed(ClientError):
    """There is no connection to the server: nothing was sent."""

    code = Code.UNAVAILABLE
    is_untaken = True

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final
        """Whether trying again is no use: TLS does not match."""


class ConnectionLost(ClientError):
    """The connection ended before the answer; unless `is_untaken`, the call may have been done."""

    code = Code.UNAVAILABLE

    def __init__(self, message: str, *, is_untaken: bool = False) -> None:
        super().__init__(message)
        self.is_untaken = is_untaken


# TimeoutError as well: callers can treat it as that of asyncio or of sockets.
class DeadlineExceeded(ClientError, TimeoutError):
    """The call took longer than `timeout_s`, or the server gave it up for that."""

    code = Code.UNAVAILABLE


class BadAnswer(ClientError):
    """The answer cannot be read, is too large, or is that of another kind of server."""


class ServerError(Refused, ClientError):
    """The server answered with an error, whose text is `message`.

    `reason` is its status, "404" or "NOT_FOUND"; `code` says the same for both protocols. `headers`
    are those of the answer. `retry_after_s` is when the server wants to hear of it again, None if
    it does not say, less than 0 for never.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        code: Code,
        headers: Mapping[str, str],
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(reason, message)
        self.code = code
        self.headers = headers
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        """Return status and text."""
        return f"{self.reason}: {self.message}"


class NotFound(ServerError):
    """The server has no such model, version, region or call."""


class InvalidArgument(ServerError):
    """The request is malformed, or does not fit the model."""


class Denied(ServerError):
    """The call needs an API key or a header, or those given are not enough."""


class Busy(ServerError):
    """Not now: not ready, draining, a queue is full, or there were too many calls."""


KINDS: dict[Code, type[ServerError]] = {
    Code.NOT_FOUND: NotFound,
    Code.INVALID_ARG: InvalidArgument,
    Code.UNAUTHENTICATED: Denied,
    Code.FORBIDDEN: Denied,
    Code.RESTRICTED: Denied,
    Code.UNAVAILABLE: Busy,
}
"""The class of the errors with a code; that of the others is ServerError."""


def server_error(
    reason: str,
    message: str,
    code: Code,
    headers: Mapping[str, str],
    retry_after_s: float | None = None,
) -> ServerError:
    """Return the error for an answer with the status `reason`."""
    kind = KINDS.get(code, ServerError)
    # A proxy's error may be a page of HTML; gRPC and REST may both have none.
    return kind(reason, message[:MAX_SHOWN] or code.value, code, headers, retry_after_s)
