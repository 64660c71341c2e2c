"""Models in local folders: repositories, single model folders, bare model files."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from inferd.config.checks import CONFIG_FILE, check_config
from inferd.config.defaults import normalised
from inferd.config.model import ModelConfig
from inferd.config.pbtxt import parse_pbtxt
from inferd.config.platform import PLATFORMS, platform_of_file
from inferd.errors import InferdError, InvalidConfig
from inferd.repository.layout import (
    FoundModel,
    choose_versions,
    derived,
    version_folders,
)

MAX_CONFIG_BYTES = 4 * 1024 * 1024
"""A larger config.pbtxt is refused unread: no configuration comes near it."""


def find_models(
    repositories: Sequence[Path],
    config_name: str = "",
    *,
    gpu_count: int = 0,
    strict: bool = False,
) -> list[FoundModel]:
    """Return every model below `repositories`, by name; one that is broken carries its error.

    A path may be a repository, the folder of one model, or a bare model file. A name that is
    found twice is not served. `config_name` chooses configs/<name>.pbtxt where there is one.
    With `strict` a model must have a config.pbtxt. Raises InvalidConfig for a path that is no
    folder and no model.
    """
    by_name: dict[str, list[FoundModel]] = defaultdict(list)
    for path in repositories:
        for model in _models_at(path, config_name, gpu_count=gpu_count, strict=strict):
            by_name[model.name].append(model)
    return [_only(by_name[name]) for name in sorted(by_name)]


def find_model(
    folder: Path,
    config_name: str = "",
    *,
    override: ModelConfig | None = None,
    gpu_count: int = 0,
    strict: bool = False,
    is_alone: bool = False,
) -> FoundModel:
    """Return the model whose folder is `folder`; one that is broken carries its error.

    `override` stands in for what config.pbtxt says. A model whose folder `is_alone`, in no
    repository, may have another name than its folder.
    """
    name = folder.name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    ignored: tuple[str, ...] = ()
    try:
        if name != folder.name:
            msg = f"model '{name}': the name of its folder is not UTF-8"
            raise InvalidConfig(msg)
        available, ignored = version_folders(folder)
        file, config = CONFIG_FILE, override
        if config is None:
            file, config = _read_config(folder, config_name, strict=strict)
        name = config.name if is_alone and config.name else name
        config = _prepared(config, name, _first(available.values()), gpu_count, file)
        versions = choose_versions(config.version_policy, available)
        if not versions:
            raise InvalidConfig(_no_version(name, available))
    except OSError as error:
        # The system's own text: the path in str(error) is nothing a client should see.
        failure = InvalidConfig(f"model '{name}' cannot be read: {error.strerror}")
        return FoundModel(name, folder, error=failure, ignored=ignored)
    except InferdError as error:
        return FoundModel(name, folder, error=error, ignored=ignored)
    return FoundModel(name, folder, config, versions, ignored=ignored)


def single_model(path: Path, *, gpu_count: int = 0) -> FoundModel:
    """Return the model that the bare file (or SavedModel folder) `path` is, as its version 1.

    It is called as the file is; 'model' is no name, so then as the folder around it that is not
    a version folder. Raises InvalidConfig when the file's ending tells no platform.
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
    config = derived(ModelConfig(name, default_model_filename=path.name), None, name)
    config = normalised(config, name, gpu_count)
    return FoundModel(name, path.parent, config, (1,), file=path)


# --- paths ---


def _models_at(
    path: Path, config_name: str, *, gpu_count: int, strict: bool
) -> Iterable[FoundModel]:
    path = path.absolute()
    try:
        if not path.exists():
            msg = f"'{path}' does not exist: expected a model repository or a model"
            raise InvalidConfig(msg)
        is_alone = path.is_dir() and _is_model(path)
        if path.is_file() or (platform_of_file(path.name) and not is_alone):
            return [single_model(path, gpu_count=gpu_count)]
        folders = [path] if is_alone else _model_folders(path)
    except OSError as error:
        msg = f"'{path}' cannot be read: {error.strerror}"
        raise InvalidConfig(msg) from error
    return [
        find_model(folder, config_name, gpu_count=gpu_count, strict=strict, is_alone=is_alone)
        for folder in folders
    ]


def _model_folders(repository: Path) -> list[Path]:
    return [child for child in sorted(repository.iterdir()) if _may_be_model(child)]


def _may_be_model(child: Path) -> bool:
    return child.is_dir() and not child.name.startswith(".") and child.name != "__pycache__"


def _is_model(folder: Path) -> bool:
    """Tell whether `folder` is a model's own, not a repository; models may be called by numbers."""
    if (folder / CONFIG_FILE).is_file():
        return True
    versions, _ = version_folders(folder)
    return bool(versions) and not any(_is_model(version) for version in versions.values())


def _only(models: list[FoundModel]) -> FoundModel:
    [first, *more] = models
    if not more:
        return first
    error = InvalidConfig(f"model '{first.name}' appears in {len(models)} places, expected one")
    return FoundModel(first.name, first.folder, error=error)


# --- configuration ---


def _read_config(folder: Path, config_name: str, *, strict: bool) -> tuple[str, ModelConfig]:
    """Return the name of the configuration file of a model and what it says."""
    named = f"configs/{config_name}.pbtxt"
    file = named if config_name and (folder / named).is_file() else CONFIG_FILE
    place = f"{folder.name}/{file}"
    if (folder / file).exists() and not (folder / file).is_file():
        msg = f"{place} is not a file"  # opening a pipe would wait for who writes it
        raise InvalidConfig(msg)
    try:
        with (folder / file).open("rb") as source:
            content = source.read(MAX_CONFIG_BYTES + 1)
    except FileNotFoundError:
        if strict:
            msg = f"model '{folder.name}' has no {CONFIG_FILE}, and deriving one is turned off"
            raise InvalidConfig(msg) from None
        return file, ModelConfig("")
    if len(content) > MAX_CONFIG_BYTES:
        msg = f"{place} is larger than {MAX_CONFIG_BYTES} bytes"
        raise InvalidConfig(msg)
    try:
        return file, parse_pbtxt(content.decode(), place)
    except UnicodeDecodeError as error:
        msg = f"{place} is not UTF-8: byte {error.start} is 0x{content[error.start]:02x}"
        raise InvalidConfig(msg) from error


def _prepared(
    config: ModelConfig, name: str, version_folder: Path | None, gpu_count: int, file: str
) -> ModelConfig:
    config = derived(config, version_folder, name)
    config = normalised(config, name, gpu_count, file)
    check_config(config, file)
    return config


def _first(folders: Iterable[Path]) -> Path | None:
    return min(folders, key=lambda folder: folder.name, default=None)


def _no_version(name: str, available: Iterable[int]) -> str:
    numbers = ", ".join(str(number) for number in available)
    if numbers:
        return f"model '{name}': its version_policy allows none of the versions {numbers}"
    return f"model '{name}' has no version folder, such as {name}/1"
