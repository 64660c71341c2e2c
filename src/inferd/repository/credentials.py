"""Cloud credentials: read from where Triton's users keep them, under obstore's names."""

import configparser
from collections.abc import Mapping
from pathlib import Path

import msgspec

from inferd.errors import InvalidConfig
from inferd.repository.cloud_url import CloudUrl

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
        msg = (
            f"the file that {CREDENTIAL_FILE} names is not as expected: JSON such as "
            f'{{"s3": {{"": {{"key_id": "...", "secret_key": "..."}}}}}}'
        )
        raise InvalidConfig(msg) from None
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
