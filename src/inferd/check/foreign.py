"""Folders of other servers: what in them is served, and as what; and what cannot be as it is.

The latter are TorchServe's archives (.mar), BentoML's bentos, and TensorFlow Serving's list of
models. Their files are read as far as they tell names; no code in them is run.
"""

import re
import zipfile
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from inferd.check.finding import Finding
from inferd.check.model import ModelCheck
from inferd.config.model import ModelConfig
from inferd.config.platform import reported_platform
from inferd.errors import InvalidConfig
from inferd.repository.contents import read_limited
from inferd.repository.foreign import MLFLOW_FILE, SETTINGS_FILE
from inferd.repository.slips import shown
from inferd.repository.tree import is_noise

_MANIFEST = "MAR-INF/MANIFEST.json"
# A check reads what nobody has vouched for: files, folders and lists have limits.
_MOST_BYTES = 1 << 20
_MOST_ENTRIES = 1000
_MOST_ARCHIVES = 100
_MOST_NAMED = 5
_DEPTH = 3  # models/NAME/1/NAME.mar

_HANDLERS = {
    "image_classifier": "its client, or a model.py, makes the tensor of a picture",
    "object_detector": "its client, or a model.py, makes the tensor of a picture",
    "image_segmenter": "its client, or a model.py, makes the tensor of a picture",
    "text_classifier": "its client, or a model.py, makes numbers of a text",
}
"""Handlers that TorchServe has, and what they do that nobody does here."""

_SERVING_LIST = re.compile(r"\bmodel_config_list\b")
_BASE_PATH = re.compile(r"""\bbase_path\s*:\s*["']([^"'\n]+)["']""")
_MODULE = re.compile(r"^module:\s*(\S+)", re.MULTILINE)


def archives_at(path: Path) -> Iterator[Finding]:
    """Yield what is at `path`, or below it, and is for another server."""
    if _is_archive(path):
        yield _of_archive(path)
        return
    if not path.is_dir():
        return
    for archive in islice(_found(path, _DEPTH), _MOST_ARCHIVES):
        yield _of_archive(archive)
    if (path / "bento.yaml").is_file() or (path / "bentofile.yaml").is_file():
        yield _of_bento(path)
    for entry in _entries(path):
        if entry.suffix in (".config", ".conf", ".pbtxt") and entry.is_file():
            yield from _of_serving_list(entry)


