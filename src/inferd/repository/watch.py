"""ModelWatch: finds the models whose files have changed since the last look.

A model is unchanged while its files have the same names, sizes and modification times. The newest
time alone would miss a file that was replaced by an older one. The times of folders say nothing:
Python and editors leave caches and backups there, which are passed over. Only which version folders
there are counts, for those of ensembles are empty.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from inferd.config.checks import CONFIG_FILE
from inferd.errors import NotLoadable
from inferd.repository.layout import is_version
from inferd.repository.repositories import ModelPath, Repositories
from inferd.repository.tree import ModelFile, entries_of, walk

_CONFIGS = "configs/"


class Marks(msgspec.Struct, frozen=True):
    """Digests of the names, sizes and times of a model's files: one per version folder, by name.

    `config` covers the configuration files, `shared` all other files.
    """

    config: bytes
    shared: bytes
    versions: dict[str, bytes]


NO_MARKS = Marks(b"", b"", {})
"""The marks of files that are not watched."""


class ModelWatch:
    """Compares the models of `repositories` with what it saw at the last look.

    `look` is called in a thread, one call at a time; others may call `forget` meanwhile.
    """

    def __init__(self, repositories: Repositories) -> None:
        self._repositories = repositories
        self._seen: dict[str, list[Marks]] = {}
        self._forgotten: set[str] = set()
        self._code: dict[str, Path] = {}

    def look(self) -> list[str]:
        """Return the names of the models that are new, gone or changed since the last look.

        Raises NotLoadable when a repository cannot be read; then nothing has changed.
        """
        places = self._repositories.places()
        # Exchanged, not cleared: forget may be called from another thread between the two.
        forgotten, self._forgotten = self._forgotten, set()
        before = self._seen
        now = {name: self._marks(name, there) for name, there in places.items()}
        # Only when all have been looked at: a look that fails has seen
        # nothing, and the next one reports it all.
        self._seen = now
        return sorted(
            name
            for name in before.keys() | now.keys() | forgotten
            if before.get(name) != now.get(name) or name in forgotten
        )

    def _marks(self, name: str, places: list[ModelPath]) -> list[Marks]:
        try:
            for place in places:
                self._repositories.fetch(place)
        except NotLoadable:  # keep serving; if it was never fetched, its load will say why
            return self._seen.get(name, [NO_MARKS])
        marks = [marks_at(place) for place in places]
        if (code := self._code.get(name)) is not None:
            # A Python-based backend's model.py lies outside of the repository, and
            # its change is a change of the model.
            marks.append(marks_of(code))
        return marks

    def follow(self, name: str, code: Path | None) -> None:
        """Also watch `code`, the folder of the Python-based backend that runs the model, if any.

        The next look reports the model if the folder was not watched before.
        """
        if code is not None:
            self._code[name] = code
        else:
            self._code.pop(name, None)

    def forget(self, name: str) -> None:
        """Have the next look report the model again, even if it is gone or unchanged."""
        self._forgotten.add(name)


def marks_at(place: ModelPath) -> Marks:
    """Return the marks of the model at `place`."""
    if place.is_file:
        return marks_of(place.path.parent, place.path)
    return marks_of(place.path)


def marks_of(folder: Path, file: Path | None = None) -> Marks:
    """Return the marks of the model in `folder`, or of the bare model `file` in it."""
    if file is not None:
        # The folder of a bare file holds other things as well, which are not the model's.
        return Marks(b"", b"", {"1": _digest(entries_of(file))})
    config: list[ModelFile] = []
    shared: list[ModelFile] = []
    versions: dict[str, list[ModelFile]] = {name: [] for name in _version_names(folder)}
    for entry in walk(folder):
        first, slash, _ = entry.path.partition("/")
        if entry.path == CONFIG_FILE or entry.path.startswith(_CONFIGS):
            config.append(entry)
        elif slash and is_version(first):
            versions.setdefault(first, []).append(entry)
        else:
            shared.append(entry)
    return Marks(
        _digest(config),
        _digest(shared),
        {version: _digest(found) for version, found in versions.items()},
    )


def _version_names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as found:
            # Versions of ensembles are empty folders, in which the walk finds nothing.
            return [one.name for one in found if is_version(one.name) and one.is_dir()]
    except OSError:
        return []


def _digest(entries: Iterable[ModelFile]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for entry in entries:
        digest.update(
            f"{entry.path}\0{entry.size}\0{entry.modified_ns}\0".encode(errors="surrogateescape")
        )
    return digest.digest()
