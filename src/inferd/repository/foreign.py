"""Model folders of other servers: MLServer's model-settings.json, and MLflow's MLmodel.

A folder with nothing but a model file is one, too, if environment variables take the place of the
settings: that is how KServe starts MLServer.

Such folders have no version folders, so the model is version 1, or the version in MLServer's
settings if that is a number. Their files name the runtime and the model file; a config.pbtxt beside
them adds what they cannot express. No code of either project is needed, and Python code that they
may name is never run.
"""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from inferd.config.checks import CONFIG_FILE
from inferd.config.model import DynamicBatching, ModelConfig, ModelInput, ModelOutput
from inferd.config.names import is_inside, is_model_name
from inferd.config.parameter_names import (
    ANY_INPUT_NAME,
    COLUMNS,
    DEFAULT_OUTPUTS,
    MODEL_CLASS,
    TABLE,
    VERSION_NAME,
)
from inferd.errors import InvalidConfig, Unsupported
from inferd.repository.contents import read_limited
from inferd.repository.layout import is_version
from inferd.repository.tree import is_noise
from inferd.tensor.dtype import DATATYPES

SETTINGS_FILE = "model-settings.json"
MLFLOW_FILE = "MLmodel"

IMPLEMENTATION_VARIABLE = "MLSERVER_MODEL_IMPLEMENTATION"
"""The environment variable that names the implementation if the settings do not."""

NAME_VARIABLE, URI_VARIABLE = "MLSERVER_MODEL_NAME", "MLSERVER_MODEL_URI"
VERSION_VARIABLE, EXTRA_VARIABLE = "MLSERVER_MODEL_VERSION", "MLSERVER_MODEL_EXTRA"
"""The variables for the rest, if a folder has no settings at all."""

MAX_BYTES = 1 << 20
"""A larger file is refused unread."""

MAX_DEPTH = 4
"""How many levels below a folder that is no model are searched for MLServer's settings."""

_RUNTIMES = {
    # skops is the first, as it runs no code when it is loaded.
    "mlserver_sklearn": ("sklearn", ("model.skops", "model.joblib", "model.pickle", "model.pkl")),
    "mlserver_xgboost": ("xgboost", ("model.ubj", "model.json", "model.bst")),
    "mlserver_lightgbm": ("lightgbm", ("model.txt", "model.bst")),
    "mlserver_catboost": ("catboost", ("model.cbm", "model.bst")),
    "mlserver_mlflow": ("mlflow", ("",)),
}
"""MLServer's packages -> our backend, and the files to look for when no uri is given."""

TABULAR = ("sklearn", "xgboost", "lightgbm", "catboost")
"""Backends whose models take rows, which those servers pass on as they come."""

_FLAVORS = {
    "onnx": ("onnxruntime", ("data",)),
    "xgboost": ("xgboost", ("data", "model_data")),
    "lightgbm": ("lightgbm", ("data", "model_data")),
    "catboost": ("catboost", ("data", "model_data")),
    "tensorflow": ("tensorflow", ("saved_model_dir",)),
    "sklearn": ("sklearn", ("pickled_model", "model_path", "data")),
}
"""MLflow's flavors -> our backend, and the keys that may name the file; the first found counts."""

# A flavor says which library made the model, not how it was written: MLflow pickles estimators
# such as LGBMClassifier whole, and reading those is the part of scikit-learn's backend.
_ESTIMATORS = (".skops", ".joblib", ".pkl", ".pickle")
"""Endings of files that hold a Python object, whichever flavor it is of."""

_NUMBER = re.compile(r"[1-9][0-9]{0,17}")

# By a regular expression, so that no YAML library is needed for two fields (see _flavors).
_SIGNATURE = re.compile(r"^signature:\n {2}inputs: '((?:[^']|'')*)'", re.MULTILINE)
"""The inputs of an MLmodel's signature: JSON in a text that YAML folds at its spaces."""

_LINE = re.compile(r"( *)([\w.-]+):(?: +(.*))?")


