"""Bodies of changes: long ones, with the files of models, are kept in files, not in messages."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

LONG_BYTES = 1 << 20
"""Longer ones lie in files: the supervisor keeps bodies for as long as processes may need them."""

_HERE, _FILE = b"=", b"@"


def packed(body: bytes, folder: Path) -> bytes:
    """Return what stands for `body` in messages; a file in `folder` may hold it. Raises OSError."""
    # Most changes are the name of a model; those with files of models would go through the
    # supervisor's memory once for each process.
    if len(body) <= LONG_BYTES:
        return _HERE + body
    # In the server's private folder, which goes with the server whatever ends it; mkstemp's names
    # cannot be guessed, and its files are read by this user alone.
    descriptor, path = tempfile.mkstemp(dir=folder, prefix="change-")
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
    return _FILE + os.fsencode(path)


def unpacked(stand_in: bytes) -> bytes:
    """Return the body that `stand_in` stands for. Raises OSError."""
    if stand_in.startswith(_FILE):
        return Path(os.fsdecode(stand_in[1:])).read_bytes()
    return stand_in[1:]


def discard(stand_in: bytes) -> None:
    """Remove the file that holds a body which nobody needs again."""
    if stand_in.startswith(_FILE):
        with suppress(OSError):
            os.unlink(os.fsdecode(stand_in[1:]))
