"""Places in a cloud: their URLs in Triton's syntax, the credentials for them, and their objects."""

import configparser
import logging
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from inferd.errors import InvalidConfig, NotLoadable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

log = logging.getLogger("inferd.repository")

SCHEMES = {"s3": "Amazon S3", "gs": "Google Cloud Storage", "as": "Azure Blob Storage"}
"""The schemes of URLs, and the storage each stands for."""

_URL = re.compile(r"(s3|gs|as)://(.*)", re.DOTALL)
# Of two forms, as in Triton: HOST:PORT, where the port tells it from the name of a bucket; and
# anything behind http:// or https://, where the scheme does.
_ENDPOINT = re.compile(r"(https?://)?([^/]+:\d+|(?<=://)[^/]+)(?:/(.*))?", re.DOTALL)
# Of the host; a key may have the character, too.
_LOGIN = re.compile(r"(?<=//)[^/\s]*@")


class CloudUrl(NamedTuple):
    """Where a repository lies: below `prefix` ("" for all) in a bucket or container.

    `endpoint` is the URL of the storage server if it is not the provider's; `account` is Azure's.
    """

    text: str
    scheme: str
    bucket: str
    prefix: str
    endpoint: str = ""
    account: str = ""


def cloud_url(text: str) -> CloudUrl | None:
    """Return the URL in `text`, None if it is a path on this machine.

    s3://BUCKET/PATH, s3://HOST:PORT/BUCKET/PATH (http), s3://https://HOST:PORT/BUCKET/PATH,
    gs://BUCKET/PATH, as://ACCOUNT/CONTAINER/PATH. Raises InvalidConfig when a part is missing.
    """
    found = _URL.fullmatch(text)
    if found is None:
        return None
    if _LOGIN.search(text):
        raise InvalidConfig(
            f"'{_without_login(text)}' has a user or a password in it: set those in variables "
            f"such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    scheme, rest = found.groups()
    endpoint = account = ""
    if scheme == "s3" and (own := _ENDPOINT.fullmatch(rest)):
        protocol, host, rest = own.groups(default="")
        # Plain HOST:PORT is HTTP in Triton: that is how MinIO and other
        # servers of one's own are named.
        endpoint = f"{protocol or 'http://'}{host}"
    elif scheme == "as":
        host, _, rest = rest.partition("/")
        # The host may be written out, ACCOUNT.blob.core.windows.net; obstore wants the account.
        account = host.partition(".")[0]
    bucket, _, prefix = rest.partition("/")
    if not bucket or (scheme == "as" and not account):
        example = "as://ACCOUNT/CONTAINER/PATH" if scheme == "as" else f"{scheme}://BUCKET/PATH"
        raise InvalidConfig(f"'{text}' names no place in {SCHEMES[scheme]}, expected {example}")
    return CloudUrl(text, scheme, bucket, prefix.strip("/"), endpoint, account)


def _without_login(text: str) -> str:
    return _LOGIN.sub("", text)


CREDENTIAL_FILE = "TRITON_CLOUD_CREDENTIAL_PATH"
"""The variable that names a JSON file with credentials, by scheme and beginning of the URL."""

_PLACES = dict[str, dict[str, str | dict[str, str]]]
_GOOGLE = "GOOGLE_APPLICATION_CREDENTIALS"
_WORDS_OF_FILE = {
    "key_id": "access_key_id",
    "secret_key": "secret_access_key",
    "session_token": "session_token",
    "region": "region",
    "account_str": "account_name",
    "account_key": "account_key",
}
_WORDS_OF_PROFILE = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
}
_WORDS_OF_AZURE = {"AZURE_STORAGE_ACCOUNT": "account_name", "AZURE_STORAGE_KEY": "account_key"}


class _Google(msgspec.Struct):
    """The part of Google's credential files that is read here."""

    type: str


