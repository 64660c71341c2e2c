"""Archives: safe unpacking of environments packed by conda-pack or venv-pack."""

import re
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from inferd.backends.worker.environments.tar_filter import Outside, inside
from inferd.errors import InvalidConfig

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
_INTERPRETER = re.compile(rf"(\./)?([^/]+/)?bin/{_NAME.pattern}")


class Limits(msgspec.Struct, frozen=True):
    """What an archive may hold, and how long it may take to unpack."""

    max_bytes: int = 64 << 30
    max_files: int = 2_000_000
    timeout_s: float = 1800.0


def unpack(archive: Path, target: Path, limits: Limits, place: str, check: Check = CHECK) -> None:
    """Unpack `archive` into the new folder `target`; `place` begins every error text.

    `check` filters each member. Raises InvalidConfig for a file that is no archive or holds too
    much, and for members that would lie outside. What was unpacked until then is left behind.
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
                    msg = f"{place} was not unpacked within {limits.timeout_s:g} s"
                    raise InvalidConfig(msg)
                allowed = member if _leads_away(member) else check(member, str(target))
                # Filtered already, so tarfile's own filter, the default from 3.14 on, is turned
                # off: it would refuse the interpreter's link.
                source.extract(allowed, target, **_AS_IT_IS)
    except _DAMAGES as error:
        msg = f"{place} cannot be unpacked: {_reason(error)}"
        raise InvalidConfig(msg) from error


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
