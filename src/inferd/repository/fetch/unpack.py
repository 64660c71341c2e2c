"""Unpacks archives and layers of images: files and folders alone, inside, and within limits."""

import bz2
import gzip
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from inferd.config.names import is_inside
from inferd.errors import NotLoadable
from inferd.repository.fetch.settings import MAX_FILES

MODELS = "models/"
"""The folder of an image in which its models are, as in those that KServe calls modelcars."""

_CHUNK_BYTES = 1 << 20
_MAX_HEADER_BYTES = 8 << 20
"""Of a tar archive's extended header, which is read as a whole."""

# Of a zip archive with entries, and of one without.
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
# How layers of images take away what is below them (OCI image specification, "Representing
# Changes"): .wh.NAME removes NAME, .wh..wh..opq all that earlier layers put in its folder.
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
# At the root of the image, where both mean that the whole of models/ of earlier layers goes.
_ALL_GONE = (f"{_WHITEOUT}models", _OPAQUE)
_BAD = (
    *(OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RuntimeError),
    # What tarfile lets through, of numbers in headers that are none or below zero.
    *(ValueError, LookupError, OverflowError),
)


class Unpacking:
    """Unpacks into `folder`, of all archives together at most `max_bytes`."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._bytes = 0
        self._count = 0
        self._fresh: set[Path] = set()  # what the layer at hand has written

    def unpack(self, archive: Path, name: str, *, is_layer: bool = False) -> None:
        """Unpack `archive`, which messages call `name`.

        Of a layer of an image, that is what is in models/, without what the layer takes away.
        Raises NotLoadable for what is no archive, leads out, is a link or too large; and OSError
        when it cannot be written.
        """
        if is_layer:
            self._folder.mkdir(parents=True, exist_ok=True)
        # Whiteouts hide what is in earlier layers only, wherever they
        # stand in their own (same section).
        self._fresh = set()
        with archive.open("rb") as file:
            # What is_zipfile finds may also be at the end of a tar archive, in a file there.
            is_zip = file.read(4) in _ZIPS
            file.seek(0)
            if is_zip:
                self._unpack_zip(file, name)
            else:
                self._unpack_tar(_plain(file, name), name, is_layer=is_layer)

    def _unpack_zip(self, file: IO[bytes], name: str) -> None:
        try:
            with zipfile.ZipFile(file) as archive:
                for entry in archive.infolist():
                    # By what the entry announces, before it is read;
                    # _write reads no more than that.
                    self._count_in(entry.file_size, name)
                    # The upper half is the mode of Unix if a Unix program has made it, else 0. Zip
                    # has no other way to say that an entry is a link.
                    kind = stat.S_IFMT(entry.external_attr >> 16)
                    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                        raise _no_file(name, entry.filename)
                    path = _sound(entry.filename, name)
                    opened = None if entry.is_dir() else partial(archive.open, entry)
                    self._put(path, opened, entry.file_size, name)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise _broken(name) from error

    def _unpack_tar(self, file: "_Bounded", name: str, *, is_layer: bool) -> None:
        for archive, entry in _entries(file, name):
            self._count_in(entry.size, name)
            # Layers are of a whole file system, and some tools write their paths from the root. In
            # an archive, a path from the root leads out, and is refused.
            path = str(PurePosixPath(entry.name.lstrip("/") if is_layer else entry.name))
            if is_layer:
                if path in _ALL_GONE:
                    self._clear(self._folder)
                # The rest of the image is a base system; it is skipped before its
                # links and devices would be refused.
                if not f"{path}/".startswith(MODELS):
                    continue
                path = path[len(MODELS) :]
            if path in ("", "."):
                continue
            if is_layer and self._is_taken_away(path, name):
                continue
            # Links, too, although a sound one would do no harm: whether one is sound
            # depends on all that is unpacked later.
            if not (entry.isreg() or entry.isdir()):
                raise _no_file(name, entry.name)
            opened = None if entry.isdir() else partial(archive.extractfile, entry)
            self._put(_sound(path, name), opened, entry.size, name)

    def _is_taken_away(self, path: str, name: str) -> bool:
        """Take away what a layer's entry says is gone; return whether it is such an entry."""
        parent, _, last = path.rpartition("/")
        if not last.startswith(_WHITEOUT):
            return False
        parent = _sound(parent, name) if parent else ""
        gone = self._folder / parent
        if last != _OPAQUE:
            gone /= _sound(last.removeprefix(_WHITEOUT), name)
        self._clear(gone)
        return True

    def _clear(self, place: Path) -> None:
        """Delete a file, or all below a folder, but what the same layer has brought."""
        # What is deeper comes first, as folders have to be empty to go.
        for path in (*sorted(place.rglob("*"), reverse=True), place):
            if path.is_dir():
                with suppress(OSError):  # it is not empty
                    path.rmdir()
            elif path not in self._fresh:
                path.unlink(missing_ok=True)

    def _put(self, path: str, opened: Callable[[], Any] | None, size: int, name: str) -> None:
        """Write the file whose content `opened` returns, or make a folder if it is None."""
        target = self._folder / path
        # A file may become a folder in a later layer, and the reverse, without a word that the
        # earlier is gone; in one archive, one of them is wrong.
        if target.is_dir() if opened else target.is_file():
            self._clear(target)
        try:
            self._put_at(target, opened, size, name)
        except (FileExistsError, IsADirectoryError, NotADirectoryError):
            msg = f"'{name}' holds '{path[:200]}' as a file and as a folder"
            raise NotLoadable(msg) from None

    def _put_at(self, path: Path, opened: Callable[[], Any] | None, size: int, name: str) -> None:
        if opened is None:
            path.mkdir(parents=True, exist_ok=True)
            return
        try:
            content = opened()
        # Opening an entry reads its local header, which may be broken, encrypted (RuntimeError) or
        # packed in a way that zipfile does not know (NotImplementedError).
        except (*_BAD, NotImplementedError) as error:
            raise _broken(name) from error
        with content:
            self._write(path, content, size, name)

    def _write(self, file: Path, content: Any, size: int, name: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Unlinked and made anew, not overwritten: it may share its content with a file that was
        # downloaded, through a hard link.
        file.unlink(missing_ok=True)  # an earlier layer's
        left = size
        self._fresh.add(file)
        # "x" follows no link and opens no pipe that something else has put there.
        with file.open("xb") as target:
            while left:
                try:
                    chunk = content.read(min(left, _CHUNK_BYTES))
                except _BAD as error:
                    raise _broken(name) from error
                if not chunk:
                    raise _broken(name)
                target.write(chunk)
                left -= len(chunk)

    def _count_in(self, size: int, name: str) -> None:
        self._count += 1
        self._bytes += size
        if self._count > MAX_FILES:
            raise NotLoadable(f"'{name}' has more than {MAX_FILES} files")
        if self._bytes > self._max_bytes or size < 0:
            msg = f"'{name}' has more than {self._max_bytes} bytes unpacked (--fetch-max-bytes)"
            raise NotLoadable(msg)


class _Bounded:
    """A file that is read for a tar archive: what is read at once is bounded, as is memory."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int) -> bytes:
        # tarfile reads an extended header with one read of the size that the archive claims:
        # gigabytes, if it lies. Contents are read by chunks, which are below the limit.
        # One below zero would read all of the file.
        if not 0 <= size <= _MAX_HEADER_BYTES:
            raise tarfile.ReadError("a header is too large")
        content: bytes = self._file.read(size)
        return content


def _plain(file: IO[bytes], name: str) -> _Bounded:
    """Return the tar archive in `file`, without its compression."""
    begin = file.read(6)
    file.seek(0)
    if begin.startswith(b"\x1f\x8b"):
        # Unpacked while it is read: the limit of bytes counts what comes out, so a bomb ends there.
        return _Bounded(gzip.GzipFile(fileobj=file))
    if begin.startswith(b"BZh"):
        return _Bounded(bz2.BZ2File(file))
    for magic, kind in ((b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\x00", "xz")):
        if begin.startswith(magic):
            msg = f"'{name}' is compressed with {kind}, expected tar, gzip, bzip2 or zip"
            raise NotLoadable(msg)
    return _Bounded(file)


def _entries(file: _Bounded, name: str) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    try:
        # typeshed wants all of a file's methods; with mode "r:", read, seek and tell are enough.
        # "r:" because the compression is dealt with above, with the limit between.
        with tarfile.open(fileobj=file, mode="r:") as archive:  # type: ignore[call-overload]
            while (entry := archive.next()) is not None:
                yield archive, entry
                archive.members = []  # otherwise all are remembered
    except _BAD as error:
        raise _broken(name) from error


def _sound(path: str, name: str) -> str:
    """Return the path of an entry, made plain. Raises NotLoadable if it leads out."""
    plain = str(PurePosixPath(path))
    if not is_inside(path) or "\0" in path or plain in ("", "."):
        raise NotLoadable(f"'{name}' holds '{path[:200]}', which leads out of it")
    return plain


def _no_file(name: str, path: str) -> NotLoadable:
    return NotLoadable(f"'{name}' holds '{path[:200]}', which is a link or a device, not a file")


def _broken(name: str) -> NotLoadable:
    return NotLoadable(f"'{name}' is no whole archive, expected tar, tar.gz, tar.bz2 or zip")
