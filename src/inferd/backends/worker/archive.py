"""Archives: packed environments, as conda-pack and venv-pack write them, unpacked with care."""

import re
import shutil
import tarfile
import time
from pathlib import Path

import msgspec

from inferd.errors import InvalidConfig

_NAME = re.compile(r"python[0-9.]*")
_INTERPRETER = re.compile(rf"(\./)?([^/]+/)?bin/{_NAME.pattern}")


class Limits(msgspec.Struct, frozen=True):
    """What an archive may hold, and how long it may take to unpack."""

    max_bytes: int = 64 << 30
    max_files: int = 2_000_000
    timeout_s: float = 1800.0


def unpack(archive: Path, target: Path, limits: Limits, place: str) -> None:
    """Unpack `archive` into the new folder `target`; `place` begins every complaint.

    Raises InvalidConfig for what is no archive, has too much in it, or files that would lie
    outside. What was unpacked until then is left behind.
    """
    if not hasattr(tarfile, "data_filter"):
        msg = f"{place} cannot be unpacked: nothing before Python 3.11.4 does that safely"
        raise InvalidConfig(msg)
    deadline_s = time.monotonic() + limits.timeout_s
    free_bytes = shutil.disk_usage(target.parent).free
    most = min(limits.max_bytes, free_bytes)
    target.mkdir()
    total = count = 0
    try:
        with tarfile.open(archive, "r|*") as source:
            for member in source:
                total += member.size
                count += 1
                if total > most or count > limits.max_files:
                    msg = f"{place} holds more than {most} bytes or {limits.max_files} files"
                    raise InvalidConfig(msg)
                if time.monotonic() > deadline_s:
                    msg = f"{place} was not unpacked within {limits.timeout_s:g} s"
                    raise InvalidConfig(msg)
                source.extract(member, target, filter=_inside)
    except (tarfile.TarError, EOFError, OSError) as error:
        msg = f"{place} cannot be unpacked: {_reason(error)}"
        raise InvalidConfig(msg) from error


def _inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Return what may be unpacked into `folder`. Raises tarfile.FilterError for what may not.

    The interpreter of an environment that venv made is a link to anywhere, and its other names are
    links to that one.
    """
    if member.issym() and _INTERPRETER.fullmatch(member.name):
        target = Path(member.linkname)
        if target.is_absolute() or _NAME.fullmatch(member.linkname):
            return member
    return tarfile.data_filter(member, folder)


def _reason(error: Exception) -> str:
    if isinstance(error, tarfile.FilterError):
        return f"'{error.tarinfo.name}' would lie, or leads, outside of it"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "it is damaged, or no tar archive"
