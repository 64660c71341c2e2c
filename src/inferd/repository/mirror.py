"""A repository in the cloud, as it is needed of it, in a folder here.

Every reader of repositories goes on reading files. A model's objects are fetched when the model is
read, and only those that are others than the ones here; each lies in its place whole or not at all,
so that what serves keeps the file it has open.
"""

import os
import shutil
import tempfile
import threading
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from inferd.config.checks import is_inside
from inferd.errors import InvalidConfig, NotLoadable
from inferd.repository.bucket import Bucket, Object
from inferd.repository.cloud_url import CloudUrl
from inferd.repository.layout import is_version

FOLDERS = {
    "s3": "TRITON_AWS_MOUNT_DIRECTORY",
    "gs": "TRITON_GCS_MOUNT_DIRECTORY",
    "as": "TRITON_AZURE_MOUNT_DIRECTORY",
}
"""The variables that name the folder in which models are kept, by what a URL begins with."""

_PART = ".inferd-part"
"""The ending of what is being fetched; a name that begins with a dot counts for nothing."""


def folder_for(url: CloudUrl, environ: Mapping[str, str]) -> Path:
    """Make a folder for a mirror of `url`: where Triton's variables say, or a temporary one.

    Raises InvalidConfig when there can be none.
    """
    where = environ.get(FOLDERS[url.scheme])
    try:
        return Path(tempfile.mkdtemp(prefix="inferd-", dir=where)).absolute()
    except OSError as error:
        msg = f"there is no folder for the models of '{url.text}': {error.strerror}"
        raise InvalidConfig(msg) from error


class Mirror:
    """Keeps `folder` like what lies in `bucket`, model by model. For threads, several at a time."""

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        self.folder = folder
        self._bucket = bucket
        self._listed: dict[str, dict[str, Object]] = {}
        self._here: dict[str, dict[str, Object]] = defaultdict(dict)
        self._lock = threading.Lock()
        self._turns: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def look(self) -> None:
        """Have a folder for each model that is there now, and none of another.

        Raises NotLoadable when the cloud does not answer; then nothing has changed.
        """
        listed: dict[str, dict[str, Object]] = defaultdict(dict)
        for found in self._bucket.objects():
            model, _, path = found.path.partition("/")
            if path and _is_sound(found.path):
                listed[model][path] = found
        with self._lock:
            self._listed = listed
            for model in listed:
                (self.folder / model).mkdir(parents=True, exist_ok=True)
            for gone in set(os.listdir(self.folder)) - set(listed):
                shutil.rmtree(self.folder / gone, ignore_errors=True)
                self._here.pop(gone, None)

    def fetch(self, model: str) -> None:
        """Have the files of `model` here as they were at the last look.

        Raises NotLoadable when that cannot be; those that came are kept for the next time.
        """
        with self._lock:
            turn = self._turns[model]
        with turn:
            wanted = self._listed.get(model, {})
            here = self._here[model]
            try:
                for path in here.keys() - wanted.keys():
                    _remove(self.folder / model / path, self.folder / model)
                    del here[path]
                for path, found in wanted.items():
                    if _is_folder(path, found, wanted):
                        (self.folder / model / path).mkdir(parents=True, exist_ok=True)
                    elif here.get(path) != found:
                        self._fetch(found, self.folder / model / path)
                        here[path] = found
            except OSError as error:
                msg = f"model '{model}' cannot be kept in the folder for it: {error.strerror}"
                raise NotLoadable(msg) from error

    def close(self) -> None:
        """Delete all that was fetched."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _fetch(self, found: Object, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}{_PART}")
        try:
            self._bucket.fetch(found, part)
            # The times of objects are whole seconds: another content must show all the same.
            time_ns = found.modified_ns + zlib.crc32(found.tag.encode()) % 1_000_000
            os.utime(part, ns=(time_ns, time_ns))
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)


def _remove(file: Path, root: Path) -> None:
    """Delete a file, and the folders around it, below `root`, that are empty now."""
    file.unlink(missing_ok=True)
    with suppress(OSError):  # something else lies there
        while (file := file.parent) != root:
            file.rmdir()


def _is_sound(path: str) -> bool:
    """Tell whether an object's name is a path below a folder, wherever it is read."""
    return is_inside(path) and "\0" not in path and str(PurePosixPath(path)) == path


def _is_folder(path: str, found: Object, around: Iterable[str]) -> bool:
    """Tell whether an empty object stands for a folder, which clouds do not have."""
    return found.size == 0 and (
        is_version(path) or any(other.startswith(f"{path}/") for other in around)
    )
