"""The files of the page: read and compressed once, when the first browser comes."""

import gzip
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

TYPES: Mapping[str, bytes] = {
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
    "png": b"image/png",
    "woff2": b"font/woff2",
    "json": b"application/json",
    "txt": b"text/plain; charset=utf-8",
}
"""The Content-Type of files, by the ends of their names; others are not served."""

LARGEST_BYTES = 2 << 20
"""No file is larger, so that all of them stay in memory."""

_LEAST_GAIN = 0.9  # what gzip leaves of a file that it is good for, at most


class StaticFile(NamedTuple):
    """A file as it is sent: `zipped` is its gzip form, empty if that is hardly smaller."""

    type: bytes
    body: bytes
    zipped: bytes
    tag: bytes

    @property
    def zipped_tag(self) -> bytes:
        """The entity tag of the gzip form (RFC 9110, section 8.8.3.3)."""
        return self.tag[:-1] + b'-gzip"'


def page_folder() -> Traversable:
    """Return the folder with the files of the page."""
    return files("inferd.ui").joinpath("static")


def read_files(folder: Traversable) -> Mapping[str, StaticFile]:
    """Return the files in `folder` and in the folders below it, by their paths."""
    return dict(_found(folder, "")) if folder.is_dir() else {}


def _found(folder: Traversable, path: str) -> list[tuple[str, StaticFile]]:
    found = []
    for one in folder.iterdir():
        if one.is_dir():
            found += _found(one, f"{path}{one.name}/")
        elif (kind := TYPES.get(one.name.rpartition(".")[2])) is not None:
            body = one.read_bytes()
            if len(body) <= LARGEST_BYTES:
                found.append((path + one.name, _file(kind, body)))
    return found


def _file(kind: bytes, body: bytes) -> StaticFile:
    # So that the same file has the same bytes, whenever a server starts.
    zipped = gzip.compress(body, 9, mtime=0)
    if len(zipped) > _LEAST_GAIN * len(body):
        zipped = b""
    tag = b'"%b"' % hashlib.sha256(body).hexdigest()[:32].encode()
    return StaticFile(kind, body, zipped, tag)
