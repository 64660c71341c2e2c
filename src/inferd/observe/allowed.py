"""AllowedFolder: where clients may have the server write files, if anywhere.

A client that could name any path would write over the files of the account the server runs as. So
it names a file, not a path, in one folder that the operator has set aside; and what already lies
there under that name is only taken if it is a plain file: no link that leads elsewhere, no pipe
that would make the server wait.
"""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from inferd.errors import InvalidRequest, Unsupported

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


@dataclass(frozen=True, slots=True)
class AllowedFolder:
    """One folder and the option that names it; `path` None: clients may write nowhere."""

    path: Path | None
    option: str

    def place(self, setting: str, name: str) -> Path:
        """Return the path of the file `name`, which a client gave as `setting`.

        Raises Unsupported when there is no folder, InvalidRequest for what is no plain name.
        """
        if self.path is None:
            msg = (
                f"{setting} cannot be changed by clients of this server; "
                f"its option {self.option} can allow them one folder"
            )
            raise Unsupported(msg)
        if not _NAME.fullmatch(name):
            msg = (
                f"{setting} must be a file name, not a path: up to 200 letters, digits and . _ -; "
                f"it lies in the folder of the server's option {self.option}"
            )
            raise InvalidRequest(msg)
        return self.path / name


def open_plain(path: Path, flags: int) -> int:
    """Open `path` for writing if it is a plain file or not there yet, and return its descriptor.

    `flags` are added to os.O_WRONLY and os.O_CREAT. Raises OSError.
    """
    safe = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | safe | flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is not a plain file")
    return descriptor


def open_log(path: Path, *, is_named_by_client: bool) -> TextIO:
    """Open a log file to append to. Raises OSError."""
    target = open_plain(path, os.O_APPEND) if is_named_by_client else path
    return open(target, "a", encoding="utf-8", errors="backslashreplace")
