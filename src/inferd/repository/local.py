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
from inferd.config.pbtxt import decode_pbtxt, parse_pbtxt
from inferd.config.platform import PLATFORMS, platform_of_file
from inferd.errors import InferdError, InvalidConfig, NoVersion
from inferd.repository.agent import run_agents
from inferd.repository.contents import read_limited
from inferd.repository.foreign import is_foreign, read_foreign
from inferd.repository.layout import FoundModel, choose_versions, derived, version_folders
from inferd.repository.slips import found_instead

MAX_CONFIG_BYTES = 4 * 1024 * 1024
"""A larger config.pbtxt is refused unread: no real one comes near this size."""

MAX_APP_BYTES = 16 * 1024 * 1024
"""How much of a Python file is searched for TRITON_CLASS: no real one is larger."""

TRITON_CLASS = b"TritonPythonModel"
"""A Python file with this word is a model itself, not an app file that defines models."""

OVERRIDE = "config"
"""What error messages call a configuration that was sent with a load request."""


class Reading(NamedTuple):
    """How models are read, on a machine with `gpu_count` GPUs.

    `config_name` chooses configs/<name>.pbtxt if it exists. With `strict` a model must have a
    config.pbtxt.
    """

    config_name: str = ""
    gpu_count: int = 0
    strict: bool = False


AS_USUAL = Reading()


def find_model(
    folder: Path,
    reading: Reading = AS_USUAL,
    *,
    name: str | None = None,
    is_renamed: bool = False,
    override: ModelConfig | None = None,
) -> FoundModel:
    """Return the model in `folder`; a broken one carries its error.

    In a repository a model has its folder's name. Elsewhere it is called `name`; "" takes the name
    from its configuration. With `is_renamed` its configuration may have another name. `override`
    replaces config.pbtxt. A folder of another server, which has no versions, is read as that server
    would.
    """
    wanted, name = name, name or folder_name(folder)
    ignored: tuple[str, ...] = ()
    try:
        if is_renamed:
            override = replace(_read_config(folder, reading)[1], name="")
        if wanted is None and name != folder.name:
            msg = f"model '{name}': the name of its folder is not UTF-8"
            raise InvalidConfig(msg)
        available, ignored = version_folders(folder)
        file, config = OVERRIDE, override
        if config is None:
            file, config = _read_config(folder, reading)
        versions: tuple[int, ...] = ()
        foreign_file: Path | None = None
        if not available and is_foreign(folder):
            config, foreign_file, version = read_foreign(folder, config)
            versions = (version,)
        if wanted == "":
            name = config.name or name
        first = _first(available.values())
        slips = partial(found_instead, folder, first, config.default_model_filename, ignored)
        config = _prepared(config, name, first, reading.gpu_count, file, slips)
        run_agents(folder, config)
        versions = versions or choose_versions(config.version_policy, available)
        if not versions:
            raise NoVersion(_no_version(name, available, slips()))
    except OSError as error:
        # strerror, not str(error): clients should not see the path.
        failure = InvalidConfig(f"model '{name}' cannot be read: {error.strerror}")
        return FoundModel(name, folder, error=failure, ignored=ignored)
    except InferdError as error:
        return FoundModel(name, folder, error=error, ignored=ignored)
    return FoundModel(name, folder, config, versions, ignored=ignored, file=foreign_file)


def single_model(
    path: Path, *, override: ModelConfig | None = None, gpu_count: int = 0
) -> FoundModel:
    """Return the bare model file (or SavedModel folder) `path` as version 1 of a model.

    The model has the name of the file, or, if that is just 'model', of the nearest folder above
    that is not a version folder. `override` is its configuration. Raises InvalidConfig when that is
    wrong, the file does not exist or its ending belongs to no platform.
    """
    path = path.absolute()
    platform = platform_of_file(path.name)
    if platform is None:
        endings = ", ".join(p.filename.removeprefix("model") for p in PLATFORMS if p.filename)
        msg = f"'{path.name}' is no known model file, expected one ending in {endings}"
        raise InvalidConfig(msg)
    if not path.exists():
        msg = f"there is no model file '{path.name}'"
        raise InvalidConfig(msg)
    stem = path.name.removesuffix(platform.filename.removeprefix("model"))
    if stem in ("", "model"):
        stem = path.parent.parent.name if path.parent.name.isdigit() else path.parent.name
    name = re.sub(r"[^\w.-]", "_", stem).strip(".") or "model"
    config = replace(override or ModelConfig(""), default_model_filename=path.name)
    config = _prepared(config, name, None, gpu_count, OVERRIDE)
    run_agents(path.parent, config)
    return FoundModel(name, path.parent, config, (1,), file=path)


def is_model(folder: Path) -> bool:
    """Tell whether `folder` is a model, not a repository; numbers may be names of models, too."""
    if (folder / CONFIG_FILE).is_file():
        return True
    if is_foreign(folder):
        return True
    versions, _ = version_folders(folder)
    return bool(versions) and not any(is_model(version) for version in versions.values())


def is_app(path: Path) -> bool:
    """Tell whether `path` is a Python file whose functions are models."""
    if path.suffix != ".py" or not path.is_file():
        return False
    with path.open("rb") as source:
        return TRITON_CLASS not in source.read(MAX_APP_BYTES)


def folder_name(folder: Path) -> str:
    """Return the name of `folder`, with bytes that are not UTF-8 escaped."""
    return folder.name.encode(errors="surrogateescape").decode(errors="backslashreplace")


# --- configuration ---


def _read_config(folder: Path, reading: Reading) -> tuple[str, ModelConfig]:
    """Return the name of a model's configuration file, and the configuration."""
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
    return min(folders, key=lambda folder: folder.name, default=None)


def _no_version(name: str, available: Iterable[int], slips: str) -> str:
    numbers = ", ".join(str(number) for number in available)
    if numbers:
        return f"model '{name}': its version_policy allows none of the versions {numbers}"
    text = f"model '{name}' has no version folder, such as {name}/1"
    return f"{text}; {slips}" if slips else text
