"""Digests of the contents of a model version's files, whatever their modification times."""

import hashlib
from errno import EINVAL
from pathlib import Path

from inferd.repository.layout import is_version
from inferd.repository.tree import entries_of, walk


def content_digest(folder: Path, version: int, file: Path | None = None) -> bytes:
    """Return the SHA-256 of the names and contents of all files that `version` may depend on.

    These are all files in the model's `folder` that belong to no other version, or the bare model
    `file`. Reads all of them. Raises OSError, also if one is not a regular file.
    """
    if file is not None:
        root = file if file.is_dir() else file.parent
        paths = [entry.path for entry in entries_of(file)]
    else:
        root = folder
        paths = [entry.path for entry in walk(folder) if _belongs(entry.path, version)]
    digest = hashlib.sha256()
    for path in paths:
        if not (root / path).is_file():  # opening a pipe would block until somebody writes
            raise OSError(EINVAL, "not all are plain files", path)
        with (root / path).open("rb") as source:
            content = hashlib.file_digest(source, "sha256").digest()
        name = path.encode(errors="surrogateescape")
        digest.update(len(name).to_bytes(8, "little") + name + content)
    return digest.digest()


def _belongs(path: str, version: int) -> bool:
    first, slash, _ = path.partition("/")
    return not slash or not is_version(first) or int(first) == version
