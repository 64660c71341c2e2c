"""Fetched models on the disk: one folder for each state of each model, complete or not there.

<folder>/<scheme>/<key>/<name>/...      the files; <key> stands for place and state
<folder>/<scheme>/<key>/files.json      their sizes: what is not as it was, is fetched again
<folder>/<scheme>/<key>.part/           what has arrived of one that is not complete
<folder>/<scheme>/<key>.lock            locked by the process that fetches it
<folder>/latest/<key>.json              which state a URL was last seen to lead to
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from stat import S_ISREG

import msgspec

from inferd.config.names import is_inside, is_model_name
from inferd.errors import InvalidConfig, NotLoadable
from inferd.repository.fetch.download import PART, download
from inferd.repository.fetch.hub import hub_snapshot
from inferd.repository.fetch.link import link_snapshot
from inferd.repository.fetch.mlflow import mlflow_snapshot, registry_place
from inferd.repository.fetch.oci import oci_snapshot
from inferd.repository.fetch.progress import progress
from inferd.repository.fetch.settings import FetchSettings
from inferd.repository.fetch.snapshot import FileForm, Snapshot
from inferd.repository.fetch.unpack import Unpacking
from inferd.repository.fetch.url import ModelUrl
from inferd.repository.fetch.web import NotAnswered

log = logging.getLogger("inferd.repository")

_SIZES = "files.json"

Source = Callable[[ModelUrl, Mapping[str, str]], Snapshot]

SOURCES: Mapping[str, Source] = {
    "hf": hub_snapshot,
    "models": mlflow_snapshot,
    "oci": oci_snapshot,
    "http": link_snapshot,
    "https": link_snapshot,
}
"""What asks the other side which files there are, by the scheme of the URL."""


class _Seen(msgspec.Struct):
    """Which state a URL led to."""

    key: str
    name: str


def fetched(url: ModelUrl, settings: FetchSettings, environ: Mapping[str, str]) -> Path:
    """Return the folder that holds the files at `url`, which are fetched unless they are there.

    If the other side does not answer, or must not be asked, it is what was fetched before. Raises
    NotLoadable and InvalidConfig.
    """
    try:
        # The processes of one server must serve the same, although a tag may move between their
        # starts; also one that is started days later in place of another.
        with _pinned(url, settings) as pin:
            seen = _read(pin) if pin else None
            found = seen and _complete(settings, url, seen)
            if found:
                return found
            seen, found = _found(url, settings, environ)
            if pin:
                _write(pin, seen)
            return found
    except OSError as error:
        why = error.strerror or error
        msg = f"'{url.shown}' cannot be stored in {settings.folder} (--fetch-directory): {why}"
        raise InvalidConfig(msg) from error


def _found(
    url: ModelUrl, settings: FetchSettings, environ: Mapping[str, str]
) -> tuple[_Seen, Path]:
    latest = _latest(url, settings, environ)
    before = _read(latest[0])
    stored = before and _complete(settings, url, before)
    # Without asking anybody.
    if before and stored and (settings.is_offline or url.is_fixed):
        return before, stored
    if settings.is_offline:
        msg = f"'{url.shown}' has not been fetched before, and --offline forbids it now"
        raise NotLoadable(msg)
    try:
        snapshot = SOURCES[url.scheme](url, environ)
        # Names of hubs and registries may have characters that no model's folder can have, or be
        # that of the file beside it.
        if not is_model_name(snapshot.name) or snapshot.name == _SIZES:
            snapshot = snapshot._replace(name="model")
        _check_files(url, snapshot)
        # A new state gets a folder of its own, so that a server that still
        # runs keeps the files it has open.
        key = _digest(f"{url.scheme}\0{url.place}\0{snapshot.identity}")
        seen = _Seen(key, snapshot.name)
        # The lock is taken only if there is something to fetch: a
        # folder that may only be read serves.
        found = _complete(settings, url, seen) or _fetch(url, snapshot, seen, settings)
        # Not only of what has just come: under another URL the same state may have been sound.
        if snapshot.check is not None:
            snapshot.check(found)
    except NotAnswered as error:
        # A hub that is down must not keep a server from starting with what it served yesterday.
        # NotGiven is another matter: whose access was taken away is refused.
        if before is None or not stored:
            raise
        log.warning("%s; what was fetched before is served", error.message)
        return before, stored
    with suppress(OSError):  # a folder that may only be read serves what is in it
        for file in latest:
            _write(file, seen)
    return seen, found


def _latest(url: ModelUrl, settings: FetchSettings, environ: Mapping[str, str]) -> list[Path]:
    """Return the files that say what `url` was last seen to lead to; the first is that to read."""
    keys = [url.text]
    # Another registry has another model of that name. Where none is set, as it may be with
    # --offline, what the last one had is meant.
    if url.scheme == "models" and (place := registry_place(environ)):
        keys.insert(0, f"{url.text}\0{place}")
    return [settings.folder / "latest" / f"{_digest(key)}.json" for key in keys]


def _check_files(url: ModelUrl, snapshot: Snapshot) -> None:
    """Raise NotLoadable for a file that does not belong below the model's folder, or cannot be."""
    for file in snapshot.files:
        if file.size is not None and file.size < 0:
            raise NotLoadable(f"'{url.shown}' has a file of {file.size} bytes")
        path = file.path
        is_sound = is_inside(path) and "\0" not in path and PurePosixPath(path).parts
        if file.form is FileForm.FILE and not is_sound:
            raise NotLoadable(f"'{url.shown}' has '{path[:200]}', which leads out of it")
    paths = {PurePosixPath(one.path) for one in snapshot.files if one.form is FileForm.FILE}
    if both := next((one for path in paths for one in path.parents if one in paths), None):
        raise NotLoadable(f"'{url.shown}' has '{str(both)[:200]}' as a file and as a folder")


