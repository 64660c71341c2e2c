"""OCI registries: models as artefacts and in images, which files they are made of, and tokens."""

import hashlib
import logging
import platform
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import msgspec

from inferd.errors import NotLoadable
from inferd.repository.fetch.snapshot import FileForm, RemoteFile, Snapshot
from inferd.repository.fetch.url import ModelUrl
from inferd.repository.fetch.web import Login, Web, basic, decoded

log = logging.getLogger("inferd.repository")

_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HELPER_NAME = re.compile(r"[\w.-]+")
_HELPER_S = 30
_DOCKER_HUB = "https://index.docker.io/v1/"


class _Auth(msgspec.Struct):
    auth: str = ""
    username: str = ""
    password: str = ""


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


class RegistryLogin(Login):
    """Logs in to one registry at `base`, as its challenge says, when it wants that."""

    def __init__(self, host: str, base: str, environ: Mapping[str, str]) -> None:
        super().__init__(base)
        self._host = host
        self._base = base
        self._environ = environ

    def answer(self, challenge: str) -> bool:
        """Get a token, or send user and password, as the registry says. Raises NotLoadable."""
        kind, _, rest = challenge.partition(" ")
        # Read at each challenge, and there may be several in one download: tokens end after 60 s
        # unless the registry says otherwise (distribution's token specification).
        stored = stored_credentials(self._host, self._environ)
        if kind.lower() == "basic":
            before, self._value = self._value, stored
            # The same again would be refused again.
            return bool(stored) and stored != before
        if kind.lower() != "bearer":
            return False
        said = dict(_PARAMETER.findall(rest))
        realm = said.get("realm", "")
        scheme = urlsplit(realm).scheme
        # The challenge comes from the registry, so a realm over HTTP would send the user's password
        # in the clear to whoever answers there.
        if scheme != "https" and (scheme, urlsplit(self._base).scheme) != ("http", "http"):
            raise NotLoadable(f"the registry {self._host} wants a login that is not over HTTPS")
        query = {name: said[name] for name in ("service", "scope") if name in said}
        web = Web(Login(realm, stored))
        answer = web.document(f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}")
        token = decoded(answer, _Token, f"the registry {self._host} gives no token")
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
        return basic(auth.username, auth.password)
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


# Docker's types beside those of the OCI: registries hand out whichever was pushed.
_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_IMAGES = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
# Types of layers that are tar archives end so: application/vnd.oci.image.layer.v1.tar+gzip,
# Docker's image.rootfs.diff.tar.gzip, KitOps' model.v1.tar+gzip.
_TARS = (".tar", ".tar+gzip", ".tar.gzip", "+tar", "+tar+gzip", "+gzip", ".tgz")
# The first is how ORAS names files, the second is ModelPack's, the CNCF's specification of models.
_TITLE = "org.opencontainers.image.title"
_PATH = "org.cncf.model.filepath"
_UNPACK = "io.deis.oras.content.unpack"
_ALONE = ("127.0.0.1", "localhost", "::1")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_HUB = "docker.io"
_HINT = "; log in with docker, podman or oras, whose file of credentials is read"
_MOST_LAYERS = 10_000


class _Platform(msgspec.Struct):
    architecture: str = ""
    os: str = ""


class _Descriptor(msgspec.Struct, rename="camel"):
    """What a manifest says of a blob, or an index of a manifest."""

    digest: str
    size: int
    media_type: str = ""
    annotations: dict[str, str] | None = None
    platform: _Platform | None = None


class _Manifest(msgspec.Struct, rename="camel"):
    """A manifest, or an index, which has `manifests`."""

    media_type: str = ""
    config: _Descriptor | None = None
    layers: list[_Descriptor] = []
    manifests: list[_Descriptor] = []


