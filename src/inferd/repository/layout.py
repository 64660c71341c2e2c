"""The layout of a model repository: model folders, version folders, model files, instances.

<repository>/<model>/config.pbtxt       optional where it can be derived
<repository>/<model>/<version>/...      version folders have decimal numbers as names
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

from inferd.config.checks import CONFIG_FILE
from inferd.config.model import InstanceGroup, ModelConfig, VersionPolicy
from inferd.config.names import has_separators, is_inside, is_model_name
from inferd.config.platform import (
    ENSEMBLE,
    PLATFORMS,
    Platform,
    platform_named,
    platform_of_file,
    platforms_of,
)
from inferd.config.rules.complaint import within
from inferd.core.interfaces import Backend, ModelFiles, Placement, always
from inferd.errors import InferdError, InvalidConfig, InvalidRequest
from inferd.repository.slips import found_instead, shown
from inferd.repository.tree import NO_MODELS

RESERVED_FOLDERS = ("warmup", "initial_state", "configs", *NO_MODELS)
"""Folders of a model that hold no version; hidden folders hold none, either."""

# The whole name, without leading zeros: Triton converts prefixes, so that
# "2abc" is version 2 there, and its load then hung (facts/model_repository.md,
# section 5). 19 digits are what fits 64 bits.
_VERSION = re.compile(r"0|[1-9][0-9]{0,18}")
# What people call versions elsewhere (v1, version_2, 1.0), to be able to say what is meant.
_VERSION_IN_A_NAME = re.compile(
    r"(?:(?:v|ver|version)[-_. ]?)?0*(0|[1-9][0-9]{0,18})(?:\.0*)*", re.IGNORECASE
)
_SHOWN = 200


class FoundModel(msgspec.Struct, frozen=True):
    """A model on disk, as far as it is known without loading it.

    `config` is normalised and checked, except for inputs and outputs; if that failed it is None and
    `error` says why. `versions` are the numbers its version policy chooses, ascending. `ignored`
    names folders that are not versions, each with the reason. `file` is set for a model file that
    is in no version folder; `folder` holds it and, unless it is the model's (`owns_folder`), other
    things too. `root` is the repository it was found in, None for a model whose own path was given.
    `backend` runs a model that was given as a Python object and has no files.
    """

    name: str
    folder: Path
    config: ModelConfig | None = None
    versions: tuple[int, ...] = ()
    error: InferdError | None = None
    ignored: tuple[str, ...] = ()
    file: Path | None = None
    root: Path | None = None
    backend: Backend | None = None
    owns_folder: bool = True

    @property
    def lone_file(self) -> Path | None:
        """The model's one file if its folder holds other things too, None if that is its own."""
        return None if self.owns_folder else self.file


def check_model_name(name: str) -> None:
    """Raise InvalidRequest unless `name`, sent by a client, can be the name of a model's folder."""
    if not is_model_name(name):
        msg = (
            f"'{name[:_SHOWN]}' is no name of a model, expected that of a folder in the "
            f"repository, without separators"
        )
        if name == ".." or has_separators(name):
            # Triton's words, which programs written for it compare.
            msg = f"model name must not contain path traversal characters: {msg}"
        raise InvalidRequest(msg)


def is_version(name: str) -> bool:
    """Tell whether `name` is that of a version folder."""
    return _VERSION.fullmatch(name) is not None


def version_folders(folder: Path) -> tuple[dict[int, Path], tuple[str, ...]]:
    """Return a model's version folders by ascending number, and what was ignored, with reasons."""
    found: dict[int, Path] = {}
    ignored = []
    # Sorted, so that the list of what was ignored, and the first version,
    # are the same on every file system.
    for child in sorted(folder.iterdir()):
        if child.name in RESERVED_FOLDERS or child.name[0] == "." or not child.is_dir():
            continue
        if is_version(child.name):
            found[int(child.name)] = child
        else:
            ignored.append(_no_version(child))
    return dict(sorted(found.items())), tuple(ignored)


