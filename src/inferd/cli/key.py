"""inferd key: makes an API key, and adds its hash to the file the server reads."""

import os
import sys
from collections.abc import Sequence

from inferd.config.options.access import API_GROUPS, make_key
from inferd.errors import InvalidConfig

HELP = f"""\
inferd key NAME FILE [GROUPS]

Makes an API key for NAME, prints it, and appends its hash to FILE. inferd serve reads that file
with --api-key-file; a running server accepts the new key within seconds. The key itself is not
stored. To revoke a key, delete its line.

GROUPS, separated by commas, are the calls that the key is valid for (default: all):
{", ".join(API_GROUPS[:6])},
{", ".join(API_GROUPS[6:])}.
"""


def run(arguments: Sequence[str]) -> int:
    """Make a key. Return 0, or 1 when the file cannot be written, 2 for wrong arguments."""
    try:
        if not 2 <= len(arguments) <= 3:
            raise InvalidConfig("expected NAME FILE [GROUPS]")
        name, path, *groups = arguments
        made = make_key(name, *groups)
    except InvalidConfig as error:
        sys.stderr.write(f"inferd key: {error.message}\nSee inferd key --help.\n")
        return 2
    try:
        _append(path, made.line)
    except OSError as error:
        sys.stderr.write(f"inferd key: cannot write {path}: {error.strerror or error}\n")
        return 1
    sys.stdout.write(f"{made.key}\n")
    return 0


def _append(path: str, line: str) -> None:
    """Append `line` in one write, on a line of its own; only the owner can read a new file."""
    # One write at the end of the file, which keeps two commands from mixing their lines; the server
    # may read meanwhile.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        is_fresh_line = file.read(1) in (b"", b"\n")
        file.write(f"{'' if is_fresh_line else chr(10)}{line}\n".encode())
