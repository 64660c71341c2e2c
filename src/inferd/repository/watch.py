"""ModelWatch finds the models whose files have changed; digests tell whether files are the same.

For the watch, a model is unchanged while its files have the same names, sizes and modification
times. The newest time alone would miss a file that was replaced by an older one. The times of
folders say nothing: Python and editors leave caches and backups there, which are passed over. Only
which version folders there are counts, for those of ensembles are empty.
"""

import hashlib
import os
from collections.abc import Iterable
from errno import EINVAL
from hashlib import blake2b
from pathlib import Path

import msgspec

from inferd.config.checks import CONFIG_FILE
from inferd.core.interfaces import ModelFiles
from inferd.errors import NotLoadable
from inferd.repository.layout import is_version
from inferd.repository.repositories import ModelPath, Repositories
from inferd.repository.tree import ModelFile, entries_of, walk

_MOST_PRINTS = 100
"""The most files of a version that have prints of their own."""

_SMALL_BYTES = 1 << 20
"""Files up to this size are read for their print: what is copied anew is the same again."""

_SAMPLES, _SAMPLE_BYTES = 64, 4096
"""How much is read of larger files: weights that were trained anew differ nearly everywhere."""

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
        marks = [
            marks_of(place.path.parent, place.path) if place.is_file else marks_of(place.path)
            for place in places
        ]
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
        if _is_config(entry.path):
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
    digest = blake2b(digest_size=16)
    for entry in entries:
        digest.update(_text_of(entry))
    return digest.digest()


def content_digest(folder: Path, version: int, file: Path | None = None) -> bytes:
    """Return the SHA-256 of the names and contents of all files that `version` may depend on.

    These are all files in the model's `folder` that belong to no other version, or the bare model
    `file`. Reads all of them. Raises OSError, also if one is not a regular file.
    """
    root, entries = _files(folder, version, file)
    digest = hashlib.sha256()
    for path in (entry.path for entry in entries):
        if not (root / path).is_file():  # opening a pipe would block until somebody writes
            raise OSError(EINVAL, "not all are plain files", path)
        with (root / path).open("rb") as source:
            content = hashlib.file_digest(source, "sha256").digest()
        # Names of files are bytes on Linux; those that are no UTF-8 arrive as surrogates, and go
        # back to the bytes that they were.
        name = path.encode(errors="surrogateescape")
        # With its length before it: otherwise a byte could move from a name to what follows, with
        # the same digest. The content's own digest has a fixed length.
        digest.update(len(name).to_bytes(8, "little") + name + content)
    return digest.digest()


def file_prints(folder: Path, version: int, file: Path | None = None) -> list[str]:
    """Return prints of the files that `version` may depend on; see content_digest.

    They differ if names, sizes or contents do. Large files are not read as a whole: their times
    count, too. Where there are very many files, one print is for all, of their names, sizes and
    times. Files of configurations are left out: a version may serve on when they change.
    """
    root, entries = _files(folder, version, file)
    if file is None:
        entries = [entry for entry in entries if not _is_config(entry.path)]
    # Prints are noted and compared one by one for a worker or a fleet's processes: a tokenizer's
    # thousands of files would make that list longer than it is worth.
    if len(entries) > _MOST_PRINTS:
        return [blake2b(b"\0".join(map(_text_of, entries)), digest_size=8).hexdigest()]
    return [_print_of(root / entry.path, entry) for entry in entries]


def lasting_prints(files: ModelFiles) -> frozenset[str]:
    """Return prints of the model file, and of code beside it: what no model writes by itself."""
    root, found = _files(files.folder, files.version, files.file)
    paths = [(root / entry.path, entry) for entry in found]
    if files.file.suffix == ".py":
        beside = walk(files.file.parent)
        code = [entry for entry in beside if entry.path.endswith(".py")]
        paths += [(files.file.parent / entry.path, entry) for entry in code]
    return frozenset(_print_of(path, entry) for path, entry in paths)


def _files(folder: Path, version: int, file: Path | None) -> tuple[Path, list[ModelFile]]:
    """Return the files that a version may depend on, and the folder that their paths begin in."""
    if file is not None:
        return file if file.is_dir() else file.parent, list(entries_of(file))
    return folder, [entry for entry in walk(folder) if _belongs(entry.path, version)]


def _print_of(path: Path, entry: ModelFile) -> str:
    # The time of a small file does not count, as its content does:
    # another machine's copy is the same.
    is_small = entry.size <= _SMALL_BYTES
    digest = blake2b(_text_of(entry, has_time=not is_small), digest_size=8)
    # The first, the last, and evenly between.
    last = entry.size - _SAMPLE_BYTES
    samples = [last * number // (_SAMPLES - 1) for number in range(_SAMPLES)]
    try:
        if path.is_file():  # opening a pipe would block until somebody writes
            with path.open("rb") as source:
                for at in [0] if is_small else samples:
                    source.seek(at)
                    digest.update(source.read(_SMALL_BYTES if is_small else _SAMPLE_BYTES))
    except OSError:  # it goes just now, or cannot be read: the load says so
        pass
    return digest.hexdigest()


def _text_of(entry: ModelFile, *, has_time: bool = True) -> bytes:
    return os.fsencode(f"{entry.path}\0{entry.size}\0{entry.modified_ns if has_time else 0}\0")


def _is_config(path: str) -> bool:
    return path == CONFIG_FILE or path.startswith(_CONFIGS)


def _belongs(path: str, version: int) -> bool:
    first, slash, _ = path.partition("/")
    # Files beside the version folders are everybody's: labels, tokenizers, code.
    return not slash or not is_version(first) or int(first) == version
