"""SmallHub: sites that models are fetched from, on loopback, and what goes wrong with them."""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

IMAGE = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


class SmallHub(ThreadingHTTPServer):
    """Answers GET requests from `files`, path to content, with ranges, as sites of models do.

    `answers`, path to a function of the request, go before them. `requests` are those that came:
    path with query, and headers. `breaks` is after how many bytes of each file's next response the
    connection ends, in turn. `secret`, if set, has to be in Authorization, and `challenge` says how
    to get it. With `forgets` ranges are not known.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = {}
        self.answers = {}
        self.requests = []
        self.breaks = []
        self.secret = ""
        self.challenge = ""
        self.versions = {}
        self.aliases = {}
        self.forgets = False
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, *_):
        """Say nothing of clients that leave in the middle."""

    def close(self):
        self.shutdown()
        self.server_close()

    @property
    def paths(self):
        return [path for path, _ in self.requests]

    def put(self, path, content):
        """Add a file; return its link with checksum."""
        self.files[path] = content
        return f"{self.url}{path}#sha256={hashlib.sha256(content).hexdigest()}"

    def put_image(self, repo, tag, layers, config=IMAGE, kind=LAYER):
        """Add an image of `layers`, or an artefact: contents, or pairs of those and annotations.

        Return the digest of the manifest. A third part of a layer is its media type.
        """
        rows = []
        for layer in layers:
            content, notes, *media = layer if isinstance(layer, tuple) else (layer, None)
            row = {"mediaType": media[0] if media else kind, "size": len(content)}
            row["digest"] = self.put_blob(repo, content)
            rows.append(row | ({"annotations": notes} if notes else {}))
        config = {"mediaType": config, "size": 2, "digest": self.put_blob(repo, b"{}")}
        return self.put_manifest(repo, tag, {"config": config, "layers": rows})

    def put_blob(self, repo, content):
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.files[f"/v2/{repo}/blobs/{digest}"] = content
        return digest

    def put_manifest(self, repo, tag, manifest):
        body = json.dumps({"schemaVersion": 2, **manifest}).encode()
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        for reference in (tag, digest):
            self.files[f"/v2/{repo}/manifests/{reference}"] = body
        return digest

    def put_registered(self, name, version, files, root="mlflow-artifacts:/1/models/m/artifacts"):
        """Add a version of a model to MLflow's registry; `files` are below `root`."""
        path = root.partition(":/")[2].strip("/")
        for name_of_file, content in files.items():
            self.files[f"/api/2.0/mlflow-artifacts/artifacts/{path}/{name_of_file}"] = content
        folders = {""} | {parent for one in files for parent in _parents(one)}

        def listing(request):
            below = request.query["path"].removeprefix(path).strip("/")
            if below not in folders:
                return request.answer(200, b"{}")
            rows = [
                {"path": one.rpartition("/")[2], "is_dir": False, "file_size": len(content)}
                for one, content in files.items()
                if one.rpartition("/")[0] == below
            ]
            rows += [
                {"path": one.rpartition("/")[2], "is_dir": True}
                for one in sorted(folders - {""})
                if one.rpartition("/")[0] == below
            ]
            return request.answer(200, json.dumps({"files": rows}).encode())

        self.answers["/api/2.0/mlflow-artifacts/artifacts"] = listing
        self.versions[name, version] = root
        for call in ("model-versions/get-download-uri", "registered-models/alias"):
            self.answers[f"/api/2.0/mlflow/{call}"] = _registered
        self.answers["/api/2.0/mlflow/registered-models/get"] = _registered

    def put_hub_model(self, repo, files, revision="main", lfs=()):
        """Add a repository of the Hugging Face Hub; return the commit. `lfs` are large files."""
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        siblings = []
        for name, content in files.items():
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            row = {"rfilename": name, "size": len(content), "blobId": git}
            if name in lfs:
                digest = hashlib.sha256(content).hexdigest()
                row |= {"blobId": "0" * 40, "lfs": {"sha256": digest, "size": len(content)}}
            siblings.append(row)
            self.files[f"/{repo}/resolve/{commit}/{name}"] = content
        body = json.dumps({"id": repo, "sha": commit, "siblings": siblings}).encode()
        for known in (revision, commit):
            self.files[f"/api/models/{repo}/revision/{known}"] = body
        return commit


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        hub = self.server
        path = unquote(urlsplit(self.path).path)
        self.query = {name: values[0] for name, values in parse_qs(urlsplit(self.path)[3]).items()}
        hub.requests.append((self.path, dict(self.headers)))
        if path in hub.answers:
            return hub.answers[path](self)
        if hub.secret and self.headers.get("Authorization") != hub.secret:
            headers = {"WWW-Authenticate": hub.challenge} if hub.challenge else {}
            sent = self.headers.get("Authorization", "")
            return self.answer(401, b"wrong: " + sent.encode(), headers)
        content = hub.files.get(path)
        if content is None:
            return self.answer(404, b"nothing")
        return self.send_file(content)

    def send_file(self, content, headers=None):
        """Answer with content, or with the part of it that is wanted, perhaps not to its end."""
        hub = self.server
        status, headers, begin = 200, dict(headers or {}), 0
        wanted = self.headers.get("Range", "")
        if wanted and not hub.forgets:
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            if begin >= len(content):
                return self.answer(416, b"")
            status = 206
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        rest = content[begin:]
        end = hub.breaks.pop(0) if hub.breaks else None
        return self.answer(status, rest, headers, end)

    def answer(self, status, body, headers=None, end=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body if end is None else body[:end])
        self.close_connection = True
        return None

    def log_message(self, *_):
        """Say nothing."""


def _parents(path):
    """Return the folders that a path is in, from the outermost."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _registered(request):
    """Answer a call of MLflow's registry."""
    hub, wanted = request.server, request.query
    if hub.secret and request.headers.get("Authorization") != hub.secret:
        return request.answer(401, b"")
    version = wanted.get("version") or hub.aliases.get((wanted["name"], wanted.get("alias")))
    if "/registered-models/get?" in request.path:
        rows = [
            {"version": number, "current_stage": hub.aliases.get((name, number), "None")}
            for name, number in hub.versions
            if name == wanted["name"]
        ]
        answer = {"registered_model": {"latest_versions": rows}}
    elif (wanted["name"], version) not in hub.versions:
        return request.answer(404, b'{"error_code": "RESOURCE_DOES_NOT_EXIST"}')
    elif "alias" in wanted:
        answer = {"model_version": {"name": wanted["name"], "version": version}}
    else:
        answer = {"artifact_uri": hub.versions[wanted["name"], version]}
    return request.answer(200, json.dumps(answer).encode())


def tar_of(files, compress=True, links=(), kind=tarfile.SYMTYPE):
    """Return a tar archive of `files`, path to content, None for a folder, and of `links`."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            if content is None:
                entry.type = tarfile.DIRTYPE
            else:
                entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content or b""))
        for name, to in links:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, to
            archive.addfile(entry)
    content = made.getvalue()
    return gzip.compress(content, mtime=0) if compress else content


def zip_of(files):
    """Return a zip archive of `files`, path to content."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def basic(user, password):
    """Return what Authorization is for a user and a password."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
