"""Uploads: model files sent by clients, kept in temporary folders, with one limit for all."""

import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from inferd.config.names import is_inside
from inferd.errors import InvalidRequest, NotLoadable

MAX_DEPTH = 16
"""How many parts the path of an uploaded file may have."""

MAX_FILES = 100_000
"""How many files all uploads together may have: empty files take space, too."""

MAX_PATH_BYTES = 1024
"""How long a path may be."""

Files = Mapping[str, bytes | memoryview]


class Upload:
    """The files of one load request in a `folder` of their own, deleted with the last reference."""

    def __init__(self, uploads: "Uploads", folder: Path, size_bytes: int, file_count: int) -> None:
        self.folder = folder
        self.size_bytes = size_bytes
        self.file_count = file_count
        self._uploads = uploads
        self._holders_count = 0

    def hold(self) -> None:
        """Keep the files until `release` has been called as often as `hold`."""
        self._holders_count += 1

    def release(self) -> bool:
        """Drop one hold; return whether it was the last, so that `discard` is to be called."""
        # Without a lock: holds are taken and released on the event loop only.
        self._holders_count -= 1
        return self._holders_count <= 0

    def discard(self) -> None:
        """Delete the files. To be called in a thread."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._uploads.forget(self)


class Uploads:
    """Stores uploaded files, as long as all together have at most `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._file_count = 0
        self._stored: set[Upload] = set()
        # Uploads are stored in threads, side by side, and share one limit.
        self._lock = threading.Lock()

    def store(self, files: Files) -> Upload:
        """Write `files`, contents by path, into a new folder. To be called in a thread.

        Raises InvalidRequest for a path that leads out of the model's folder, and for more bytes or
        files than there is room for; NotLoadable when they cannot be written.
        """
        count = len(files)
        if count > MAX_FILES:
            raise _too_many(count, MAX_FILES)
        # "a//b" and "a/b" are two names of one file.
        paths = {_path(name): content for name, content in files.items()}
        folders = {parent for path in paths for parent in path.parents}
        if len(paths) < len(files) or folders & paths.keys():
            msg = "two of the files sent have the same path, or one lies inside the other"
            raise InvalidRequest(msg)
        size_bytes = sum(len(content) for content in files.values())
        # Taken before anything is written: several uploads at a time
        # must not exceed the limit together.
        self._take(size_bytes, count)
        try:
            folder = Path(tempfile.mkdtemp(prefix="inferd-model-"))
        except OSError as error:
            self._take(-size_bytes, -count)
            raise _not_stored(error) from error
        upload = Upload(self, folder, size_bytes, count)
        # Before the files are written, so that discard gives the room back if that fails.
        self._stored.add(upload)
        try:
            for path, content in paths.items():
                _write(upload.folder / path, content)
        except OSError as error:  # no space left, say
            upload.discard()
            raise _not_stored(error) from error
        return upload

    def forget(self, upload: Upload) -> None:
        """Free the room of `upload`, whose files are deleted."""
        # discard may be called twice, by close and by whoever held the
        # files; the room is given back once.
        if upload in self._stored:
            self._stored.discard(upload)
            self._take(-upload.size_bytes, -upload.file_count)

    def close(self) -> None:
        """Delete all uploads that are left. To be called in a thread."""
        # A copy, as discard changes the set.
        for upload in list(self._stored):
            upload.discard()

    def _take(self, size_bytes: int, file_count: int) -> None:
        with self._lock:
            if file_count > MAX_FILES - self._file_count:
                raise _too_many(file_count, MAX_FILES - self._file_count)
            left = self._max_bytes - self._used_bytes
            if size_bytes > left:
                raise InvalidRequest(
                    f"the files sent have {size_bytes} bytes, there is room for {left} "
                    f"(--model-upload-max-bytes)"
                )
            self._used_bytes += size_bytes
            self._file_count += file_count


def _too_many(file_count: int, left: int) -> InvalidRequest:
    return InvalidRequest(
        f"{file_count} files are sent, there is room for {left}; all models together may have "
        f"{MAX_FILES}"
    )


def _not_stored(error: OSError) -> NotLoadable:
    return NotLoadable(f"the files sent cannot be stored: {error.strerror}")


def _path(name: str) -> PurePosixPath:
    """Return the path of an uploaded file, relative to the model's folder."""
    # File systems count bytes, not characters. Lone surrogates, which
    # JSON can write, have no bytes in UTF-8.
    if len(name.encode(errors="replace")) > MAX_PATH_BYTES:
        msg = f"Invalid file path: 'file:{name[:200]}...' is longer than {MAX_PATH_BYTES} bytes"
        raise InvalidRequest(msg)
    path = PurePosixPath(name)
    is_sound = is_inside(name) and path.parts and "\0" not in name and len(path.parts) <= MAX_DEPTH
    # NAME_MAX of Linux's file systems.
    if not is_sound or any(len(part.encode(errors="replace")) > 255 for part in path.parts):
        raise InvalidRequest(
            f"Invalid file path: 'file:{name[:200]}' leads nowhere, expected a path below the "
            f"model's folder"
        )
    return path


def _write(path: Path, content: bytes | memoryview) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # The folder is new, but its file system may take two names for one, which differ in case, say.
    with path.open("xb") as file:
        file.write(content)