def _fetch(url: ModelUrl, snapshot: Snapshot, seen: _Seen, settings: FetchSettings) -> Path:
    """Fetch and unpack what `snapshot` names, and put it in place as a whole."""
    place = settings.folder / url.scheme / seen.key
    place.parent.mkdir(parents=True, exist_ok=True)
    # The lock file stays: if it were deleted, a third process could make a new
    # one while the second waits for the old.
    with _locked(place.with_name(f"{seen.key}.lock"), url):
        if found := _complete(settings, url, seen):  # another process was first
            return found
        part = place.with_name(f"{seen.key}.part")
        files, ready = part / "files", part / "ready"
        files.mkdir(parents=True, exist_ok=True)
        _check_room(url, snapshot, files, settings)
        _download(url, snapshot, files, settings)
        # Left by a process that was ended while it unpacked; what it
        # downloaded is in files/, and is used again.
        shutil.rmtree(ready, ignore_errors=True)
        _put_together(snapshot, files, ready / snapshot.name, settings)
        # Inside what is renamed: a folder with this file is complete.
        _write_bytes(ready / _SIZES, msgspec.json.encode(_sizes(ready / snapshot.name)))
        shutil.rmtree(place, ignore_errors=True)  # one that was damaged
        ready.rename(place)
        shutil.rmtree(part, ignore_errors=True)
    log.info("fetched '%s'", url.shown)
    return place / snapshot.name


def _check_room(url: ModelUrl, snapshot: Snapshot, files: Path, settings: FetchSettings) -> None:
    """Raise NotLoadable if the files are too large, or larger than what is free on the disk."""
    total = sum(file.size or 0 for file in snapshot.files)
    if total > settings.max_bytes:
        allowed = f"{settings.max_bytes} (--fetch-max-bytes)"
        raise NotLoadable(f"'{url.shown}' has {total} bytes, allowed are {allowed}")
    # What an earlier try has brought needs no room again. Unpacking does, but how much is known
    # only then, and it is limited.
    there = sum(one.stat().st_size for one in files.iterdir())
    free = shutil.disk_usage(files).free
    if total - there > free:
        msg = f"'{url.shown}' has {total - there} bytes to fetch, and {files} has room for {free}"
        raise NotLoadable(msg)


