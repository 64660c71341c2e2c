"""AllowedFolder: the folder in which clients may have the server write files, if any.

A client that could name any path could overwrite the files of the account the server runs as. So
it names a file, not a path, in one folder that the operator has set aside. A file that already
exists there is never overwritten, and only appended to if it is a regular file: not a link that
leads elsewhere, nor a pipe that would block the server.
"""

import os
import re
import stat
from pathlib import Path
from typing import TextIO

from inferd.errors import InvalidRequest, Unsupported

# No dot at the beginning, so neither "." nor ".." nor a hidden file.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


MAX_NAMES = 100
"""How many files clients may name while the server runs."""


class AllowedFolder:
    """One folder and the option that names it; with `path` None clients may write nowhere."""

    def __init__(self, path: Path | None, option: str, *, max_names: int = MAX_NAMES) -> None:
        self.path = path
        self._option = option
        self._max_names = max_names
        self._named: set[str] = set()

    def place(self, setting: str, name: str, *, must_be_new: bool = False) -> Path:
        """Return the path of the file `name`, which a client gave as `setting`.

        With `must_be_new`, no file of that name may exist before a client first names it. Raises
        Unsupported when there is no folder, InvalidRequest for a name that is not plain, is taken,
        or is one too many.
        """
        if self.path is None:
            raise Unsupported(
                f"{setting.replace('_', ' ')} location can not be updated through network "
                f"protocol: {setting} is the server's own; its option {self._option} can allow "
                f"clients one folder"
            )
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"{setting} must be a file name, not a path: up to 200 letters, digits and . _ -; "
                f"it lies in the folder of the server's option {self._option}"
            )
        if name not in self._named:
            self._add(setting, name, must_be_new=must_be_new)
        return self.path / name

    def _add(self, setting: str, name: str, *, must_be_new: bool) -> None:
        if len(self._named) >= self._max_names:
            msg = f"{setting}: clients have named {self._max_names} files, the most there may be"
            raise InvalidRequest(msg)
        # Also true for a link that leads nowhere: opening it would make its target.
        if must_be_new and os.path.lexists(f"{self.path}/{name}"):
            msg = f"{setting}: there is a file '{name}' already, which is not written over"
            raise InvalidRequest(msg)
        self._named.add(name)


def open_plain(path: Path, flags: int) -> int:
    """Open `path` for writing if it is a regular file or does not exist; return the descriptor.

    `flags` are added to os.O_WRONLY and os.O_CREAT. Raises OSError.
    """
    # Opening a pipe without a reader would block (O_NONBLOCK), and a link in the last part of the
    # path would lead out of the folder (O_NOFOLLOW). Windows has neither flag.
    safe = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | safe | flags, 0o666)
    # Asked of the descriptor, not of the path, which may become another file in between.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is not a plain file")
    return descriptor


def open_log(path: Path, *, is_named_by_client: bool) -> TextIO:
    """Open a log file for appending. Raises OSError."""
    target = open_plain(path, os.O_APPEND) if is_named_by_client else path
    # Names of clients may have lone surrogates, which UTF-8 cannot say: a line must not be lost.
    return open(target, "a", encoding="utf-8", errors="backslashreplace")
