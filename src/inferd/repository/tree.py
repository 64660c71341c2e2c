"""The files below a model's folder: lists them, and finds links that lead out of the repository."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

MAX_DEPTH = 32
"""Files in folders nested more deeply are not listed."""

NO_MODELS = ("__pycache__", "lost+found")
"""Folders that Python and file systems create anywhere; like hidden ones, they hold no models."""

_TEMPORARY = ("~", ".pyc", ".swp")


class ModelFile(NamedTuple):
    """One file; `path` is relative to the folder where the walk began, with slashes."""

    path: str
    size: int
    modified_ns: int


def walk(folder: Path) -> Iterator[ModelFile]:
    """Yield the files below `folder`, following links, in the order of their names.

    Files that Python and editors leave behind are skipped: caches, hidden files, backups. So are
    files that vanish meanwhile, and folders that contain themselves through a link.
    """
    yield from _walk(folder, "", ())


def entries_of(file: Path) -> Iterator[ModelFile]:
    """Yield the entry of a model file, or those of a folder in its place."""
    if file.is_dir():
        yield from walk(file)
    else:
        with suppress(OSError):
            found = file.stat()
            yield ModelFile(file.name, found.st_size, found.st_mtime_ns)


def is_noise(name: str) -> bool:
    """Tell whether a file or folder called `name` does not belong to the model."""
    return name.startswith((".", "#")) or name in NO_MODELS or name.endswith(_TEMPORARY)


def link_out(folder: Path, root: Path) -> str | None:
    """Return the first link at or below `folder` that leads out of `root`, None if there is none.

    The path is relative to `root`, which contains `folder`.
    """
    end = os.path.realpath(root)
    for path in chain((folder,), _everything_below(folder)):
        # realpath of the end, not of the link alone: a link may lead out through another one.
        if os.path.islink(path) and not _is_below(os.path.realpath(path), end):
            return path.relative_to(root).as_posix()
    return None


def _walk(folder: Path, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[ModelFile]:
    for name in _names(folder):
        if is_noise(name):
            continue
        try:
            found = os.stat(folder / name)
        except OSError:
            continue
        if not stat.S_ISDIR(found.st_mode):
            yield ModelFile(prefix + name, found.st_size, found.st_mtime_ns)
        # Device and inode are what a folder is: a link back to a folder
        # above has another path each time.
        elif (here := (found.st_dev, found.st_ino)) not in above and len(above) < MAX_DEPTH:
            yield from _walk(folder / name, f"{prefix}{name}/", (*above, here))


# Without recursion, whose depth an upload or a repository could exceed.
def _everything_below(folder: Path) -> Iterator[Path]:
    """Yield all below `folder`, however deep, hidden files too; only `folder` may be a link."""
    left = [folder]
    while left:
        path = left.pop()
        for name in _names(path):
            found = path / name
            yield found
            if found.is_dir() and not found.is_symlink():
                left.append(found)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _is_below(path: str, root: str) -> bool:
    # Not startswith: /models2 is not below /models.
    return os.path.commonpath((path, root)) == root