def _no_version(folder: Path) -> str:
    """Return why `folder` is no version, and what it should perhaps be."""
    text = (
        f"folder '{shown(folder.name)}' is no version: expected a decimal number without leading 0"
    )
    if likely := _VERSION_IN_A_NAME.fullmatch(folder.name):
        return f"{text}, here {likely[1]}"
    if (folder / CONFIG_FILE).is_file() or (folder / "1").is_dir():
        return f"{text}; it looks like a model itself, which belongs in the repository's folder"
    return text


def choose_versions(policy: VersionPolicy | None, available: Iterable[int]) -> tuple[int, ...]:
    """Return the versions among `available` that `policy` serves, ascending; None is latest 1.

    One that is there and says nothing serves all, as in Triton.
    """
    policy, versions = policy or VersionPolicy(latest=1), sorted(available)
    if policy.specific is not None:
        return tuple(number for number in versions if number in policy.specific)
    # An empty version_policy has none of the three.
    if policy.all or policy.latest is None:
        return tuple(versions)
    # versions[-0:] would be all of them; latest { num_versions: 0 } is none, as in Triton.
    return tuple(versions[-policy.latest :] if policy.latest else ())


def derived(
    config: ModelConfig,
    version_folder: Path | None,
    name: str,
    file: str = CONFIG_FILE,
    slips: Callable[[], str] = str,
) -> ModelConfig:
    """Return `config` with the backend and model file that lie in `version_folder` filled in.

    A configuration that names a platform or backend keeps it. Raises InvalidConfig when nothing
    tells the backend of the model called `name`; complaints call the configuration `file`, and say
    which `slips` explain that.
    """
    if config.platform == ENSEMBLE or config.ensemble_scheduling is not None:
        return config
    known = platform_named(config.platform)
    if known is not None:
        return replace(
            config,
            backend=config.backend or known.backend,
            default_model_filename=config.default_model_filename or known.filename,
        )
    backend = config.backend
    if backend or config.platform:
        # _filled also sets TensorFlow's platform: its SavedModel is a folder, not a file.
        found = _found_in(version_folder, config, platforms_of(backend))
        return _filled(config, found) if found else config
    found = _found_in(version_folder, config, PLATFORMS)
    if found is not None:
        return _filled(config, found)
    # Triton takes NAME.BACKEND as the name of a folder that says its backend.
    _, dot, suffix = name.rpartition(".")
    if dot and suffix:
        filename = config.default_model_filename
        own = f"model.{suffix}"  # only if it is there: not every backend reads a file
        if not filename and version_folder is not None and (version_folder / own).exists():
            filename = own
        return replace(config, backend=suffix, default_model_filename=filename)
    raise InvalidConfig(_no_backend(config, name, file, slips()))


def _found_in(
    folder: Path | None, config: ModelConfig, candidates: tuple[Platform, ...]
) -> Platform | None:
    wanted = config.default_model_filename
    if wanted:
        by_name = platform_of_file(wanted)
        return by_name if by_name in candidates else None
    if folder is None:
        return None
    present = (one for one in candidates if one.filename and (folder / one.filename).exists())
    return next(present, None)


def has_usual_file(folder: Path) -> bool:
    """Tell whether a version `folder` holds a model file of a usual name."""
    return any(one.filename and (folder / one.filename).exists() for one in PLATFORMS)


def _filled(config: ModelConfig, found: Platform) -> ModelConfig:
    return replace(
        config,
        backend=found.backend,
        # TensorFlow's backend reads two formats, and only the platform tells which.
        platform=found.reported if found.backend == "tensorflow" else config.platform,
        default_model_filename=config.default_model_filename or found.filename,
    )