def oci_snapshot(url: ModelUrl, environ: Mapping[str, str]) -> Snapshot:
    """Return the files of an artefact, or the layers of an image. Raises NotLoadable."""
    host, _, repo = url.place.partition("/")
    base = base_of(host)
    # Even public images need a token, which registries give to anybody; so the login is made in
    # answer to 401, not before.
    web = Web(RegistryLogin(host, base, environ), _HINT)
    where = f"{base}/v2/{_full(host, repo)}"
    reference = f"sha256:{url.digest}" if url.digest else url.revision
    manifest, digest = _manifest(web, where, reference, url)
    # One level only: an index in an index is allowed by the specification, but a manifest of such a
    # place has no layers and is refused below.
    if manifest.manifests:
        chosen = _for_this_machine(manifest.manifests, url).digest
        # It becomes a part of a URL; and the name of a tag there would be compared with nothing.
        if _DIGEST.fullmatch(chosen) is None:
            msg = f"'{url.shown}': a manifest has the digest '{chosen[:80]}', expected SHA-256"
            raise NotLoadable(msg)
        manifest, digest = _manifest(web, where, chosen, url)
    if len(manifest.layers) > _MOST_LAYERS or not manifest.layers:
        raise NotLoadable(f"'{url.shown}' has {len(manifest.layers)} layers, expected some")
    is_image = manifest.config is not None and manifest.config.media_type in _IMAGES
    files = [_file(one, where, url, is_image=is_image) for one in manifest.layers]
    return Snapshot(repo.rpartition("/")[2], digest, tuple(files), web)


def base_of(host: str) -> str:
    """Return the URL of a registry: HTTPS, but on this machine HTTP, as other clients have it."""
    name = urlsplit(f"//{host}").hostname
    if host == _HUB:
        host = "registry-1.docker.io"
    # Docker counts these as insecure registries by default: there is no certificate for localhost.
    return f"http://{host}" if name in _ALONE else f"https://{host}"


def _full(host: str, repo: str) -> str:
    # Docker Hub's official images have no owner in their short name.
    return f"library/{repo}" if host == _HUB and "/" not in repo else repo


def _manifest(web: Web, where: str, reference: str, url: ModelUrl) -> tuple[_Manifest, str]:
    """Return a manifest and its digest, which is that wanted if one is."""
    accept = ", ".join((*_MANIFESTS, *_INDEXES))
    content = web.document(f"{where}/manifests/{reference}", {"Accept": accept})
    # Computed, not taken from Docker-Content-Digest: what a server says
    # of its own answer proves nothing.
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if ":" in reference and digest != reference:
        msg = f"'{url.shown}': its manifest has the digest {digest}, expected {reference}"
        raise NotLoadable(msg)
    return decoded(content, _Manifest, f"'{url.shown}': its manifest is not as expected"), digest


def _for_this_machine(manifests: list[_Descriptor], url: ModelUrl) -> _Descriptor:
    """Return the entry of an index for this machine, or the one that is for any."""
    machine = _MACHINES.get(platform.machine(), platform.machine())
    for one in manifests:
        # As Docker, which writes platforms in the words of Go.
        if one.platform and (one.platform.os, one.platform.architecture) == ("linux", machine):
            return one
    for one in manifests:
        if one.platform is None or one.platform.os in ("", "any"):
            return one
    known = ", ".join(
        f"{one.platform.os}/{one.platform.architecture}" for one in manifests if one.platform
    )
    raise NotLoadable(f"'{url.shown}' is not there for linux/{machine}, but for {known}")


def _file(layer: _Descriptor, where: str, url: ModelUrl, *, is_image: bool) -> RemoteFile:
    """Return what one layer is: part of an image, an archive, or a file with its name."""
    if _DIGEST.fullmatch(layer.digest) is None or layer.size < 0:
        msg = f"'{url.shown}': a layer has the digest '{layer.digest[:80]}', expected SHA-256"
        raise NotLoadable(msg)
    notes = layer.annotations or {}
    path = notes.get(_TITLE) or notes.get(_PATH) or ""
    blob = f"{where}/blobs/{layer.digest}"
    is_tar = layer.media_type.endswith(_TARS)
    if is_image:
        form = FileForm.LAYER
    # ORAS packs folders and marks them so. Without the mark, the type tells, unless the file is
    # called an archive: then it was meant to stay one.
    elif notes.get(_UNPACK) == "true" or (is_tar and not _is_archive_by_name(path)):
        form = FileForm.ARCHIVE
    elif path:
        form = FileForm.FILE
    else:
        raise NotLoadable(
            f"'{url.shown}': a layer of type '{layer.media_type[:100]}' has no name, expected the "
            f"annotation {_TITLE}"
        )
    return RemoteFile(path, blob, layer.size, layer.digest, form)


def _is_archive_by_name(path: str) -> bool:
    """Tell whether a file is an archive by itself, such as an environment of a Python model."""
    return path.endswith((".tar", ".tar.gz", ".tgz"))
