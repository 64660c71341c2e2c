"""Digests of a model version's files: of their contents, or of what tells that one has changed."""

import hashlib
import os
from errno import EINVAL
from hashlib import blake2b
from pathlib import Path

from inferd.repository.layout import is_version
from inferd.repository.tree import entries_of, walk

_MOST_PRINTS = 100
"""The most files of a version that have prints of their own."""


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


def file_prints(folder: Path, version: int, file: Path | None = None) -> list[str]:
    """Return prints of the names, sizes and times of the files that `version` may depend on.

    See content_digest. Where there are many files, one print is for all.
    """
    if file is not None:
        entries = list(entries_of(file))
    else:
        entries = [entry for entry in walk(folder) if _belongs(entry.path, version)]
    texts = [f"{entry.path}\0{entry.size}\0{entry.modified_ns}" for entry in entries]
    if len(texts) > _MOST_PRINTS:
        texts = ["\0".join(texts)]
    return [blake2b(os.fsencode(text), digest_size=8).hexdigest() for text in texts]


def _belongs(path: str, version: int) -> bool:
    first, slash, _ = path.partition("/")
    return not slash or not is_version(first) or int(first) == version
