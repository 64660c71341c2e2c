"""Snapshot: the files that a model consists of at one time, before they are fetched."""

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from inferd.repository.fetch.web import Web

Arrived = Callable[[int, int], None]
"""Gets the number of bytes of a file that have arrived, and of all that it has, 0 if unknown."""


class FileForm(Enum):
    """What is made of a file that has been fetched."""

    FILE = "file"
    """It is put at its path."""
    ARCHIVE = "archive"
    """It is unpacked."""
    LAYER = "layer"
    """It is a layer of an image, of which the folder models/ is unpacked."""


class RemoteFile(NamedTuple):
    """One file to fetch. `path` is where it belongs, below the folder of the model.

    `size` is None where it is not known. `digest` is "sha256:HEX", "git:HEX" (of a blob as git
    names it) or "", where there is nothing to compare with.
    """

    path: str
    url: str
    size: int | None = None
    digest: str = ""
    form: FileForm = FileForm.FILE


class Snapshot(NamedTuple):
    """What there is to fetch: a model called `name`, whose `identity` changes with its files.

    `fetch` brings a file that `web` does not: it gets the file, and the path to write. `check` gets
    the folder of the model when it is there, and raises NotLoadable if it must not be served.
    """

    name: str
    identity: str
    files: tuple[RemoteFile, ...]
    web: Web
    fetch: Callable[[RemoteFile, str, Arrived], None] | None = None
    check: Callable[[Path], None] | None = None
