"""One location in a cloud: lists its objects and fetches them, through obstore."""

import logging
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from inferd.errors import InvalidConfig, NotLoadable
from inferd.repository.cloud_url import CloudUrl
from inferd.repository.credentials import credentials

if TYPE_CHECKING:
    from obstore.store import ObjectStore

log = logging.getLogger("inferd.repository")

CONNECT_S, READ_S, OBJECT_S = 5, 30, 3600
"""Timeouts for a connection, for the next bytes, and for one whole object."""

RETRIES, RETRY_S = 3, 60
MAX_OBJECTS = 100_000
"""A location with more is no repository: listing it would take minutes, and memory."""

MAX_REASON = 200
"""How many characters of a provider's error message are passed on."""

_CHUNK_BYTES = 8 << 20


class BucketObject(NamedTuple):
    """One object; `path` is relative to the location, with slashes."""

    path: str
    size: int
    modified_ns: int
    tag: str


class Bucket:
    """Reads the objects below one URL."""

    def __init__(self, url: CloudUrl, environ: Mapping[str, str]) -> None:
        """Raises InvalidConfig when obstore is missing or rejects the settings."""
        self._url = url
        try:
            import obstore
        except ImportError:
            msg = f"'{url.text}' needs the package obstore: pip install 'inferd[cloud]'"
            raise InvalidConfig(msg) from None
        self._obstore = obstore
        try:
            self._store = _open(url, credentials(url, environ))
        except (obstore.exceptions.BaseError, ValueError) as error:
            # Only at the level of debugging: obstore's text may repeat what it
            # was given, and that includes keys.
            log.debug("%s", error)
            msg = f"'{url.text}' cannot be opened with the credentials that are set"
            raise InvalidConfig(msg) from error

    def objects(self) -> list[BucketObject]:
        """Return all objects. Raises NotLoadable."""
        found: list[BucketObject] = []
        try:
            for chunk in self._obstore.list(self._store, chunk_size=1000):
                found += map(_listed, chunk)
                if len(found) > MAX_OBJECTS:
                    msg = f"'{self._url.text}' has more than {MAX_OBJECTS} objects"
                    raise NotLoadable(msg)
        except self._obstore.exceptions.BaseError as error:
            what = "cannot be listed"
            raise self._failure(what, error) from error
        return found

    def fetch(self, one: BucketObject, file: Path) -> None:
        """Write the object `one`, as it was when listed, to `file`.

        Raises NotLoadable when it has changed since or cannot be read, and OSError.
        """
        try:
            # The storage compares the tag, so that what comes is the object of the listing, and
            # never a mixture of two uploads (decision 0023).
            options: Any = {"if_match": one.tag} if one.tag else {}
            found = self._obstore.get(self._store, one.path, options=options)
            with file.open("wb") as target:
                for chunk in found.stream(min_chunk_size=_CHUNK_BYTES):
                    # A view of obstore's own buffer: nothing is copied into Python's bytes.
                    target.write(memoryview(chunk))
        except self._obstore.exceptions.BaseError as error:
            what = f"does not give '{one.path}'"
            raise self._failure(what, error) from error
        # Not every storage sends tags: without one, the size is what can be compared.
        if file.stat().st_size != one.size:
            msg = f"'{one.path}' in '{self._url.text}' changed while it was fetched"
            raise NotLoadable(msg)

    def _failure(self, what: str, error: Exception) -> NotLoadable:
        log.debug("%s %s: %s", self._url.text, what, error)
        reason = _REASONS.get(type(error).__name__) or _provider_message(error)
        return NotLoadable(f"'{self._url.text}' {what}: {reason}")


# By name, as the classes are there only where obstore is installed.
_REASONS = {
    "NotFoundError": "it is not there",
    "PermissionDeniedError": "these credentials may not read it",
    "UnauthenticatedError": "the credentials are missing or wrong",
    "PreconditionError": "it has changed meanwhile",
}


def _provider_message(error: Exception) -> str:
    """Return the provider's message, without the request and the document around it."""
    # obstore's errors are the Rust crate's: "Generic S3 error: ... - Server
    # returned ...: <?xml...". What is between says what was wrong; the rest shows
    # requests, whose URLs may be signed.
    line = str(error).partition("\n")[0]
    return line.rpartition(" - ")[2].partition(": <")[0][:MAX_REASON]


# Imported when called: obstore is an extra (inferd[cloud]).
def _open(url: CloudUrl, settings: dict[str, str]) -> "ObjectStore":
    from obstore import store

    client: Any = {
        "connect_timeout": f"{CONNECT_S}s",
        "read_timeout": f"{READ_S}s",
        "timeout": f"{OBJECT_S}s",
        "allow_http": True,  # only used if a configured URL says http
    }
    retry: Any = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)}
    config: Any = {**settings, **({"endpoint": url.endpoint} if url.endpoint else {})}
    kinds: dict[str, Any] = {"s3": store.S3Store, "gs": store.GCSStore, "as": store.AzureStore}
    opened: ObjectStore = kinds[url.scheme](
        url.bucket,
        prefix=url.prefix or None,
        config=config,
        client_options=client,
        retry_config=retry,
    )
    return opened


def _listed(found: Any) -> BucketObject:
    # By way of whole microseconds: a float of seconds since 1970
    # tells these apart, and no nanoseconds.
    modified_ns = int(found["last_modified"].timestamp() * 1_000_000) * 1000
    return BucketObject(found["path"], found["size"], modified_ns, found["e_tag"] or "")