def is_foreign(folder: Path) -> bool:
    """Tell whether `folder` is a model of another server."""
    if any((folder / name).is_file() for name in (SETTINGS_FILE, MLFLOW_FILE)):
        return True
    package = os.environ.get(IMPLEMENTATION_VARIABLE, "").partition(".")[0]
    # A version folder is never a model of another server: its parent may be one of Triton's, whose
    # files have the usual names.
    if package not in _RUNTIMES or is_version(folder.name):
        return False
    if any(name and (folder / name).is_file() for name in _RUNTIMES[package][1]):
        return True
    uri = os.environ.get(URI_VARIABLE, "")
    # Links are not resolved: KServe's storage initializer links local files into /mnt/models.
    named = folder.absolute() / uri
    return named.is_relative_to(folder.absolute()) and named.is_file()


def check_implementation(name: str) -> None:
    """Raise Unsupported if a variable says that code of its own runs the model `name`.

    Its file alone is then not the model: what that code does with the answers is not known.
    """
    implementation = os.environ.get(IMPLEMENTATION_VARIABLE, "")
    if implementation and implementation.partition(".")[0] not in _RUNTIMES:
        raise _unknown(name, IMPLEMENTATION_VARIABLE, implementation)


def _unknown(name: str, place: str, implementation: str) -> Unsupported:
    return Unsupported(
        f"model '{name}': {place} asks for '{implementation}', known are the runtimes "
        f"{', '.join(sorted(_RUNTIMES))}; code of its own becomes a model.py"
    )


def foreign_name(folder: Path) -> str:
    """Return the model's name in MLServer's settings in `folder`, "" if they give none.

    Unreadable settings give none: `read_foreign` reports what is wrong.
    """
    try:
        settings = orjson.loads(_content(folder / SETTINGS_FILE))
    except (OSError, InvalidConfig, orjson.JSONDecodeError):
        return ""
    name = settings.get("name") if isinstance(settings, dict) else None
    # Settings are somebody's file: a name with a slash would be part of URLs.
    return name if isinstance(name, str) and is_model_name(name) else ""


def nested_foreign(folder: Path, depth: int = MAX_DEPTH) -> list[Path]:
    """Return the folders below `folder` that hold MLServer's settings, as MLServer finds them.

    Models are not searched, nor are links followed. Raises OSError.
    """
    found: list[Path] = []
    # Directory entries carry their type, so scandir knows folders without asking for each file.
    with os.scandir(folder) as entries:  # no stat of files: there may be very many
        names = sorted(one.name for one in entries if one.is_dir(follow_symlinks=False))
    # Version folders make it a model of Triton's, with nothing nested in it.
    if any(map(is_version, names)):
        return found
    for child in [folder / name for name in names if not is_noise(name)]:
        if (child / SETTINGS_FILE).is_file():
            found.append(child)
        # A model of Triton's, whose data may be arranged in any folders.
        elif depth > 1 and not (child / CONFIG_FILE).exists():
            found += nested_foreign(child, depth - 1)
    return found


def read_foreign(folder: Path, config: ModelConfig) -> tuple[ModelConfig, Path, int]:
    """Return `config` completed from the folder's files, the model file and its version.

    What `config` already says stays. Raises InvalidConfig, and Unsupported for other runtimes.
    """
    version = 1
    if (folder / SETTINGS_FILE).is_file():
        settings, filename, version = _read_settings(folder)
    elif (folder / MLFLOW_FILE).is_file():
        settings, filename = _read_mlflow(folder)
    else:
        settings, filename, version = _read_variables(folder)
    if not is_inside(filename):
        msg = f"model '{folder.name}': its file '{filename}' lies outside of its folder"
        raise InvalidConfig(msg)
    file = folder / filename
    if not file.exists():
        raise InvalidConfig(f"model '{folder.name}': there is no file '{filename}'")
    # A 0 that is written in config.pbtxt is a choice, and not the absence of one.
    most = config.max_batch_size or (0 if config.is_unbatched else settings.max_batch_size)
    merged = replace(
        config,
        name=config.name or settings.name,
        backend=config.backend or settings.backend,
        max_batch_size=most,
        dynamic_batching=config.dynamic_batching or settings.dynamic_batching,
        input=config.input or settings.input,
        output=config.output or settings.output,
        parameters=_defaults(settings.backend) | settings.parameters | config.parameters,
        # The name alone, as that of a file in a version folder would be: it is shown, whereas
        # `file` says where it is.
        default_model_filename=config.default_model_filename or Path(filename).name,
    )
    return merged, file, version


