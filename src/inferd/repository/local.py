"""Reads one model in a local folder, or a bare model file, without loading it."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from inferd.config.checks import CONFIG_FILE, check_config
from inferd.config.defaults import normalised
from inferd.config.model import ModelConfig
from inferd.config.names import is_inside, is_model_name
from inferd.config.parameter_names import ANY_INPUT_NAME
from inferd.config.pbtxt import decode_pbtxt, parse_pbtxt
from inferd.config.platform import ENSEMBLE, PLATFORMS, Platform, platform_named, platform_of_file
from inferd.errors import InferdError, InvalidConfig, NoVersion
from inferd.formats.onnx_graph import has_external_data
from inferd.repository.agent import run_agents
from inferd.repository.bare import bare_file, is_python_model, platform_of
from inferd.repository.contents import MAX_CONFIG_BYTES, read_limited
from inferd.repository.foreign import (
    IMPLEMENTATION_VARIABLE,
    MLFLOW_FILE,
    SETTINGS_FILE,
    TABULAR,
    check_implementation,
    is_foreign,
    nested_foreign,
    read_foreign,
)
from inferd.repository.layout import (
    FoundModel,
    choose_versions,
    derived,
    has_usual_file,
    version_folders,
)
from inferd.repository.signing.keys import TrustedKeys
from inferd.repository.slips import found_instead, shown

# Weights beside them, and all that code imports. Of ONNX the file itself tells.
_LOADING_MORE = ("openvino", "mxnet", "caffe2", "python")

OVERRIDE = "config"
"""What error messages call a configuration that was sent with a load request."""


class Reading(NamedTuple):
    """How models are read, on a machine with `gpu_count` GPUs.

    `config_name` chooses configs/<name>.pbtxt if it exists. With `strict` a model must have a
    config.pbtxt. `service_name` takes the place of the name of a folder that was given by itself.
    With `keys` models have to be signed by one of them.
    """

    config_name: str = ""
    gpu_count: int = 0
    strict: bool = False
    service_name: str = ""
    keys: TrustedKeys | None = None


AS_USUAL = Reading()


def find_model(
    folder: Path,
    reading: Reading = AS_USUAL,
    *,
    name: str | None = None,
    is_renamed: bool = False,
    is_alone: bool = False,
    override: ModelConfig | None = None,
) -> FoundModel:
    """Return the model in `folder`; a broken one carries its error.

    In a repository a model has its folder's name. Elsewhere it is called `name`; "" takes the name
    from its configuration. With `is_renamed` its configuration may have another name. `override`
    replaces config.pbtxt. A folder of another server, which has no versions, is read as that server
    would. One that `is_alone`, in no repository, may also hold its model file without a version.
    """
    wanted, name = name, name or folder_name(folder)
    ignored: tuple[str, ...] = ()
    try:
        # Names travel in URLs, JSON and protobuf, all of which are UTF-8.
        if wanted is None and name != folder.name:
            raise InvalidConfig(f"model '{name}': the name of its folder is not UTF-8")
        available, ignored = version_folders(folder)
        file, config = OVERRIDE, override
        if config is None:
            file, config = _read_config(folder, reading)
        first = _first(available.values())
        config, model_file, versions = _with_files(folder, config, first, is_alone=is_alone)
        if is_renamed:
            # The name on the command line wins, as KServe's requests use that of the
            # InferenceService (decision 0032). One that a client sends still has to be right.
            config = replace(config, name=override.name if override else "")
        if wanted == "":
            name = config.name or reading.service_name
            name = name or _own_name(folder, is_bare=bool(model_file))
        # Called only if something fails: looking for slips reads the folder again.
        slips = partial(found_instead, folder, first, config.default_model_filename, ignored)
        config = _prepared(config, name, first, reading.gpu_count, file, slips)
        # Last of what can be refused by reading alone, as digests read all of the files.
        run_agents(folder, config, keys=reading.keys)
        versions = versions or choose_versions(config.version_policy, available)
        if not versions:
            raise NoVersion(_no_version(name, available, slips()))
    except OSError as error:
        # strerror, not str(error): clients should not see the path.
        failure = InvalidConfig(f"model '{name}' cannot be read: {error.strerror}")
        return FoundModel(name, folder, error=failure, ignored=ignored)
    except InferdError as error:
        return FoundModel(name, folder, error=error, ignored=ignored)
    if model_file is not None:
        ignored = ()  # without versions, other folders are the model's own
    return FoundModel(name, folder, config, versions, ignored=ignored, file=model_file)


def single_model(
    path: Path,
    reading: Reading = AS_USUAL,
    *,
    name: str = "",
    override: ModelConfig | None = None,
) -> FoundModel:
    """Return the bare model file (or SavedModel folder) `path` as version 1 of a model.

    Without a `name` the model has that of the file, or, if that is just 'model', of the nearest
    folder above that is not a version folder. `override` is its configuration. Raises InvalidConfig
    when that is wrong, the file does not exist or belongs to no platform, and OSError.
    """
    path = path.absolute()
    if not path.exists():
        raise InvalidConfig(f"there is no model file '{path.name}'")
    platform = platform_of(path)
    if platform is None:
        endings = ", ".join(p.filename.removeprefix("model") for p in PLATFORMS if p.filename)
        msg = f"'{path.name}' is no known model file, expected one ending in {endings}"
        raise InvalidConfig(msg)
    # The platform's whole ending, as in NAME.model.json; a suffix alone would leave a part of it.
    stem = path.name.removesuffix(platform.filename.removeprefix("model"))
    stem = stem if stem != path.name else path.stem
    if stem in ("", "model"):
        stem = path.parent.parent.name if path.parent.name.isdigit() else path.parent.name
    name = name or _as_name(stem)
    config = _run_by(platform, override or ModelConfig(""), path.name)
    config = _prepared(config, name, None, reading.gpu_count, OVERRIDE)
    run_agents(path.parent, config, file=path, keys=reading.keys)
    if reading.keys is not None:
        _check_alone(path, platform, name)
    return FoundModel(name, path.parent, config, (1,), file=path, owns_folder=False)


def _check_alone(path: Path, platform: Platform, name: str) -> None:
    """Raise InvalidConfig if other files, which nobody has signed, may be loaded with `path`."""
    if platform.backend == "onnxruntime" and path.is_file():
        is_whole = not has_external_data(path.read_bytes())
    else:
        is_whole = platform.backend not in _LOADING_MORE
    own = (path.name, f"{path.name}.sig")
    if not is_whole and (others := [one for one in path.parent.iterdir() if one.name not in own]):
        raise InvalidConfig(
            f"model '{name}', --require-signatures: '{shown(min(others).name)}' lies beside "
            f"'{shown(path.name)}', which may load it, and only a folder is signed with all its "
            f"files: sign them as one"
        )


def is_model(folder: Path) -> bool:
    """Tell whether `folder` is a model, not a repository; numbers may be names of models, too.

    A folder of a bare file is none: it is one only where `bare_sign` is asked. Raises OSError.
    """
    return bool(sign_of(folder))


def sign_of(folder: Path) -> str:
    """Return what shows that `folder` is a model and no repository, "" if nothing does."""
    for name in (CONFIG_FILE, MLFLOW_FILE, SETTINGS_FILE):
        if (folder / name).is_file():
            return f"it has {name}"
    if is_foreign(folder):
        return f"{IMPLEMENTATION_VARIABLE} says what runs it"
    versions, _ = version_folders(folder)
    # A repository whose models are called by numbers looks like a model with versions, until one
    # looks into a number (decision 0032).
    if not versions or any(is_model(version) for version in versions.values()):
        return ""
    numbers = ", ".join(str(number) for number in versions)
    return f"it has version folder{'s' if len(versions) > 1 else ''} {numbers}"


def bare_sign(folder: Path) -> str:
    """Return which file makes a model of a `folder` that was given by itself, "" if none does.

    Where there are models in it, too, it is a repository. Raises InvalidConfig when several files
    may be meant, and OSError.
    """
    # Only folders: what else is in it are the model's own files.
    if any(
        is_model(child) or nested_foreign(child) for child in folder.iterdir() if child.is_dir()
    ):
        return ""
    found = bare_file(folder)
    if found is None:
        return ""
    path, _ = found
    return "it is a SavedModel" if path == folder else f"its file is {shown(path.name)}"


def is_app(path: Path) -> bool:
    """Tell whether `path` is a Python file whose functions are models."""
    return path.suffix == ".py" and path.is_file() and not is_python_model(path)


def _own_name(folder: Path, *, is_bare: bool) -> str:
    """Return the name of a model in a `folder` that was given by itself, which is the folder's.

    A bare file may lie in a version folder; its model is named after the folder above. What cannot
    be in a name becomes "_".
    """
    if is_bare and folder.name.isdigit():
        folder = folder.parent
    name = folder_name(folder)
    return name if is_model_name(name) else _as_name(name)


def _as_name(text: str) -> str:
    return re.sub(r"[^\w.-]", "_", text).strip(".") or "model"


def folder_name(folder: Path) -> str:
    """Return the name of `folder`, with bytes that are not UTF-8 escaped."""
    return folder.name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _with_files(
    folder: Path, config: ModelConfig, version_folder: Path | None, *, is_alone: bool
) -> tuple[ModelConfig, Path | None, tuple[int, ...]]:
    """Return `config` with what the files in a model's folder say beyond the rules of repositories.

    The file and the version are set for a model without version folders. What `config` already says
    stays.
    """
    # Version folders make it Triton's, even with an MLmodel beside
    # them: its requests name those versions.
    if version_folder is None and is_foreign(folder):
        config, file, version = read_foreign(folder, config)
        return config, file, (version,)
    if is_alone and not (config.backend or config.platform):
        # KServe may have started the server with MLServer's variables:
        # then code of its own was meant.
        check_implementation(folder.name)
    # In a repository nothing changes: a model there has the usual file
    # name, as in Triton (decision 0032).
    if not is_alone or (version_folder is not None and has_usual_file(version_folder)):
        return config, None, ()
    where = version_folder or folder
    found: tuple[Path, Platform | None] | None
    if config.default_model_filename:
        file = where / config.default_model_filename
        found = (file, None) if is_inside(config.default_model_filename) and file.exists() else None
    else:
        known = platform_named(config.platform)
        found = bare_file(where, config.backend or (known.backend if known else ""))
    if found is None or config.platform == ENSEMBLE:
        return config, None, ()
    file, platform = found
    if platform is not None:
        # A SavedModel that is itself the folder given.
        config = _run_by(platform, config, "." if file == where else file.name)
    if config.backend in TABULAR and not config.input:
        # Nobody has named its input, and clients of the servers that have such folders call it
        # what they like.
        config = replace(config, parameters={ANY_INPUT_NAME: "true", **config.parameters})
    return (config, file, (1,)) if version_folder is None else (config, None, ())


def _run_by(platform: Platform, config: ModelConfig, filename: str) -> ModelConfig:
    """Return `config` with the file, and the backend of its `platform` unless it names one.

    Raises InvalidConfig for a file that it cannot name.
    """
    # The configuration travels in JSON and protobuf, which are UTF-8.
    shown_name = filename.encode(errors="surrogateescape").decode(errors="backslashreplace")
    if shown_name != filename:
        raise InvalidConfig(f"the name of the file '{shown_name}' is not UTF-8")
    config = replace(config, default_model_filename=filename)
    if config.backend or config.platform:
        return config
    is_obvious = platform_of_file(filename) == platform  # to whoever asks, by the ending
    return replace(
        config, backend=platform.backend, platform="" if is_obvious else platform.reported
    )


def _read_config(folder: Path, reading: Reading) -> tuple[str, ModelConfig]:
    """Return the name of a model's configuration file, and the configuration."""
    # --model-config-name, as in Triton: without such a file, config.pbtxt is read.
    named = f"configs/{reading.config_name}.pbtxt"
    file = named if reading.config_name and (folder / named).is_file() else CONFIG_FILE
    place = f"{folder.name}/{file}"
    if (folder / file).exists() and not (folder / file).is_file():
        msg = f"{place} is not a file"  # opening a pipe would block until somebody writes
        raise InvalidConfig(msg)
    try:
        content = read_limited(folder / file, MAX_CONFIG_BYTES, place)
    except FileNotFoundError:
        if reading.strict:
            msg = f"model '{folder.name}' has no {CONFIG_FILE}, and deriving one is turned off"
            raise InvalidConfig(msg) from None
        return file, ModelConfig("")
    return file, parse_pbtxt(decode_pbtxt(content, place), place)


def _prepared(
    config: ModelConfig,
    name: str,
    version_folder: Path | None,
    gpu_count: int,
    file: str,
    slips: Callable[[], str] = str,
) -> ModelConfig:
    config = derived(config, version_folder, name, file, slips)
    config = normalised(config, name, gpu_count, file)
    check_config(config, file)
    return config


def _first(folders: Iterable[Path]) -> Path | None:
    # By name and not by number: Triton looks at the first in that order to complete a configuration
    # (facts/model_repository.md, section 4.1).
    return min(folders, key=lambda folder: folder.name, default=None)


def _no_version(name: str, available: Iterable[int], slips: str) -> str:
    numbers = ", ".join(str(number) for number in available)
    if numbers:
        return f"model '{name}': its version_policy allows none of the versions {numbers}"
    text = f"model '{name}' has no version folder, such as {name}/1"
    return f"{text}; {slips}" if slips else text
