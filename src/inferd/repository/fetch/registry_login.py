"""RegistryLogin: tokens of OCI registries, with the credentials that docker's tools have stored."""

import base64
import logging
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import msgspec

from inferd.errors import NotLoadable
from inferd.repository.fetch.web import FixedLogin, Web, origin_of

log = logging.getLogger("inferd.repository")

_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_HELPER_NAME = re.compile(r"[\w.-]+")
_HELPER_S = 30
_DOCKER_HUB = "https://index.docker.io/v1/"


class _Auth(msgspec.Struct):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""


class _Stored(msgspec.Struct, rename="camel"):
    """The part of docker's file of credentials that is read here."""

    auths: dict[str, _Auth] = {}
    cred_helpers: dict[str, str] = {}
    creds_store: str = ""


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""


class _Given(msgspec.Struct):
    """What a credential helper prints."""

    Username: str = ""
    Secret: str = ""


class RegistryLogin:
    """Logs in to one registry at `base`, as its challenge says, when it wants that."""

    def __init__(self, host: str, base: str, environ: Mapping[str, str]) -> None:
        self._host = host
        self._base = base
        self._environ = environ
        self._value = ""

    def header(self, url: str) -> str:
        """Return the token for requests to the registry, and nothing for other hosts."""
        return self._value if origin_of(url) == origin_of(self._base) else ""

    def answer(self, challenge: str) -> bool:
        """Get a token, or send user and password, as the registry says. Raises NotLoadable."""
        kind, _, rest = challenge.partition(" ")
        # Read at each challenge, and there may be several in one download: tokens end after 60 s
        # unless the registry says otherwise (distribution's token specification).
        basic = stored_credentials(self._host, self._environ)
        if kind.lower() == "basic":
            before, self._value = self._value, basic
            # The same again would be refused again.
            return bool(basic) and basic != before
        if kind.lower() != "bearer":
            return False
        said = dict(_PARAMETER.findall(rest))
        realm = said.get("realm", "")
        scheme = urlsplit(realm).scheme
        # The challenge comes from the registry, so a realm over HTTP would send the user's password
        # in the clear to whoever answers there.
        if scheme != "https" and (scheme, urlsplit(self._base).scheme) != ("http", "http"):
            msg = f"the registry {self._host} wants a login that is not over HTTPS"
            raise NotLoadable(msg)
        query = {name: said[name] for name in ("service", "scope") if name in said}
        web = Web(FixedLogin(realm, basic) if basic else None)
        answer = web.document(f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}")
        try:
            token = msgspec.json.decode(answer.content, type=_Token)
        except (msgspec.MsgspecError, RecursionError):
            msg = f"the registry {self._host} gives no token"
            raise NotLoadable(msg) from None
        # The distribution's specification has both; either may be left out, and
        # they are the same if both are there.
        found = token.token or token.access_token
        self._value = f"Bearer {found}"
        # It becomes a header: a line break in it would be one in the request.
        return bool(found) and found.isascii() and found.isprintable()


def stored_credentials(host: str, environ: Mapping[str, str]) -> str:
    """Return what docker, podman or oras have stored for `host`, as Authorization, or ""."""
    # docker login stores the bare host; older versions and other tools store these URLs.
    keys = [host, f"https://{host}", f"https://{host}/v1/", f"https://{host}/v2/"]
    # Docker Hub has been filed under the URL of its first index ever since.
    keys += [_DOCKER_HUB] if host == "docker.io" else []
    for file in _files(environ):
        try:
            stored = msgspec.json.decode(file.read_bytes(), type=_Stored)
        except OSError:
            continue
        except (msgspec.MsgspecError, RecursionError):
            log.warning("%s cannot be read: it is not as expected", file)
            continue
        # A helper for the host goes before the one for all, as in docker.
        helper = stored.cred_helpers.get(host) or stored.creds_store
        for key in keys:
            if (auth := stored.auths.get(key)) and (found := _basic(auth)):
                return found
            if helper and (found := _helped(helper, key, environ)):
                return found
    return ""


def _files(environ: Mapping[str, str]) -> list[Path]:
    home = Path(environ.get("HOME") or "~").expanduser()
    found = [Path(environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"]
    for variable, rest in (("REGISTRY_AUTH_FILE", ""), ("XDG_RUNTIME_DIR", "containers/auth.json")):
        if place := environ.get(variable):
            found.append(Path(place) / rest if rest else Path(place))
    return found


def _basic(auth: _Auth) -> str:
    if auth.auth:
        return f"Basic {auth.auth}"
    if auth.username:
        pair = f"{auth.username}:{auth.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"
    return ""


def _helped(helper: str, key: str, environ: Mapping[str, str]) -> str:
    """Return what a credential helper, a program called docker-credential-NAME, says of a host."""
    # It becomes the name of a program: a slash in it could lead anywhere.
    if not _HELPER_NAME.fullmatch(helper):
        return ""
    # Without credentials if a helper is missing or knows nothing of
    # the host: what is public needs none.
    with suppress(OSError, subprocess.SubprocessError, msgspec.MsgspecError, RecursionError):
        done = subprocess.run(
            [f"docker-credential-{helper}", "get"],
            input=key.encode(),
            capture_output=True,
            timeout=_HELPER_S,
            env=dict(environ),
            check=True,
        )
        given = msgspec.json.decode(done.stdout, type=_Given)
        # "<token>" marks an identity token, which is exchanged and not sent as a
        # password (docker's protocol for helpers).
        if given.Username and given.Username != "<token>":
            return _basic(_Auth(username=given.Username, password=given.Secret))
    return ""
