"""The standard streams of the process: what is done where one is closed, full, or no UTF-8."""

import codecs
import os
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any

_ESCAPED = "inferd-escaped"


class OutputFailed(OSError):
    """Standard output cannot be written, and nobody has closed it."""


class _Output(FileIO):
    """Standard output, whose errors tell that they are its own."""

    def write(self, data: Any, /) -> Any:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(error.errno, error.strerror) from error


def prepare_streams() -> None:
    """Give closed streams a place, and let any text be written to standard output."""
    # Python has None for a stream that was closed, as by >&- in a shell. Its number would be the
    # next file's or socket's, so it is taken.
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    is_closed = sys.stdout is None
    if is_closed:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if is_closed or not isinstance(sys.stdout, TextIOWrapper):
        return
    # Not every locale has UTF-8, and names of arguments may be none.
    codecs.register_error(_ESCAPED, _escaped)
    before = sys.stdout  # which sys.__stdout__ keeps open
    sys.stdout = TextIOWrapper(
        BufferedWriter(_Output(before.fileno(), "w", closefd=False)),
        encoding=before.encoding,
        errors=_ESCAPED if before.errors == "strict" else before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Return what an encoding lacks as JSON writes it, so that JSON stays what it is."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)), error.end


def drop_output() -> None:
    """Let standard output end in nothing: Python would complain at exit, when it flushes it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
