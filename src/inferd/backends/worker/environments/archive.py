"""Archives: safe unpacking of environments packed by conda-pack or venv-pack.

Pythons whose tarfile has no filter for members, before 3.11.4, use the one here.
"""

import copy
import os
import posixpath
import re
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from inferd.errors import InvalidConfig


class Outside(Exception):
    """A member would lie or lead outside the folder, or is no file, folder or link."""

    def __init__(self, member: tarfile.TarInfo) -> None:
        super().__init__(member.name)
        self.tarinfo = member


def inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """Return `member` in the form to unpack into `folder`. Raises Outside.

    Like tarfile.data_filter, but stricter: names must not contain "..", and link targets only at
    the beginning, where no link on the way can change its meaning.
    """
    root = Path(folder).resolve(strict=True)
    member = copy.copy(member)
    member.name = member.name.lstrip("/")
    where = root / member.name
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise Outside(member)
    if ".." in where.parts or not _lies_in(root, where):
        raise Outside(member)
    # A symbolic link is relative to its own folder, a hard link to the root of the archive.
    if member.issym() and not _leads_into(root, where.parent.resolve(), member.linkname):
        raise Outside(member)
    if member.islnk() and not _leads_into(root, root, member.linkname):
        raise Outside(member)
    # Whoever unpacks owns it: as root, tarfile would give files to users of another machine.
    member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
    # No set-uid bits, and nothing that others may write.
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def _leads_into(root: Path, start: Path, link: str) -> bool:
    """Return whether the link target `link`, relative to the folder `start`, lies in `root`."""
    names = [name for name in link.split("/") if name not in ("", ".")]
    while names and names[0] == "..":
        start = start.parent
        del names[0]
    return not link.startswith("/") and ".." not in names and _lies_in(root, start.joinpath(*names))


def _lies_in(root: Path, path: Path) -> bool:
    """Return whether `path`, as far as it exists, lies in `root` with all links resolved."""
    while not os.path.lexists(path):
        path = path.parent
    try:
        return path.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):  # a dangling link, or a loop of links
        return False


Check = Callable[[tarfile.TarInfo, str], tarfile.TarInfo]
"""Returns a member in the form to unpack into a folder. Raises Outside or tarfile.FilterError."""

CHECK: Check = getattr(tarfile, "data_filter", inside)  # missing in Pythons before 3.11.4

_AS_IT_IS: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
_DAMAGES = (
    *(tarfile.TarError, Outside, EOFError, OSError),
    # What tarfile lets through: of names with a zero byte, of links to members that are not there
    # or to themselves, of times that no clock has.
    *(ValueError, LookupError, RecursionError, OverflowError),
)
_OUTSIDE = (Outside, getattr(tarfile, "FilterError", Outside))
_NAME = re.compile(r"python[0-9.]*")
_INTERPRETER = re.compile(rf"(\./)?((?!\.\.)[^/]+/)?bin/{_NAME.pattern}")


class Limits(msgspec.Struct, frozen=True):
    """What an archive may hold, and how long it may take to unpack."""

    max_bytes: int = 64 << 30
    max_files: int = 2_000_000
    timeout_s: float = 1800.0


def unpack(
    archive: Path,
    target: Path,
    limits: Limits,
    place: str,
    check: Check = CHECK,
    *,
    without: str = "",
) -> None:
    """Unpack `archive` into the new folder `target`; `place` begins every error text.

    `check` filters each member; the file `without` is left out. Raises InvalidConfig for a file
    that is no archive or holds too much, and for members that would lie outside. What was unpacked
    until then is left behind.
    """
    deadline_s = time.monotonic() + limits.timeout_s
    free_bytes = shutil.disk_usage(target.parent).free
    most = min(limits.max_bytes, free_bytes)
    target.mkdir()
    total = count = 0
    try:
        # From front to back: to seek back in a compressed file would unpack it again.
        with tarfile.open(archive, "r|*") as source:
            for member in source:
                # As announced: extract writes no more than that.
                total += member.size
                count += 1
                if total > most or count > limits.max_files:
                    msg = f"{place} holds more than {most} bytes or {limits.max_files} files"
                    raise InvalidConfig(msg)
                if time.monotonic() > deadline_s:
                    raise InvalidConfig(f"{place} was not unpacked within {limits.timeout_s:g} s")
                allowed = member if _leads_away(member) else check(member, str(target))
                if posixpath.normpath(allowed.name) == without:
                    continue
                # Filtered already, so tarfile's own filter, the default from 3.14 on, is turned
                # off: it would refuse the interpreter's link.
                source.extract(allowed, target, **_AS_IT_IS)
    except _DAMAGES as error:
        raise InvalidConfig(f"{place} cannot be unpacked: {_reason(error)}") from error


def _leads_away(member: tarfile.TarInfo) -> bool:
    """Return whether this is a link that may lead anywhere: the interpreter of an environment.

    In an environment made by venv, the interpreter is a link to any place, and its other names are
    links to that link.
    """
    link = member.linkname
    is_interpreter = member.issym() and bool(_INTERPRETER.fullmatch(member.name))
    return is_interpreter and (link.startswith("/") or bool(_NAME.fullmatch(link)))


def _reason(error: Exception) -> str:
    if isinstance(error, _OUTSIDE):
        return f"'{error.tarinfo.name}' would lie, or leads, outside of it"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "it is damaged, or no tar archive"
