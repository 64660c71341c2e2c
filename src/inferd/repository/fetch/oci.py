"""OCI registries: models as artefacts, and in images, which files they are made of."""

import hashlib
import platform
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from inferd.errors import NotLoadable
from inferd.repository.fetch.registry_login import RegistryLogin
from inferd.repository.fetch.settings import FetchSettings
from inferd.repository.fetch.snapshot import FileForm, RemoteFile, Snapshot
from inferd.repository.fetch.url import ModelUrl
from inferd.repository.fetch.web import Web

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
_LAYERS = ("application/vnd.oci.image.layer.", "application/vnd.docker.image.rootfs.")
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


def oci_snapshot(url: ModelUrl, _settings: FetchSettings, environ: Mapping[str, str]) -> Snapshot:
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
        chosen = _for_this_machine(manifest.manifests, url)
        manifest, digest = _manifest(web, where, chosen.digest, url)
    if len(manifest.layers) > _MOST_LAYERS or not manifest.layers:
        msg = f"'{url.shown}' has {len(manifest.layers)} layers, expected some"
        raise NotLoadable(msg)
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
    answer = web.document(f"{where}/manifests/{reference}", {"Accept": accept})
    # Computed, not taken from Docker-Content-Digest: what a server says
    # of its own answer proves nothing.
    digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
    if ":" in reference and digest != reference:
        msg = f"'{url.shown}': its manifest has the digest {digest}, expected {reference}"
        raise NotLoadable(msg)
    try:
        return msgspec.json.decode(answer.content, type=_Manifest), digest
    except (msgspec.MsgspecError, RecursionError):
        msg = f"'{url.shown}': its manifest is not as expected"
        raise NotLoadable(msg) from None


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
    msg = f"'{url.shown}' is not there for linux/{machine}, but for {known}"
    raise NotLoadable(msg)


def _file(layer: _Descriptor, where: str, url: ModelUrl, *, is_image: bool) -> RemoteFile:
    """Return what one layer is: part of an image, an archive, or a file with its name."""
    if not layer.digest.startswith("sha256:") or layer.size < 0:
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
        msg = (
            f"'{url.shown}': a layer of type '{layer.media_type[:100]}' has no name, expected the "
            f"annotation {_TITLE}"
        )
        raise NotLoadable(msg)
    return RemoteFile(path, blob, layer.size, layer.digest, form)


def _is_archive_by_name(path: str) -> bool:
    """Tell whether a file is an archive by itself, such as an environment of a Python model."""
    return path.endswith((".tar", ".tar.gz", ".tgz"))