def _found(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the archives below a folder."""
    for entry in _entries(folder):
        if _is_archive(entry):
            yield entry
        # A link may lead back to a folder above.
        elif depth > 1 and entry.is_dir() and not entry.is_symlink():
            yield from _found(entry, depth - 1)


def _is_archive(path: Path) -> bool:
    """Tell whether `path` is called like an archive; a pipe, which may block, is none."""
    return path.suffix == ".mar" and (path.is_file() or path.is_dir())


def _entries(folder: Path) -> list[Path]:
    try:
        every = (one for one in folder.iterdir() if not is_noise(one.name))
        # Before sorting: a folder with a million entries is not read as a whole.
        return sorted(islice(every, _MOST_ENTRIES))
    except OSError:
        # A folder that cannot be read has been complained of elsewhere.
        return []


def _of_archive(path: Path) -> Finding:
    try:
        model = _manifest(path)
    # zipfile raises RuntimeError for encrypted entries.
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, RuntimeError) as error:
        text = f"it is called like an archive of TorchServe, but cannot be read: {error}"
        return Finding("error", "foreign", text, path)
    name, handler = str(model.get("modelName") or path.stem), str(model.get("handler") or "")
    weights = str(model.get("serializedFile") or "")
    parts = {
        "model": name,
        "its file": weights,
        "its class in": str(model.get("modelFile") or ""),
        "its handler": handler,
    }
    said = ", ".join(f"{what} '{one}'" for what, one in parts.items() if one)
    text = f"an archive of TorchServe, which is not read here: {said}"
    return Finding("error", "foreign", text, path, model=name, fix=_way(model, name, weights))


def _manifest(path: Path) -> dict[str, object]:
    """Return what the manifest of an archive says of its model. Raises ValueError and others."""
    if path.is_dir():  # made with --archive-format no-archive
        content = read_limited(path / _MANIFEST, _MOST_BYTES, _MANIFEST)
    else:
        with zipfile.ZipFile(path) as archive, archive.open(_MANIFEST) as file:
            # One byte more tells that there is more: the sizes in a zip's directory may lie.
            content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"its manifest is larger than {_MOST_BYTES} bytes")
    document = msgspec.json.decode(content)
    model = document.get("model") if isinstance(document, dict) else None
    if not isinstance(model, dict):
        raise ValueError("its manifest names no model")
    return model


def _way(model: dict[str, object], name: str, weights: str) -> str:
    """Return what has to be done with an archive."""
    name, suffix = shown(name), Path(weights).suffix
    if suffix == ".onnx":
        steps = f"take {weights} out of it (unzip) as {name}/1/model.onnx"
    elif model.get("modelFile") or suffix in (".pth", ".bin", ".safetensors"):
        steps = (
            f"its weights need its class: export the model with torch.export as "
            f"{name}/1/model.pt2, or load both in {name}/1/model.py"
        )
    elif suffix in (".pt", ".pt2"):
        steps = f"take {weights} out of it (unzip) as {name}/1/model{suffix}"
        # TorchScript, or weights alone, which need their class: the name does not tell.
        if suffix == ".pt":
            steps += f" if it is TorchScript, and list inputs and outputs in {name}/config.pbtxt"
    else:
        steps = f"write {name}/1/model.py, which does what its handler does"
    handler = str(model.get("handler") or "")
    usual = _HANDLERS.get(handler)
    if usual is not None:
        return f"{steps}; {usual}"
    if handler and handler != "base_handler":
        return f"{steps}; what {handler} does before and after becomes a model.py"
    return steps


def _of_bento(path: Path) -> Finding:
    models = [
        file.parent for file in sorted(islice(path.glob("models/*/*/model.yaml"), _MOST_ENTRIES))
    ]
    text = "a bento of BentoML, whose service is not run here"
    fix = "its functions become those of a Python file: @inferd.model, inferd serve app.py"
    if models:
        listed = ", ".join(
            f"{one.relative_to(path)} ({bento_module(one)})" for one in models[:_MOST_NAMED]
        )
        text += f"; it has the models {listed}"
        fix = f"serve its model: inferd serve {path / models[0].relative_to(path)}; {fix}"
    return Finding("error", "foreign", text, path, fix=fix)


def bento_module(folder: Path) -> str:
    """Return the module of BentoML that saved the model in `folder`, "" if that was none."""
    try:
        text = read_limited(folder / "model.yaml", _MOST_BYTES, "model.yaml").decode()
    except (OSError, UnicodeDecodeError, ValueError, InvalidConfig):
        return ""
    # By a regular expression: YAML's parser is no dependency, and one line at the left margin is
    # enough.
    found = _MODULE.search(text)
    return found[1] if found and found[1].startswith("bentoml") else ""


def _of_serving_list(file: Path) -> Iterator[Finding]:
    try:
        text = read_limited(file, _MOST_BYTES, file.name).decode()
    # One that is larger, such as a graph of TensorFlow's as text, is no list of models.
    except (OSError, UnicodeDecodeError, ValueError, InvalidConfig):
        return
    found = _SERVING_LIST.search(text)
    if found is None:
        return
    paths = _BASE_PATH.findall(text)
    said = f"TensorFlow Serving's list of models, which is not read here: it names {len(paths)}"
    fix = f"name their folders: inferd serve {' '.join(paths[:_MOST_NAMED])}" if paths else ""
    line = text[: found.start()].count("\n") + 1
    yield Finding("warning", "foreign", said, file, line, 1, fix=fix)


_NO_V1 = "clients of /v1/models/{name}:predict have to use V2, /v2/models/{name}/infer"

_IDLE_SETTINGS = {
    "parallel_workers": "say instance_group { count: N } in a config.pbtxt beside it",
    "warm_workers": "",
    "cache_enabled": "say response_cache { enable: true } in a config.pbtxt beside it",
}
_IDLE_PARAMETERS = {
    "content_type": "clients say what their data is by its datatype",
    "environment_path": "install what the model needs where inferd runs",
    "environment_tarball": "install what the model needs where inferd runs",
    "inference_pool_gid": "",
}
"""Settings of MLServer's that nothing looks at, and what to do instead."""


def add_foreign_notes(check: ModelCheck) -> None:
    """Say of a model from a folder of another server as what it is served."""
    config, model = check.config, check.model
    if config is None or check.is_refused:
        return
    folder = model.folder
    # In the order in which repositories look for these signs: a folder may have several.
    if (folder / SETTINGS_FILE).is_file():
        _note(check, config, "MLServer", "")
        _add_idle_settings(check, folder)
    elif (folder / MLFLOW_FILE).is_file():
        _note(check, config, "MLflow", "nothing of its conda.yaml or requirements.txt is installed")
    elif module := bento_module(folder):
        _note(check, config, "BentoML", f"{module} saved it; its service is not run")
    # Only a SavedModel without version folders above it has the folder itself as its file.
    elif config.default_model_filename == ".":
        _note(check, config, "TensorFlow Serving", _NO_V1.format(name=config.name))
    elif model.file is not None and model.owns_folder:
        _note(check, config, "KServe", _NO_V1.format(name=config.name))


def _note(check: ModelCheck, config: ModelConfig, server: str, more: str) -> None:
    versions = ", ".join(map(str, check.model.versions))
    text = (
        f"a folder as {server} has it: served as model '{config.name}', version {versions}, "
        f"platform {reported_platform(config)}"
    )
    check.add_note(f"{text}; {more}" if more else text, "foreign")


def _add_idle_settings(check: ModelCheck, folder: Path) -> None:
    settings = _settings(folder)
    given = settings.get("parameters")
    parameters: Mapping[str, object] = given if isinstance(given, dict) else {}
    for known, found in ((_IDLE_SETTINGS, settings), (_IDLE_PARAMETERS, parameters)):
        for name, fix in known.items():
            # A setting that is false or empty asks for nothing.
            if found.get(name):
                text = f"{name} has no effect in inferd"
                place = folder / SETTINGS_FILE
                check.add(
                    Finding("warning", "foreign", text, place, model=check.model.name, fix=fix)
                )


def _settings(folder: Path) -> Mapping[str, object]:
    """Return MLServer's settings, which the server has just read."""
    try:
        document = msgspec.json.decode((folder / SETTINGS_FILE).read_bytes())
    except (OSError, msgspec.MsgspecError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