def _download(url: ModelUrl, snapshot: Snapshot, files: Path, settings: FetchSettings) -> None:
    with progress() as shown:
        left = settings.max_bytes
        for file in snapshot.files:
            # By URL and digest, not by path: two layers may have none, and a path of the other side
            # names nothing here before it has been checked.
            target = files / _digest(f"{file.url}\0{file.digest}")
            if not target.exists():
                name = file.path or file.url.rpartition("/")[2]
                is_all = url.shown.endswith(f"/{name}")
                shown.begin(url.shown if is_all else f"{url.shown}: {name}", file.size or 0)
                if snapshot.fetch is not None:
                    part = target.with_name(target.name + PART)
                    snapshot.fetch(file, str(part), shown.advance)
                    part.replace(target)
                else:
                    download(snapshot.web, file, target, left, shown.advance)
            left -= target.stat().st_size


def _put_together(snapshot: Snapshot, files: Path, folder: Path, settings: FetchSettings) -> None:
    folder.mkdir(parents=True)
    unpacking = Unpacking(folder, settings.max_bytes)
    for file in snapshot.files:
        found = files / _digest(f"{file.url}\0{file.digest}")
        if file.form is FileForm.FILE:
            target = folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            # Two entries with one path: the later wins. What is written over the first would change
            # what was downloaded, and with it other files of the same digest.
            target.unlink(missing_ok=True)
            _link(found, target)
        else:
            name = file.path or file.digest or "a file"
            unpacking.unpack(found, name, is_layer=file.form is FileForm.LAYER)


def _link(found: Path, target: Path) -> None:
    """Give a file a second name; the first goes with the folder of what has arrived."""
    try:
        os.link(found, target)
    except OSError:  # a file system without
        shutil.copyfile(found, target)


def _complete(settings: FetchSettings, url: ModelUrl, seen: _Seen) -> Path | None:
    """Return the folder of a state, None if it is not there or its files are not as they were."""
    place = settings.folder / url.scheme / seen.key
    try:
        sizes = msgspec.json.decode((place / _SIZES).read_bytes(), type=dict[str, int])
    except (OSError, msgspec.MsgspecError):
        return None
    folder = place / seen.name
    # Sizes alone: digests of many gigabytes would take minutes at each start. It finds what a full
    # disk or a hand has done, not an attack: whoever can write here can write files.json, too.
    if not sizes.items() <= _sizes(folder).items():  # models may write more beside theirs
        log.warning("'%s' was damaged in %s, and is fetched again", url.shown, place)
        return None
    return folder


def _sizes(folder: Path) -> dict[str, int]:
    """Return the sizes of all files below `folder`, by their paths."""
    found = {}
    for path in folder.rglob("*"):
        # Not what links lead to: the store makes none, so whatever they
        # are, they are no files of the model.
        status = path.lstat()
        if S_ISREG(status.st_mode):
            found[path.relative_to(folder).as_posix()] = status.st_size
    return found


@contextmanager
def _pinned(url: ModelUrl, settings: FetchSettings) -> Iterator[Path | None]:
    """Yield the file in which the processes of a server note which state they serve, if several."""
    if settings.pins is None:
        yield None
        return
    pin = settings.pins / f"fetched-{_digest(url.text)}"
    with _locked(pin.with_suffix(".lock"), url):
        yield pin


@contextmanager
def _locked(file: Path, url: ModelUrl) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # Windows: what is put in place is whole in any case
        yield
        return
    with file.open("ab") as lock:
        try:
            # First without waiting, just to be able to say why nothing happens for minutes.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("waiting until another process has fetched '%s'", url.shown)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(file: Path) -> _Seen | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Seen)
    except (OSError, msgspec.MsgspecError):
        return None


def _write(file: Path, seen: _Seen) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    _write_bytes(file, msgspec.json.encode(seen))


def _write_bytes(file: Path, content: bytes) -> None:
    # Each process writes its own, and the rename puts one of them there whole.
    part = file.with_name(f"{file.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(file)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]
