"""MLflow's model registry: which files a registered model's version is made of."""

import hashlib
import posixpath
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from inferd.errors import InvalidConfig, NotLoadable
from inferd.repository.bucket import SCHEMES, Bucket, cloud_url
from inferd.repository.fetch.settings import MAX_FILES
from inferd.repository.fetch.snapshot import Arrived, RemoteFile, Snapshot
from inferd.repository.fetch.url import ModelUrl, shown
from inferd.repository.fetch.web import Login, Web, basic, decoded, without_login

_API = "/api/2.0/mlflow"
_ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"
_LATEST = "latest"
_MAX_DEPTH = 32
_MOST_FOLDERS = 10_000
_HINT = "; set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"


class _Version(msgspec.Struct):
    version: str
    current_stage: str = ""


class _OneVersion(msgspec.Struct):
    model_version: _Version


class _Registered(msgspec.Struct):
    latest_versions: list[_Version] = []


class _OneRegistered(msgspec.Struct):
    registered_model: _Registered


class _Uri(msgspec.Struct):
    artifact_uri: str


class _LoggedInfo(msgspec.Struct):
    info: _Uri


class _Logged(msgspec.Struct):
    model: _LoggedInfo


class _Artifact(msgspec.Struct):
    path: str
    is_dir: bool = False
    file_size: int | None = None  # which some versions send as a text


class _Listing(msgspec.Struct):
    files: list[_Artifact] = []


_Answer = TypeVar("_Answer")


class _Registry:
    """The calls of one registry that are needed here. All raise NotLoadable."""

    def __init__(self, url: ModelUrl, environ: Mapping[str, str]) -> None:
        self._url = url
        where = _configured(environ)
        if where.partition("://")[0].lower() not in ("http", "https"):
            raise InvalidConfig(
                f"'{url.shown}': set MLFLOW_TRACKING_URI to the registry, expected "
                f"https://HOST or http://HOST"
            )
        # Here, too, as in MLflow's client, user and password may be; they are shown nowhere.
        self.base, own = without_login(where)
        self.web = Web(Login(self.base, own or _login(environ)), _HINT)

    def version(self, name: str, revision: str) -> str:
        """Return the number of the version that a number, an @alias, "latest" or a stage means."""
        # Aliases are MLflow's present way to say "production"; stages (Staging, Production) are its
        # older one, which registries still have.
        if revision.startswith("@"):
            wanted = {"name": name, "alias": revision[1:]}
            return self.ask("registered-models/alias", wanted, _OneVersion).model_version.version
        if revision.isdecimal():
            return revision
        found = self.ask("registered-models/get", {"name": name}, _OneRegistered).registered_model
        # latest_versions has the latest of each stage, so "latest" is the highest of all of them.
        numbers = [
            int(one.version)
            for one in found.latest_versions
            if one.version.isdecimal() and revision.lower() in (_LATEST, one.current_stage.lower())
        ]
        if not numbers:
            raise NotLoadable(f"'{self._url.shown}': the model has no version '{revision}'")
        return str(max(numbers))

    def place(self, name: str, version: str) -> str:
        """Return the URI of the files of a version."""
        wanted = {"name": name, "version": version}
        # The `source` of a version is not asked for: the registry may keep a copy elsewhere, its
        # storage_location, which this call prefers.
        uri = self.ask("model-versions/get-download-uri", wanted, _Uri).artifact_uri
        if uri.startswith("models:/"):  # a model that was logged, of MLflow 3
            logged = quote(uri.removeprefix("models:/").strip("/"), safe="")
            uri = self.ask(f"logged-models/{logged}", {}, _Logged).model.info.artifact_uri
        return uri

    def files(self, path: str) -> Iterator[RemoteFile]:
        """Yield the files below `path` among the artifacts that the registry passes on."""
        left = [("", 0)]
        count = 0
        while left:
            folder, depth = left.pop()
            count += 1
            if depth > _MAX_DEPTH or count > _MOST_FOLDERS:
                raise NotLoadable(f"'{self._url.shown}' has folders without end")
            where = posixpath.join(path, folder).rstrip("/")
            url = f"{self.base}{_ARTIFACTS}?{urlencode({'path': where})}"
            for one in self._read(url, _Listing).files:
                last = posixpath.basename(one.path.rstrip("/"))
                below = posixpath.join(folder, last)
                # Only the last part of the path counts, so that no answer leads out
                # of the folder that was asked for.
                if last in ("", ".", ".."):
                    msg = f"'{self._url.shown}' has '{one.path[:200]}', which leads out of it"
                    raise NotLoadable(msg)
                if one.is_dir:
                    left.append((below, depth + 1))
                else:
                    place = f"{self.base}{_ARTIFACTS}/{quote(f'{where}/{last}'.lstrip('/'))}"
                    yield RemoteFile(below, place, one.file_size)

    def ask(self, call: str, wanted: Mapping[str, str], kind: type[_Answer]) -> _Answer:
        """Return the answer of a call of MLflow's REST API."""
        query = f"?{urlencode(wanted)}" if wanted else ""
        return self._read(f"{self.base}{_API}/{call}{query}", kind)

    def _read(self, url: str, kind: type[_Answer]) -> _Answer:
        complaint = f"'{self._url.shown}': the registry's answer is not as expected"
        # Not strict: protobuf's JSON has 64-bit numbers as texts.
        return decoded(self.web.document(url), kind, complaint, strict=False)