def _defaults(backend: str) -> dict[str, str]:
    """Return the parameters by which models of `backend` take and return what they do there."""
    # MLServer and MLflow pass on whatever their one input is called.
    taken = {ANY_INPUT_NAME: "true"}
    if backend in TABULAR:
        taken[TABLE] = "true"
        taken[DEFAULT_OUTPUTS] = "predict"  # MLServer's clients decode one output
    return taken


def _content(file: Path) -> bytes:
    return read_limited(file, MAX_BYTES, f"{file.parent.name}/{file.name}")


def _read_settings(folder: Path) -> tuple[ModelConfig, str, int]:
    place = f"{folder.name}/{SETTINGS_FILE}"
    return _understood(folder, _json(_content(folder / SETTINGS_FILE), place), place)


def _json(content: bytes | str, place: str) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InvalidConfig(f"{place} is not JSON: {error}") from error


def _read_variables(folder: Path) -> tuple[ModelConfig, str, int]:
    extra = os.environ.get(EXTRA_VARIABLE) or "{}"
    parameters = {
        "uri": os.environ.get(URI_VARIABLE, ""),
        "version": os.environ.get(VERSION_VARIABLE, ""),
        "extra": _json(extra, f"the variable {EXTRA_VARIABLE}"),
    }
    settings = {"name": os.environ.get(NAME_VARIABLE, ""), "parameters": parameters}
    return _understood(folder, settings, f"what MLSERVER_MODEL_... say of '{folder.name}'")


def _understood(folder: Path, settings: dict[str, Any], place: str) -> tuple[ModelConfig, str, int]:
    try:
        return _settings(folder, settings)
    # Whatever parts of the wrong kind raise when they are read: checking each field before would
    # say it all twice. Overflow is of int(float("inf")), as numbers may be written as texts.
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
        msg = f"{place} is not as MLServer has it: {type(error).__name__} {error}"
        raise InvalidConfig(msg) from error


def _settings(folder: Path, settings: dict[str, Any]) -> tuple[ModelConfig, str, int]:
    implementation = settings.get("implementation") or os.environ.get(IMPLEMENTATION_VARIABLE)
    if not isinstance(implementation, str):
        raise ValueError("it says no implementation")
    package = implementation.partition(".")[0]
    if package not in _RUNTIMES:
        raise _unknown(folder.name, SETTINGS_FILE, implementation)
    backend, usual = _RUNTIMES[package]
    parameters = settings.get("parameters") or {}
    filename = _local(folder, str(parameters.get("uri") or ""))
    extra: dict[str, str] = {}
    # Looked at before anything is read: a uri of "../.." would otherwise have its MLmodel read, and
    # told about in the error.
    if backend == "mlflow" and is_inside(filename or "."):
        inner, path = _read_mlflow(folder / filename)
        backend, filename = inner.backend, str(Path(filename) / path)
        extra = inner.parameters
    elif not filename or (folder / filename).is_dir():
        names = [str(Path(filename) / name) for name in usual]
        filename = next((name for name in names if (folder / name).is_file()), names[0])
    most = int(settings.get("max_batch_size") or 0)
    # MLServer's is in seconds.
    delay_us = int(float(settings.get("max_batch_time") or 0) * 1e6)
    # A size of 1 would only add a queue.
    batching = DynamicBatching(max_queue_delay_microseconds=delay_us) if most > 1 else None
    inputs = tuple(ModelInput(*_tensor(one)) for one in settings.get("inputs") or ())
    outputs = tuple(ModelOutput(*_tensor(one)) for one in settings.get("outputs") or ())
    extra |= {k: _text(v) for k, v in (parameters.get("extra") or {}).items()}
    if backend in TABULAR:
        outputs = ()  # the model determines them; MLServer does not look at those in its settings
    version, version_name = _version(str(parameters.get("version") or ""))
    config = ModelConfig(
        str(settings.get("name") or ""),
        backend=backend,
        max_batch_size=most,
        dynamic_batching=batching,
        input=inputs,
        output=outputs,
        parameters=version_name | extra,
    )
    if most == 0 and (config.input or config.output):
        config = replace(config, max_batch_size=1)  # shapes in its settings include the batch dim
    return config, filename, version


def _version(text: str) -> tuple[int, dict[str, str]]:
    """Return the version that clients of MLServer ask for as `text`.

    One that is no number is 1, with a parameter for the clients' name for it.
    """
    if _NUMBER.fullmatch(text):
        return int(text), {}
    return 1, {VERSION_NAME: text} if text else {}


