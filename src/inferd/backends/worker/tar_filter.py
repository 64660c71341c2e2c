"""What of a tar archive may be unpacked, for Pythons whose tarfile does not know: before 3.11.4."""

import copy
import os
import tarfile
from pathlib import Path


class Outside(Exception):
    """A member would lie outside of the folder, or leads there, or is no file, folder or link."""

    def __init__(self, member: tarfile.TarInfo) -> None:
        super().__init__(member.name)
        self.tarinfo = member


def inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """Return `member` as it may be unpacked into `folder`. Raises Outside.

    As tarfile.data_filter does, but stricter: no name has a ".." in it, and in the target of a
    link there are some at its beginning alone, where they mean what they say whatever links lie
    on the way.
    """
    root = Path(folder).resolve(strict=True)
    member = copy.copy(member)
    member.name = member.name.lstrip("/")
    where = root / member.name
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise Outside(member)
    if ".." in where.parts or not _lies_in(root, where):
        raise Outside(member)
    if member.issym() and not _leads_into(root, where.parent.resolve(), member.linkname):
        raise Outside(member)
    if member.islnk() and not _leads_into(root, root, member.linkname):
        raise Outside(member)
    member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def _leads_into(root: Path, start: Path, link: str) -> bool:
    """Tell whether the link target `link`, seen from the folder `start`, lies in `root`."""
    names = [name for name in link.split("/") if name not in ("", ".")]
    while names and names[0] == "..":
        start = start.parent
        del names[0]
    return not link.startswith("/") and ".." not in names and _lies_in(root, start.joinpath(*names))


def _lies_in(root: Path, path: Path) -> bool:
    """Tell whether `path`, or what there is of it, lies in `root` when all links are followed."""
    while not os.path.lexists(path):
        path = path.parent
    try:
        return path.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):  # it leads nowhere, or round in a circle
        return False
