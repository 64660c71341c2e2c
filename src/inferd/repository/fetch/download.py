"""Brings one remote file to the disk: resumed where it broke off, bounded, and verified."""

import hashlib
import http.client
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from inferd.errors import NotLoadable
from inferd.repository.fetch.snapshot import Arrived, RemoteFile
from inferd.repository.fetch.url import shown
from inferd.repository.fetch.web import (
    WAITS_S,
    NotAnswered,
    Pace,
    TooSlow,
    Web,
    announced_bytes,
    reason_of,
)

PART = ".inferd-part"
"""The suffix of a file that is not whole."""

CHUNK_BYTES = 1 << 20

_PARTIAL, _NOT_SATISFIABLE = 206, 416


def download(web: Web, file: RemoteFile, target: Path, max_bytes: int, arrived: Arrived) -> None:
    """Write `file` to `target`, continuing what an earlier call left beside it.

    `arrived` is called each time when more of it is there.
    Raises NotLoadable when it cannot be had, is not as announced, or has more than `max_bytes`; and
    OSError when it cannot be written.
    """
    part = target.with_name(target.name + PART)
    limit = max_bytes if file.size is None else min(file.size, max_bytes)
    # Asked before anything is received: only then can bytes at the beginning be another file's.
    was_resumed = part.exists()
    _receive(web, file, part, limit, arrived)
    if (wrong := _difference(file, part)) and was_resumed:
        # What was there may have been of another file: the whole is fetched once.
        part.unlink()
        _receive(web, file, part, limit, arrived)
        wrong = _difference(file, part)
    if wrong:
        part.unlink()
        raise NotLoadable(f"'{shown(file.url)}' is not what was announced: {wrong}")
    # Renamed when it is whole and verified: whatever has the final name needs no second look.
    part.replace(target)


def _receive(web: Web, file: RemoteFile, part: Path, limit: int, arrived: Arrived) -> None:
    """Fetch until `part` is whole; as long as more arrives, an end in the middle is no failure."""
    waits = iter(WAITS_S)
    while True:
        before = _size(part)
        # A request for a range behind the end would be answered with
        # 416, as if the file had changed.
        if file.size is not None and before >= file.size > 0:
            if before == file.size:
                return
            part.unlink()
        try:
            if _receive_once(web, file, part, limit, arrived):
                return
            failure = NotAnswered(f"'{shown(file.url)}' breaks off")
        # The next try would crawl as well, and start its own minute of patience.
        except TooSlow:
            raise
        except NotAnswered as error:
            failure = error
        # Counted anew whenever more has arrived: a file of many gigabytes may break off any
        # number of times, one of which nothing comes is given up after WAITS_S.
        if _size(part) > before:
            waits = iter(WAITS_S)
        if (wait_s := next(waits, None)) is None:
            raise failure
        web.wait(wait_s)


def _receive_once(web: Web, file: RemoteFile, part: Path, limit: int, arrived: Arrived) -> bool:
    """Append what one response brings to `part`; return whether that is all of it."""
    # Without a digest nothing would tell that the two parts are of two files: it begins anew.
    have = _size(part) if file.digest else 0
    # As it is, not compressed on the way: otherwise ranges mean other bytes.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with _opened(web, file, part, headers) as response:
        # A server without ranges answers 200 with the whole file (RFC 9110, section 14.2).
        if have and response.status != _PARTIAL:
            have = 0
        # A client has to look which part it got (RFC 9110, section 15.3.7). Another one,
        # appended, would only be found by the digest, at the end.
        elif have and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            part.unlink()
            return False
        announced = announced_bytes(response)
        # Content-Length is of this response, thus of what is still missing.
        end = None if announced is None else have + announced
        # Refused before the first byte is written, where the other side tells.
        if end is not None and end > limit:
            raise _too_large(file, limit)
        done = have
        with part.open("ab" if have else "wb") as target:
            pace = Pace(web.clock, file.url)
            for chunk in _chunks(response, file):
                done += len(chunk)
                if done > limit:
                    # What came beyond the limit is of no use for a resumed download, and would fill
                    # the disk until somebody looks.
                    target.truncate(0)
                    raise _too_large(file, limit)
                target.write(chunk)
                arrived(done, end or file.size or 0)
                pace.add(len(chunk))
    # Without Content-Length the end of the connection is the end of the file, and only an announced
    # size tells whether it came too early.
    return done == end if end is not None else file.size in (None, done)


def _opened(web: Web, file: RemoteFile, part: Path, headers: dict[str, str]) -> Any:
    try:
        return web.open(file.url, headers)
    except NotLoadable as error:
        if getattr(error, "status", 0) == _NOT_SATISFIABLE:  # the file is shorter now
            part.unlink(missing_ok=True)
            raise NotAnswered(f"'{shown(file.url)}' has changed") from None
        raise


def _chunks(source: Any, file: RemoteFile) -> Iterator[bytes]:
    """Yield what comes until the end of the response, or of the connection."""
    while True:
        try:
            # read1 returns what is there. read would wait until a whole chunk has come:
            # neither progress nor pace would be seen on a slow line, and what had come of
            # it would be lost when the line breaks.
            chunk = source.read1(CHUNK_BYTES)
        # What has arrived stays, and the caller goes on from there. It is no end: of a body in
        # chunks, nothing else tells that there would have been more.
        except (OSError, http.client.HTTPException) as error:
            raise NotAnswered(f"'{shown(file.url)}' breaks off: {reason_of(error)}") from None
        if not chunk:
            return
        yield chunk


def _size(part: Path) -> int:
    with suppress(FileNotFoundError):
        return part.stat().st_size
    return 0


def _difference(file: RemoteFile, part: Path) -> str:
    """Return in what `part` is not the file that was announced, "" if it is."""
    size = _size(part)
    if file.size is not None and size != file.size:
        return f"it has {size} bytes, expected {file.size}"
    kind, _, expected = file.digest.partition(":")
    if not kind:
        return ""
    if kind == "git":
        # Files that are not in LFS are known to the Hub by git's name of a blob: the SHA-1 of this
        # header and the content. Systems that forbid SHA-1 allow it where it is not for security.
        digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    else:
        digest = hashlib.sha256()
    with part.open("rb") as source:
        found = hashlib.file_digest(source, lambda: digest).hexdigest()
    name = "SHA-256" if kind == "sha256" else "SHA-1 of git"
    return "" if found == expected else f"its {name} is {found}, expected {expected}"


def _too_large(file: RemoteFile, limit: int) -> NotLoadable:
    if file.size is None or file.size > limit:
        msg = f"'{shown(file.url)}' has more than {limit} bytes (--fetch-max-bytes)"
    else:
        msg = f"'{shown(file.url)}' sends more than the {limit} bytes that it was said to have"
    return NotLoadable(msg)
