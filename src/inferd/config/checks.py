"""Checks a ModelConfig, as far as that needs no look at the model file.

The rules are those of Triton's model configuration; where Triton accepts something odd, so does
inferd. Each complaint names the model, the configuration file and the field.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from inferd.config.model import EnsembleStep, ModelConfig, Optimization
from inferd.config.names import is_inside
from inferd.config.platform import ENSEMBLE, PLATFORMS, platform_named, platforms_of
from inferd.config.rules.complaint import Complaint
from inferd.config.rules.scheduling import batching_complaints, cache_complaints
from inferd.config.rules.tensors import io_complaints
from inferd.errors import FieldPath

CONFIG_FILE = "config.pbtxt"

MAX_INSTANCES = 1024
"""Each instance may need a thread and a copy of the model: more is a mistake or an attack."""


def check_config(config: ModelConfig, file: str = CONFIG_FILE) -> None:
    """Check all of `config` except what check_io checks: inputs, outputs and instances.

    The backend may still fill in inputs and outputs; Triton checks instances along with them.
    Raises InvalidConfig with the first complaint.
    """
    _raise_first(config, file, config_complaints(config))


def check_io(config: ModelConfig) -> None:
    """Check the inputs, outputs and instances of `config`, once the backend has filled it in.

    Raises InvalidConfig with the first complaint.
    """
    _raise_first(config, CONFIG_FILE, chain(instance_complaints(config), io_complaints(config)))


# Apart from check_io: an ensemble has no instances, and a load that is only looked at has no
# backend that could fill in the rest.
def check_instances(config: ModelConfig) -> None:
    """Check the instance groups of `config`. Raises InvalidConfig with the first complaint."""
    _raise_first(config, CONFIG_FILE, instance_complaints(config))


def _raise_first(config: ModelConfig, file: str, complaints: Iterator[Complaint]) -> None:
    for complaint in complaints:
        raise complaint.error(config.name, file)


def config_complaints(config: ModelConfig) -> Iterator[Complaint]:
    """Yield every complaint of `check_config`."""
    yield from _platform_complaints(config)
    yield from batching_complaints(config)
    yield from cache_complaints(config)
    yield from _count_complaints(config)
    yield from _file_complaints(config)


def instance_complaints(config: ModelConfig) -> Iterator[Complaint]:
    """Yield every complaint of `check_instances`."""
    for number, group in enumerate(config.instance_group):
        place, path = f"instance_group '{group.name or number}'", ("instance_group", number)
        # KIND_MODEL leaves placement to the model itself, so a list of GPUs there would be a wish
        # that nobody follows.
        if group.kind in ("KIND_CPU", "KIND_MODEL") and group.gpus:
            text = f"{place} has kind {group.kind} but lists gpus {list(group.gpus)}"
            yield Complaint(text, (*path, "gpus"))
        # The backend may not be filled in yet, where the model file decides it.
        if group.profile and config.backend not in ("", "tensorrt"):
            text = f"{place} has a profile, which only TensorRT models can have"
            yield Complaint(text, (*path, "profile"))
        for inner, gpu in enumerate(group.gpus):
            if gpu < 0:
                text = f"{place} lists gpu {gpu}, expected 0 or more"
                yield Complaint(text, (*path, "gpus", inner))


def _platform_complaints(config: ModelConfig) -> Iterator[Complaint]:
    # Either of both makes it one, so that whoever forgot the other hears which.
    if config.platform == ENSEMBLE or config.ensemble_scheduling is not None:
        yield from _ensemble_complaints(config)
        return
    known = platform_named(config.platform)
    names = [name for platform in platforms_of(config.backend) for name in platform.names]
    if config.platform and not config.backend and known is None:
        text = f"platform '{config.platform}' is unknown{_meant(config.platform)}"
        yield Complaint(text, ("platform",))
    # No names: a backend that only config.pbtxt's `backend` can select, such as python, or one that
    # is a plug-in.
    if config.platform and names and config.platform not in names:
        text = (
            f"platform '{config.platform}' does not go with backend '{config.backend}', "
            f"which runs {', '.join(names)}"
        )
        yield Complaint(text, ("platform",))


def _meant(platform: str) -> str:
    """Return a hint at what to write instead of an unknown platform."""
    if platform == "custom":
        return ": libraries in C++ of the old server's do not run here, a model.py does"
    # Triton infers the backend from this alias, but then refuses the pair.
    if platform == "libtorch":
        return ", write platform 'pytorch_libtorch'"
    if platforms_of(platform):
        return f": that is a backend, write backend '{platform}'"
    return f", known are: {', '.join(sorted(name for one in PLATFORMS for name in one.names))}"


def _ensemble_complaints(config: ModelConfig) -> Iterator[Complaint]:
    ensemble, path = config.ensemble_scheduling, "ensemble_scheduling"
    if config.platform != ENSEMBLE:
        given = f"not '{config.platform}'" if config.platform else "which is not given"
        text = f"ensemble_scheduling needs platform '{ENSEMBLE}', {given}"
        yield Complaint(text, ("platform",) if config.platform else (path,))
    else:
        # Only for a real ensemble: where the platform is another, instances may be right and the
        # steps wrong.
        yield from _own_complaints(config)
    if config.backend not in ("", ENSEMBLE):
        text = f"an ensemble has no backend, the configuration names '{config.backend}'"
        yield Complaint(text, ("backend",))
    steps = ensemble.step if ensemble is not None else ()
    if not steps:
        text = "an ensemble needs at least one step in ensemble_scheduling"
        yield Complaint(text, (path,) if ensemble is not None else ("platform",))
    for number, step in enumerate(steps):
        for field in ("model_name", "input_map", "output_map"):
            if not getattr(step, field):
                text = f"ensemble_scheduling: step {number} has no {field}"
                yield Complaint(text, (path, "step", number, field))
    yield from wiring_complaints(config, steps)


def _own_complaints(config: ModelConfig) -> Iterator[Complaint]:
    """Yield what an ensemble has that only its steps' models can have."""
    for field in ("instance_group", "model_warmup"):
        if getattr(config, field):
            text = f"an ensemble cannot have {field}: its steps' models have their own"
            yield Complaint(text, (field,))
    # An empty `optimization {}` equals the default; `given` tells that somebody wrote it.
    if config.optimization != Optimization() or "optimization" in config.given:
        text = "an ensemble cannot have optimization: its steps' models have their own"
        yield Complaint(text, ("optimization",))


