"""The Hugging Face Hub: which files of a repository are a model, and where they are."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote

import msgspec

from inferd.config.names import is_inside
from inferd.config.options.option import BOOLEANS
from inferd.config.platform import PLATFORMS
from inferd.errors import NotLoadable
from inferd.repository.fetch.code import configured_code
from inferd.repository.fetch.settings import MAX_FILES
from inferd.repository.fetch.snapshot import RemoteFile, Snapshot
from inferd.repository.fetch.url import ModelUrl
from inferd.repository.fetch.web import Login, NotAnswered, NotGiven, Web, decoded, without_login

ENDPOINT = "https://huggingface.co"

_ONNX_FOLDER = "onnx/"
_LAYOUT = re.compile(
    r"(?:[^/]+/)?config\.pbtxt|(?:[^/]+/)?MLmodel|(?:[^/]+/)?model-settings\.json"
    r"|(?:[^/]+/)?(?:0|[1-9]\d*)/model\.[^/]+"
)
"""The paths that show that a repository is a model, or a repository of models, as served here."""

# Files that run code when they are loaded: pickles can call anything, and a model.py is code.
_PICKLES = (".pkl", ".pickle", ".joblib", ".py")
_WEIGHTS = (".safetensors", ".bin", ".gguf", ".h5", ".msgpack")
_MOST_NAMED = 8


class _Lfs(msgspec.Struct):
    sha256: str
    size: int


class _Sibling(msgspec.Struct):
    """One file in the answer of the Hub."""

    rfilename: str
    size: int | None = None
    blobId: str = ""  # noqa: N815 - as the Hub calls it
    lfs: _Lfs | None = None


class _Info(msgspec.Struct):
    """The part of the answer of the Hub that is read here."""

    sha: str
    siblings: list[_Sibling] = []


def hub_snapshot(url: ModelUrl, environ: Mapping[str, str]) -> Snapshot:
    """Return the files of a model on the Hub, at the commit that the revision is now.

    Raises NotLoadable when the Hub does not give them, must not be asked, or none is a model.
    """
    # The variables that huggingface_hub itself reads (HF_HUB_OFFLINE, HF_ENDPOINT, HF_TOKEN,
    # HF_HOME): who has set up a machine for it has set it up for us.
    if BOOLEANS.get(environ.get("HF_HUB_OFFLINE", "").lower()):
        raise NotAnswered(f"'{url.shown}' is not asked for, as HF_HUB_OFFLINE is set")
    endpoint, own = without_login((environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/"))
    token = _token(environ)
    hint = "" if token else "; for a private model set HF_TOKEN"
    web = Web(Login(endpoint, own or (f"Bearer {token}" if token else "")), hint)
    info = _info(web, f"{endpoint}/api/models/{url.place}/revision/", url)
    # It becomes part of URLs and of the key of the stored state.
    if re.fullmatch(r"[0-9a-f]{40,64}", info.sha) is None:
        raise NotLoadable(f"'{url.shown}': the hub names no commit")
    # What the Hub names is somebody's upload: a path that leads out of the folder is left out
    # before anything chooses among them.
    files = {one.rfilename: one for one in info.siblings if is_inside(one.rfilename)}
    base, wanted = wanted_files(sorted(files), url)
    if len(wanted) > MAX_FILES:
        raise NotLoadable(f"'{url.shown}' has more than {MAX_FILES} files")
    code = [name for name in wanted if name.endswith(_PICKLES)]
    # Code at a branch is whatever somebody pushes next; a commit has
    # been read, or can be (decision 0049).
    is_moving = url.revision != info.sha
    if code and is_moving:
        raise _code(url, info.sha, code[0], "runs as code")
    # By the commit, not by the revision: a push between two files would mix two states.
    where = f"{endpoint}/{url.place}/resolve/{info.sha}"
    found = tuple(_file(files[name], base, where) for name in wanted)
    name = url.place.rpartition("/")[2]
    # One file of a repository with many is another model than its
    # neighbours, so it has a name of its own.
    if len(found) == 1 and url.path:
        name = Path(url.path).stem if Path(url.path).stem != "model" else name
    # What a file is called does not tell it all: a configuration may name any file as code.
    check = partial(_check_configured, url, info.sha) if is_moving else None
    return Snapshot(name, f"{info.sha}/{url.path}", found, web, check=check)


def _check_configured(url: ModelUrl, sha: str, folder: Path) -> None:
    if file := configured_code(folder):
        raise _code(url, sha, file, "makes files of it run as code")


def _code(url: ModelUrl, sha: str, file: str, what: str) -> NotLoadable:
    path = f"/{url.path}" if url.path else ""
    return NotLoadable(
        f"'{url.shown}' has '{file}', which {what} of this server: name the commit "
        f"that you have read: hf://{url.place}@{sha}{path}"
    )


def wanted_files(names: Sequence[str], url: ModelUrl) -> tuple[str, list[str]]:
    """Return which of the files `names` are fetched, and what their paths begin with there.

    That is what the URL's path leads to; else all, if they are laid out as models are served here;
    else the one model file that is there. Raises NotLoadable when there is none, or more than one.
    """
    # .gitattributes and the like are in every repository.
    names = [name for name in names if not name.startswith(".") and "/." not in name]
    if url.path in names:
        folder = url.path.rpartition("/")[0]
        return (f"{folder}/" if folder else ""), [url.path, *_beside(url.path, names)]
    if url.path:
        below = [name for name in names if name.startswith(f"{url.path}/")]
        if not below:
            raise NotLoadable(f"'{url.shown}' is not there: it has {_listed(names)}")
        return f"{url.path}/", below
    if any(_LAYOUT.fullmatch(name) for name in names):
        return "", list(names)
    # Repositories that have weights for PyTorch at the top keep exports in onnx/, where
    # transformers.js looks for them.
    for folder in ("", _ONNX_FOLDER):
        here = [name for name in names if name.rpartition("/")[0] == folder.rstrip("/")]
        models = [name for name in here if name.endswith(".onnx")]
        # Beside model.onnx there usually are variants (model_fp16.onnx, model_quantized.onnx),
        # which are somebody's choice to make.
        plain = [name for name in models if name == f"{folder}model.onnx"]
        if len(found := plain or models) == 1:
            return folder, [found[0], *_beside(found[0], here)]
        if found:
            raise _several(url, found)
    others = [name for name in names if "/" not in name and _is_model_file(name)]
    if len(others) == 1:
        return "", [others[0], *_beside(others[0], names)]
    raise _several(url, others) if others else _none(url, names)


def _info(web: Web, where: str, url: ModelUrl) -> _Info:
    try:
        # A branch may have slashes in its name, which would be further parts of the path.
        answer = web.document(f"{where}{quote(url.revision, safe='')}?blobs=true")
        return decoded(answer, _Info, f"'{url.shown}': the hub's answer is not as expected")
    except NotGiven as error:
        what = {
            "GatedRepo": "has terms that have to be accepted on its page first, with the account "
            "whose token HF_TOKEN is",
            "RevisionNotFound": f"has no revision '{url.revision}'",
        }.get(error.reason)
        if what is None:
            raise
        raise NotLoadable(f"'{url.shown}' {what}") from None


def _file(one: _Sibling, base: str, where: str) -> RemoteFile:
    url = f"{where}/{quote(one.rfilename)}"
    path = one.rfilename.removeprefix(base)
    # For files in LFS, blobId names the pointer and not the content;
    # the SHA-256 is that of the content.
    if one.lfs is not None:
        return RemoteFile(path, url, one.lfs.size, f"sha256:{one.lfs.sha256}")
    return RemoteFile(path, url, one.size, f"git:{one.blobId}" if one.blobId else "")


def _beside(model: str, names: Sequence[str]) -> list[str]:
    """Return the files that belong to a model file: its weights, which bear its name."""
    stem = model.removesuffix(".xml")
    # ONNX external data is called model.onnx_data (Optimum), model.onnx.data (PyTorch's exporter)
    # or model.data; OpenVINO's weights are beside their .xml, as .bin.
    last = f"{model.removesuffix('.onnx')}.data" if model.endswith(".onnx") else f"{stem}.bin"
    return [name for name in names if name.startswith((f"{model}_data", f"{model}.data", last))]


def _is_model_file(name: str) -> bool:
    endings = (p.filename.removeprefix("model") for p in PLATFORMS if p.filename)
    # What runs code is never chosen without being named.
    return name.endswith(tuple(one for one in endings if one not in _PICKLES))


def _several(url: ModelUrl, found: Sequence[str]) -> NotLoadable:
    return NotLoadable(
        f"'{url.shown}' has several model files, name one: hf://{url.place}/{found[0]} "
        f"(there are {_listed(found)})"
    )


def _none(url: ModelUrl, names: Sequence[str]) -> NotLoadable:
    weights = [name for name in names if name.endswith(_WEIGHTS)]
    code = [name for name in names if name.endswith(_PICKLES)]
    hint = ""
    if code:
        hint = f"; '{code[0]}' runs code when it is loaded, so name it: hf://{url.place}/{code[0]}"
    elif weights:
        hint = f"; '{weights[0]}' are weights alone: export the model to ONNX first"
    return NotLoadable(f"'{url.shown}' has no model file that is served here{hint}")


def _listed(names: Sequence[str]) -> str:
    text = ", ".join(f"'{name}'" for name in names[:_MOST_NAMED]) or "no file"
    more = len(names) - _MOST_NAMED
    return f"{text} and {more} more" if more > 0 else text


def _token(environ: Mapping[str, str]) -> str:
    """Return the user's token, from where the Hub's own programs have it."""
    if token := environ.get("HF_TOKEN", "").strip():
        return token
    home = environ.get("HF_HOME") or f"{environ.get('HOME', '~')}/.cache/huggingface"
    file = Path(environ.get("HF_TOKEN_PATH") or f"{home}/token").expanduser()
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