def _no_backend(config: ModelConfig, name: str, file: str, slips: str) -> str:
    wanted = config.default_model_filename
    expected = ", ".join(platform.filename for platform in PLATFORMS if platform.filename)
    sought = f"'{wanted}' has no known ending" if wanted else "no known model file was found"
    if slips:
        slips += "; "
    return (
        f"model '{name}': nothing says which backend runs it; {slips}{file} names no platform and "
        f"no backend, and {sought}, expected one of {expected} in the version folder"
    )


def files_of(
    model: FoundModel, version: int, config: ModelConfig, is_wanted: Callable[[], bool] = always
) -> ModelFiles:
    """Return the paths of `version` of `model` under `config`; `is_wanted` is that of the load.

    Raises InvalidConfig when the model file is missing or lies outside the version folder.
    """
    if model.backend is not None or model.file is not None:
        only = model.file or model.folder
        return ModelFiles(model.folder, version, model.folder, only, is_wanted)
    folder, filename = model.folder / str(version), config.default_model_filename
    # Configurations are sent by clients, too.
    if not is_inside(filename):
        raise InvalidConfig(
            f"model '{model.name}': default_model_filename '{filename}' leads out of the "
            f"version folder"
        )
    file = folder / filename
    if filename and not file.exists():
        msg = f"model '{model.name}' version {version}: there is no {version}/{filename}"
        if found := found_instead(model.folder, folder, filename):
            msg += f"; {found}"
        raise InvalidConfig(msg, ("default_model_filename",))
    return ModelFiles(model.folder, version, folder, file, is_wanted)


def placements(config: ModelConfig, gpu_count: int) -> tuple[list[Placement], list[str]]:
    """Return where each instance of a normalised `config` runs, and warnings where it deviates.

    A group for GPUs runs on the CPU when `gpu_count` is 0: many configurations are written on
    machines with GPUs. Passive groups get no requests, so they get no instances. Raises
    InvalidConfig for a missing GPU on a machine that has others, or when no instance is left.
    """
    placed: list[Placement] = []
    warnings: list[str] = []
    for number, group in enumerate(config.instance_group):
        place = f"model '{config.name}', instance_group '{group.name}'"
        if group.passive:
            warnings.append(f"{place} is passive: it gets no requests and no instances")
            continue
        if group.kind == "KIND_GPU" and gpu_count == 0:
            warnings.append(f"{place} asks for a GPU, there is none: it runs on the CPU")
        with within("instance_group", number):
            placed += _placements_of(group, gpu_count, place)
    # Ensembles have no groups, and need no instances.
    if config.instance_group and not placed:
        msg = f"model '{config.name}': every instance_group is passive, nothing would run requests"
        raise InvalidConfig(msg, ("instance_group",))
    return placed, warnings


def _placements_of(group: InstanceGroup, gpu_count: int, place: str) -> list[Placement]:
    devices: list[tuple[bool, int]] = [(False, 0)]
    if group.kind == "KIND_GPU" and gpu_count > 0:
        missing = [gpu for gpu in group.gpus if gpu >= gpu_count]
        if missing:
            msg = f"{place} lists gpus {missing}, this machine has 0 to {gpu_count - 1}"
            raise InvalidConfig(msg, ("gpus",))
        # Without a list, one set of instances on each GPU, as in Triton.
        devices = [(True, gpu) for gpu in group.gpus or range(gpu_count)]
    every = [device for device in devices for _ in range(group.count)]
    return [
        Placement(
            f"{group.name}_{number}",
            gpu,
            device_id,
            group.rate_limiter,
            group.host_policy or _default_policy(group, gpu, device_id),
            by_model=group.kind == "KIND_MODEL",
        )
        for number, (gpu, device_id) in enumerate(every)
    ]


def _default_policy(group: InstanceGroup, gpu: bool, device_id: int) -> str:  # noqa: FBT001
    if gpu:
        # Triton's names for host policies that are not given.
        return f"gpu_{device_id}"
    return "model" if group.kind == "KIND_MODEL" else "cpu"