def _count_complaints(config: ModelConfig) -> Iterator[Complaint]:
    # A group with gpus has its count on each of them.
    count = sum(group.count * max(1, len(group.gpus)) for group in config.instance_group)
    if count > MAX_INSTANCES:
        text = f"instance_group asks for {count} instances, expected at most {MAX_INSTANCES}"
        groups = config.instance_group
        # The path leads an editor to the group that makes the sum large, not to the first one.
        most = max(range(len(groups)), key=lambda number: groups[number].count)
        yield Complaint(text, ("instance_group", most, "count"))


def _file_complaints(config: ModelConfig) -> Iterator[Complaint]:
    # Files of a configuration may come with a client's load request: it must not name others of
    # this machine.
    if not is_inside(config.default_model_filename):
        text = (
            f"default_model_filename '{config.default_model_filename}' leads out of the "
            f"version folder"
        )
        yield Complaint(text, ("default_model_filename",))
    for number, name in enumerate(config.model_operations):
        if not is_inside(name):
            text = f"model_operations: op_library_filename '{name}' leads out of the model's folder"
            yield Complaint(text, ("model_operations", "op_library_filename", number))


# A tensor is written once, by a client or by an output of a step, and read by any number of steps;
# one that is never written or never read is a mistake (Triton, Ensemble Models).
_Link = tuple[str, str, FieldPath]
"""A tensor, the place that reads or writes it in words, and the path of the field that says so."""

_STEPS = ("ensemble_scheduling", "step")


def wiring_complaints(config: ModelConfig, steps: Sequence[EnsembleStep]) -> Iterator[Complaint]:
    """Yield what is wrong with the maps of an ensemble's `steps`, with the path of the data."""
    writers: dict[str, tuple[str, FieldPath]] = {}
    for tensor, place, path in _written(config, steps):
        if tensor in writers:
            before, _ = writers[tensor]
            text = f"tensor '{tensor}' is written twice: by {before} and by {place}"
            yield Complaint(text, path)
        # The last one counts from here on, so that a third writer is told beside its neighbour.
        writers[tensor] = place, path
    read = set()
    # All steps are written first: steps may stand in any order, the data's flow decides.
    for tensor, place, path in _read(config, steps):
        if tensor not in writers:
            yield Complaint(f"no step writes tensor '{tensor}' → {place}", path)
        read.add(tensor)
    for tensor, (place, path) in writers.items():
        if tensor not in read:
            yield Complaint(f"nobody reads {place} → tensor '{tensor}'", path)


def _written(config: ModelConfig, steps: Sequence[EnsembleStep]) -> Iterator[_Link]:
    """Yield each tensor that is written, with the place that writes it."""
    for number, given in enumerate(config.input):
        yield given.name, f"the ensemble's input '{given.name}'", ("input", number)
    for number, step in enumerate(steps):
        for inner, outer in step.output_map.items():
            place = f"step {number} (model '{step.model_name}') output '{inner}'"
            yield outer, place, (*_STEPS, number, "output_map", inner)


def _read(config: ModelConfig, steps: Sequence[EnsembleStep]) -> Iterator[_Link]:
    """Yield each tensor that is read, with the place that reads it."""
    for number, step in enumerate(steps):
        for inner, outer in step.input_map.items():
            place = f"step {number} (model '{step.model_name}') input '{inner}'"
            yield outer, place, (*_STEPS, number, "input_map", inner)
    for number, wanted in enumerate(config.output):
        yield wanted.name, f"the ensemble's output '{wanted.name}'", ("output", number)
