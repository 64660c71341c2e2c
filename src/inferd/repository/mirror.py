"""Mirror: keeps the needed part of a repository in the cloud in a local folder.

So all readers of repositories can read files. A model's objects are fetched when the model is read,
and only those that differ from the local ones. Each file is replaced atomically, so that a model
being served keeps the file it has open.
"""

import os
import shutil
import tempfile
import threading
import zlib
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from inferd.config.names import is_inside
from inferd.errors import InvalidConfig, NotLoadable
from inferd.repository.bucket import Bucket, BucketObject, CloudUrl, NotThere
from inferd.repository.layout import is_version

FOLDERS = {
    "s3": "TRITON_AWS_MOUNT_DIRECTORY",
    "gs": "TRITON_GCS_MOUNT_DIRECTORY",
    "as": "TRITON_AZURE_MOUNT_DIRECTORY",
}
"""The variables that name the folder in which models are kept, by the scheme of the URL."""

_MAX_NAME = 255
"""Bytes of the longest name that a folder can have: what is below a longer one is no model."""

_PART = ".inferd-part"
"""The suffix of files being fetched; readers ignore them, as their names begin with a dot."""


def folder_for(url: CloudUrl, environ: Mapping[str, str]) -> Path:
    """Create a folder for a mirror of `url`, where Triton's variables say or a temporary one.

    Raises InvalidConfig when it cannot be created.
    """
    where = environ.get(FOLDERS[url.scheme])
    try:
        # A folder of its own below the one that the variable names,
        # which several servers may share.
        return Path(tempfile.mkdtemp(prefix="inferd-", dir=where)).absolute()
    except OSError as error:
        msg = f"there is no folder for the models of '{url.text}': {error.strerror}"
        raise InvalidConfig(msg) from error


class Mirror:
    """Keeps `folder` in step with `bucket`, model by model. For use in several threads at once."""

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        self.folder = folder
        self._bucket = bucket
        # What the cloud has, and what has arrived here, by model and path;
        # the difference is what a fetch does.
        self._listed: dict[str, dict[str, BucketObject]] = {}
        self._here: dict[str, dict[str, BucketObject]] = defaultdict(dict)
        # For the listing and for _turns; held for moments. A fetch, which may
        # take minutes, holds its model's turn.
        self._lock = threading.Lock()
        self._turns: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def look(self) -> None:
        """List the bucket: make a folder for each model in it, and delete all others.

        Raises NotLoadable when the cloud does not answer; then nothing has changed. Raises OSError.
        """
        listed: dict[str, dict[str, BucketObject]] = defaultdict(dict)
        for found in self._bucket.objects():
            model, _, path = found.path.partition("/")
            # Objects beside the models are no models, just as files in a local repository.
            if path and _is_sound(found.path) and len(os.fsencode(model)) <= _MAX_NAME:
                listed[model][path] = found
        with self._lock:
            self._listed = listed
            for model in listed:
                (self.folder / model).mkdir(parents=True, exist_ok=True)
            for gone in set(os.listdir(self.folder)) - set(listed):
                # A model that is loaded keeps the files that it has open: on Linux
                # they are there until it closes them.
                shutil.rmtree(self.folder / gone, ignore_errors=True)
                # Otherwise a model that comes back would be thought to be here already.
                self._here.pop(gone, None)

    def fetch(self, model: str) -> None:
        """Bring the local files of `model` to the state of the last look.

        Raises NotLoadable when that fails; files already fetched are kept for the next time.
        """
        with self._lock:
            turn = self._turns[model]
        with turn:
            wanted = self._listed.get(model, {})
            here = self._here[model]
            root = self.folder / model
            folders = _folders(wanted)
            try:
                # Before anything is written: a file may have to give way to a folder of its name.
                for path in here.keys() - wanted.keys():
                    _remove(root / path, root)
                    del here[path]
                for path, found in wanted.items():
                    if path in folders:
                        _make_folder(root / path)
                    # Size, time and tag: any of them differs when the object was written again.
                    elif here.get(path) != found:
                        self._fetch(found, root / path)
                    here[path] = found
            except OSError as error:
                msg = f"model '{model}' cannot be kept in the folder for it: {error.strerror}"
                raise NotLoadable(msg) from error

    def close(self) -> None:
        """Delete everything fetched."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _fetch(self, found: BucketObject, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder, as a rename is atomic within one file system only.
        part = file.with_name(f".{file.name}{_PART}")
        try:
            try:
                self._bucket.fetch(found, part)
            except NotThere:
                if found.size:
                    raise
                # The object's name ends in a slash, which the listing does not tell: consoles of
                # clouds make such ones for folders, and nothing lies in this one.
                return _make_folder(file)
            # Objects' times are whole seconds: a hash of the tag tells changed contents apart.
            time_ns = found.modified_ns + zlib.crc32(found.tag.encode()) % 1_000_000
            # Before the rename: the watch compares times, and must not see the
            # file with the time of its download.
            os.utime(part, ns=(time_ns, time_ns))
            with suppress(OSError):  # a folder that is none any more
                file.rmdir()
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)


def _remove(file: Path, root: Path) -> None:
    """Delete a file or an empty folder, and its parents below `root` that are then empty."""
    if not file.is_dir():
        file.unlink(missing_ok=True)
        file = file.parent
    with suppress(OSError):  # something else lies there
        while file != root:
            file.rmdir()
            file = file.parent


def _make_folder(folder: Path) -> None:
    if folder.is_file():  # until now
        folder.unlink()
    folder.mkdir(parents=True, exist_ok=True)


def _is_sound(path: str) -> bool:
    """Tell whether an object's name is a path below a folder, on any platform."""
    return is_inside(path) and "\0" not in path and str(PurePosixPath(path)) == path


def _folders(wanted: Mapping[str, BucketObject]) -> set[str]:
    """Return the empty objects that stand for folders, since clouds have none."""
    around = {str(parent) for path in wanted for parent in PurePosixPath(path).parents}
    return {
        path
        for path, found in wanted.items()
        if found.size == 0 and (is_version(path) or path in around)
    }