def registry_place(environ: Mapping[str, str]) -> str:
    """Return the URL of the registry that is asked, without a login, "" if none is set."""
    return without_login(_configured(environ))[0]


def _configured(environ: Mapping[str, str]) -> str:
    # MLflow's client, too, takes the tracking server as registry unless another is set.
    where = environ.get("MLFLOW_REGISTRY_URI") or environ.get("MLFLOW_TRACKING_URI", "")
    return where.rstrip("/")


def mlflow_snapshot(url: ModelUrl, environ: Mapping[str, str]) -> Snapshot:
    """Return the files of a version of a registered model. Raises NotLoadable, InvalidConfig."""
    registry = _Registry(url, environ)
    version = registry.version(url.place, url.revision)
    uri = registry.place(url.place, version)
    scheme = urlsplit(uri).scheme
    fetch = None
    if scheme == "mlflow-artifacts":
        path = urlsplit(uri).path.strip("/")
        files: list[RemoteFile] = []
        for file in registry.files(path):
            files.append(file)
            _check_count(len(files), url)
    elif scheme in SCHEMES:
        files, fetch = _in_bucket(uri, url, environ)
    else:
        raise _elsewhere(uri, url)
    if not files:
        raise NotLoadable(f"'{url.shown}': version {version} has no files")
    return Snapshot(
        url.place, _identity(registry.base, version, files), tuple(files), registry.web, fetch
    )


def _in_bucket(
    uri: str, url: ModelUrl, environ: Mapping[str, str]
) -> tuple[list[RemoteFile], Callable[[RemoteFile, str, Arrived], None]]:
    """Return the files below a URI in a cloud, and what fetches them."""
    # MLflow's own variable for MinIO and other storages that speak S3.
    endpoint = environ.get("MLFLOW_S3_ENDPOINT_URL", "").rstrip("/")
    if endpoint and uri.startswith("s3://"):
        uri = f"s3://{endpoint}/{uri.removeprefix('s3://')}"
    place = cloud_url(uri)
    assert place is not None
    bucket = Bucket(place, environ)
    # The tag is part of the URL, and so of the identity: an artefact that was
    # overwritten in place is another state.
    objects = {f"{uri}/{one.path}#{one.tag}": one for one in bucket.objects()}
    _check_count(len(objects), url)

    def fetch(file: RemoteFile, target: str, arrived: Arrived) -> None:
        one = objects[file.url]
        bucket.fetch(one, Path(target))
        arrived(one.size, one.size)

    files = [
        RemoteFile(one.path, where, one.size)
        for where, one in objects.items()
        # A key that ends with a slash is how consoles of clouds show an empty folder.
        if not one.path.endswith("/")
    ]
    return files, fetch


def _check_count(count: int, url: ModelUrl) -> None:
    if count > MAX_FILES:
        raise NotLoadable(f"'{url.shown}' has more than {MAX_FILES} files")


def _elsewhere(uri: str, url: ModelUrl) -> NotLoadable:
    scheme = urlsplit(uri).scheme
    if scheme in ("", "file"):
        why = "in a folder of the registry's machine: have `mlflow server` pass artifacts on"
    else:
        why = f"at '{shown(uri)}', expected mlflow-artifacts, s3, gs or as"
    return NotLoadable(f"'{url.shown}': its files are {why}")


def _identity(base: str, version: str, files: list[RemoteFile]) -> str:
    """Return what changes with the files, as far as MLflow tells: no digests."""
    listed = sorted((file.url, file.size) for file in files)
    return hashlib.sha256(repr((base, version, listed)).encode()).hexdigest()


def _login(environ: Mapping[str, str]) -> str:
    """Return the value of Authorization, "" without credentials."""
    user = environ.get("MLFLOW_TRACKING_USERNAME", "")
    password = environ.get("MLFLOW_TRACKING_PASSWORD", "")
    token = environ.get("MLFLOW_TRACKING_TOKEN", "")
    # MLflow's client, too, sends the token only where the other two are not both set.
    if token and not (user and password):
        return f"Bearer {token}"
    return basic(user, password) if user else ""
