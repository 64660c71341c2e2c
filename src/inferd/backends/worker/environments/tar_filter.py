"""A filter for tar members, for Pythons whose tarfile has none: before 3.11.4."""

import copy
import os
import tarfile
from pathlib import Path


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