def credentials(url: CloudUrl, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings to open `url` with, on top of those obstore takes from AWS_* and such.

    Raises InvalidConfig for an unusable credential file; the message reveals nothing of it.
    """
    own = _of_file(url, environ)
    # Of Google's, the file's entry is a path to another file; of the others,
    # the keys themselves (Triton's format).
    if url.scheme == "gs":
        return _google(own if isinstance(own, str) else environ.get(_GOOGLE, ""))
    settings = own if isinstance(own, dict) else {}
    found = _renamed(_WORDS_OF_FILE, settings)
    if url.scheme == "as":
        return {"account_name": url.account, **_renamed(_WORDS_OF_AZURE, environ), **found}
    # obstore reads AWS_* by itself, but not the files of AWS's tools. They count where no variable
    # has a key, as for those tools, or where a profile is asked for by name.
    if "access_key_id" not in found and (
        "profile" in settings or "AWS_ACCESS_KEY_ID" not in environ
    ):
        found = _of_profile(settings.get("profile", ""), environ) | found
    return found


def _of_file(url: CloudUrl, environ: Mapping[str, str]) -> str | dict[str, str] | None:
    """Return the entry of the credential file whose key is the longest prefix of `url`."""
    path = environ.get(CREDENTIAL_FILE)
    if not path:
        return None
    try:
        places = msgspec.json.decode(Path(path).read_bytes(), type=_PLACES).get(url.scheme, {})
    except OSError as error:
        msg = f"the file that {CREDENTIAL_FILE} names cannot be read: {error.strerror}"
        raise InvalidConfig(msg) from error
    # Without the reason, and without the cause, which would be shown
    # with it: both could quote the file.
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise InvalidConfig(
            f"the file that {CREDENTIAL_FILE} names is not as expected: JSON such as "
            f'{{"s3": {{"": {{"key_id": "...", "secret_key": "..."}}}}}}'
        ) from None
    begins = [begin for begin in places if url.text.startswith(begin)]
    return places[max(begins, key=len)] if begins else None


def _google(file: str) -> dict[str, str]:
    """Return the setting for a credential `file`, by its account type; emulators use services'."""
    if not file:
        return {}
    try:
        kind = msgspec.json.decode(Path(file).read_bytes(), type=_Google).type
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        msg = f"the file with Google's credentials ({_GOOGLE}) cannot be read: expected JSON"
        raise InvalidConfig(msg) from None
    is_service = kind == "service_account"
    # obstore has a setting for keys of services, and one for all other kinds, such as what `gcloud
    # auth application-default login` writes.
    return {"service_account" if is_service else "application_credentials": file}


def _renamed(words: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return what is `given`, and not empty, under our words."""
    return {ours: given[word] for word, ours in words.items() if given.get(word)}


def _of_profile(profile: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that AWS's own two files have for a profile."""
    profile = profile or environ.get("AWS_PROFILE", "default")
    home = Path(environ.get("HOME", "~")).expanduser() / ".aws"
    # Secret keys may contain a percent sign, which interpolation would trip over.
    files = configparser.ConfigParser(interpolation=None)
    found: dict[str, str] = {}
    for section, file in (
        (
            # AWS's config file has the word "profile" before all names but default; its file of
            # credentials has it before none. The latter is read last, as it wins for AWS's tools.
            profile if profile == "default" else f"profile {profile}",
            environ.get("AWS_CONFIG_FILE", str(home / "config")),
        ),
        (profile, environ.get("AWS_SHARED_CREDENTIALS_FILE", str(home / "credentials"))),
    ):
        try:
            files.read(file)
        except configparser.Error:
            msg = f"AWS's file '{Path(file).name}' cannot be read: it is no INI file"
            raise InvalidConfig(msg) from None
        if files.has_section(section):
            found |= _renamed(_WORDS_OF_PROFILE, files[section])
    return found


CONNECT_S, READ_S, OBJECT_S = 5, 30, 3600
"""Timeouts for a connection, for the next bytes, and for one whole object."""

RETRIES, RETRY_S = 3, 60
MAX_OBJECTS = 100_000
"""A location with more is no repository: listing it would take minutes, and memory."""

MAX_REASON = 200
"""How many characters of a provider's error message are passed on."""

_CHUNK_BYTES = 8 << 20


class NotThere(NotLoadable):
    """There is no object of the name that was listed."""


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
            log.debug("%s", _without_login(str(error)))
            msg = f"'{url.text}' cannot be opened with the credentials that are set"
            raise InvalidConfig(msg) from error

    def objects(self) -> list[BucketObject]:
        """Return all objects. Raises NotLoadable."""
        found: list[BucketObject] = []
        try:
            for chunk in self._obstore.list(self._store, chunk_size=1000):
                found += map(_listed, chunk)
                if len(found) > MAX_OBJECTS:
                    raise NotLoadable(f"'{self._url.text}' has more than {MAX_OBJECTS} objects")
        except self._obstore.exceptions.BaseError as error:
            what = "cannot be listed"
            raise self._failure(what, error) from error
        return found

    def fetch(self, one: BucketObject, file: Path) -> None:
        """Write the object `one`, as it was when listed, to `file`.

        Raises NotLoadable when it has changed since or cannot be read, NotThere when it is gone,
        and OSError.
        """
        try:
            # The storage compares the tag, so that what comes is the object of the listing, and
            # never a mixture of two uploads (decision 0023).
            options: Any = {"if_match": one.tag} if one.tag else {}
            try:
                found = self._obstore.get(self._store, one.path, options=options)
            # Python's own class, which is none of obstore's, and would be taken for a fault of the
            # folder here.
            except FileNotFoundError as error:
                msg = f"'{self._url.text}' does not give '{one.path}': {_GONE}"
                raise NotThere(msg) from error
            with file.open("wb") as target:
                for chunk in found.stream(min_chunk_size=_CHUNK_BYTES):
                    # A view of obstore's own buffer: nothing is copied into Python's bytes.
                    target.write(memoryview(chunk))
        except self._obstore.exceptions.BaseError as error:
            what = f"does not give '{one.path}'"
            raise self._failure(what, error) from error
        # Not every storage sends tags: without one, the size is what can be compared.
        if file.stat().st_size != one.size:
            raise NotLoadable(f"'{one.path}' in '{self._url.text}' changed while it was fetched")

    def _failure(self, what: str, error: Exception) -> NotLoadable:
        # obstore leaves out what is signed, but not the login of an endpoint in a variable.
        log.debug("%s %s: %s", self._url.text, what, _without_login(str(error)))
        reason = _REASONS.get(type(error).__name__) or _provider_message(error)
        return NotLoadable(f"'{self._url.text}' {what}: {reason}")


_GONE = "it is not there"
# By name, as the classes are there only where obstore is installed.
_REASONS = {
    "NotFoundError": _GONE,
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
