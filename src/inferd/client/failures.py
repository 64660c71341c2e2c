"""Failures of connections as errors of the client, with what to look at next."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from inferd.client.errors import (
    BadAnswer,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    DeadlineExceeded,
)
from inferd.client.target import ServerTarget
from inferd.errors import InvalidRequest

_SHOWN = 60


def out_of_time() -> DeadlineExceeded:
    """Return the error for a call whose time is up."""
    return DeadlineExceeded("the call took longer than its time limit (timeout_s)")


def connect_failed(target: ServerTarget, error: Exception) -> ClientError:
    """Return the error for a server that cannot be connected to."""
    if isinstance(error, ssl.SSLCertVerificationError):
        msg = (
            f"{target}: the server's certificate is not trusted: {error.verify_message}; name its "
            f"authority with ca_file"
        )
    elif isinstance(error, ssl.SSLError):
        plain = target.scheme.removesuffix("s")
        msg = f"{target}: no TLS there ({error.reason or error}); is it {plain}://?"
    elif isinstance(error, TimeoutError):
        msg = f"{target} does not answer: the connection took too long (connect_timeout_s)"
    elif isinstance(error, ConnectionRefusedError):
        msg = f"no server listens at {target}"
    else:
        msg = f"cannot connect to {target}: {error}"
    return ConnectFailed(msg, is_final=isinstance(error, ssl.SSLError))


def not_http(target: ServerTarget, start: bytes) -> BadAnswer:
    """Return the error for an answer that begins with `start`, which is no HTTP/1."""
    hint = ""
    # An alert or a handshake record of TLS (RFC 8446, section 5.1) of version 3.x.
    if start[:2] in (b"\x15\x03", b"\x16\x03"):
        hint = "; it is TLS: write https://"
    # SETTINGS as the first frame (RFC 9113, section 3.4), or GOAWAY, both on stream 0.
    elif start[3:4] == b"\x04" or start[3:9] == b"\x07\x00\x00\x00\x00\x00":
        hint = "; it is HTTP/2: write grpc:// if this is the port for gRPC"
    return BadAnswer(f"{target} does not answer with HTTP but {start[:_SHOWN]!r}{hint}")


def not_http2(target: ServerTarget, start: bytes) -> BadAnswer:
    """Return the error for an answer that begins with `start`, which is no HTTP/2."""
    hint = ""
    if start[:2] in (b"\x15\x03", b"\x16\x03"):
        hint = "; it is TLS: write grpcs://"
    elif start.startswith(b"HTTP/"):
        hint = "; it is HTTP/1: write http:// if this is the port for REST"
    return BadAnswer(f"{target} does not answer with HTTP/2 but {start[:_SHOWN]!r}{hint}")


def as_client_error(error: OSError) -> ClientError:
    """Return the error for a connection that broke; a DeadlineExceeded is one already."""
    if isinstance(error, ClientError):
        return error
    if isinstance(error, TimeoutError):  # Windows has one of its own
        return out_of_time()
    return ConnectionLost(f"the connection to the server broke: {error}")


@contextmanager
def client_errors() -> Iterator[None]:
    """Raise errors of the system as errors of the client."""
    try:
        yield
    except OSError as error:
        raise as_client_error(error) from None


def not_sendable(error: UnicodeEncodeError) -> InvalidRequest:
    """Return the error for a text with half a surrogate pair, as names of files may have it."""
    return InvalidRequest(f"{error.object!a} cannot be sent: it is no text that UTF-8 has")


@contextmanager
def sendable() -> Iterator[None]:
    """Raise what encoding a text raises as InvalidRequest."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise not_sendable(error) from None