def _local(folder: Path, uri: str) -> str:
    if re.match(r"\w+://", uri):
        raise ValueError(f"its uri '{uri}' is not a file")
    absolute = folder.absolute()
    # MLServer resolves a relative uri against the folder, and takes an absolute one as it is:
    # /mnt/models/... in settings written for KServe.
    if Path(uri).is_relative_to(absolute):
        return str(Path(uri).relative_to(absolute))
    return uri.removeprefix("./")


def _tensor(described: dict[str, Any]) -> tuple[str, Any, tuple[int, ...]]:
    """Return the name, the datatype, and the dims without the batch dim."""
    name, datatype = str(described["name"]), described["datatype"]
    if datatype not in DATATYPES:
        msg = f"tensor '{name}' has the datatype '{datatype}', known are {', '.join(DATATYPES)}"
        raise ValueError(msg)
    shape = tuple(int(dim) for dim in described["shape"])
    # Shapes in MLServer's settings include the batch dim. A vector of one
    # number for each row may be written as [-1].
    return name, DATATYPES[datatype], shape[1:] or (1,)


def _text(value: Any) -> str:
    # Parameters of config.pbtxt are texts, where booleans are written true and false.
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read_mlflow(folder: Path) -> tuple[ModelConfig, str]:
    try:
        text = _content(folder / MLFLOW_FILE).decode()
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{folder.name}/{MLFLOW_FILE} is not UTF-8") from error
    except FileNotFoundError as error:
        raise InvalidConfig(f"model '{folder.name}' has no file {MLFLOW_FILE}") from error
    flavors = _flavors(text)
    # In our order, not the file's, so that what is chosen does not
    # depend on how the file was written.
    for flavor, (backend, keys) in _FLAVORS.items():
        named = flavors.get(flavor, {})
        filename = next((named[key] for key in keys if named.get(key)), "")
        if filename:
            if backend in TABULAR and filename.endswith(_ESTIMATORS):
                backend = "sklearn"
            parameters = _of_mlflow(flavors, named)
            if backend in TABULAR and (columns := _columns(text)):
                parameters[COLUMNS] = columns
            return ModelConfig("", backend=backend, parameters=parameters), filename
    raise Unsupported(
        f"model '{folder.name}': {MLFLOW_FILE} has the flavors {', '.join(flavors) or 'none'}, "
        f"known are {', '.join(_FLAVORS)}"
    )


def _of_mlflow(flavors: dict[str, dict[str, str]], named: dict[str, str]) -> dict[str, str]:
    """Return the parameters that an MLmodel's flavors mean: a class, and what pyfunc calls."""
    parameters = {}
    if kind := named.get("model_class") or named.get("model_type"):
        parameters[MODEL_CLASS] = kind
    if method := flavors.get("python_function", {}).get("predict_fn"):
        parameters[DEFAULT_OUTPUTS] = method
    return parameters


def _columns(text: str) -> str:
    """Return the names of the columns in an MLmodel's signature as JSON, "" if there are none."""
    found = _SIGNATURE.search(text)
    try:
        inputs = orjson.loads(re.sub(r"\n *", " ", found[1]).replace("''", "'")) if found else []
        names = [one["name"] for one in inputs if one["type"] != "tensor"]
    except (orjson.JSONDecodeError, TypeError, KeyError):
        return ""
    # One column needs no name to be told apart.
    is_table = len(names) == len(inputs) > 1 and all(isinstance(name, str) for name in names)
    return orjson.dumps(names).decode() if is_table else ""


def _flavors(text: str) -> dict[str, dict[str, str]]:
    """Return the flavors of an MLmodel file with their scalar values.

    Only this much YAML is understood: two levels of `key: value` below `flavors:`.
    """
    flavors: dict[str, dict[str, str]] = {}
    is_inside_flavors = False
    first = second = -1
    current: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            continue
        indent, key, value = len(match[1]), match[2], (match[3] or "").strip()
        if indent == 0:
            is_inside_flavors, first, second = key == "flavors", -1, -1
        elif is_inside_flavors and first in (-1, indent):
            first, second = indent, -1
            current = flavors.setdefault(key, {})
        elif is_inside_flavors and indent > first and second in (-1, indent):
            second = indent
            # YAML's two ways to write nothing.
            current[key] = "" if value in ("null", "~") else value.strip("'\"")
    return flavors
