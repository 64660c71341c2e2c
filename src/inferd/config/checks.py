"""Checks a ModelConfig, as far as that needs no look at the model file.

The rules are those of Triton's model configuration; where Triton accepts something odd, so does
inferd. Each complaint names the model, the configuration file and the field.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from math import prod
from pathlib import PurePosixPath, PureWindowsPath

from inferd.config.model import (
    CONTROL_TYPES,
    BatchInput,
    Control,
    DynamicBatching,
    InitialState,
    ModelConfig,
    ModelInput,
    ModelOutput,
    Optimization,
    QueuePolicy,
    SequenceBatching,
    SequenceState,
)
from inferd.config.platform import ENSEMBLE, platform_named, platforms_of
from inferd.config.wiring import wiring_complaints
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import fits

CONFIG_FILE = "config.pbtxt"

MAX_INSTANCES = 1024
"""Each instance may need a thread and a copy of the model: more is a mistake or an attack."""

MAX_DIMS = 63
"""numpy arrays have at most 64 dims, and one may be the batch dim."""

MAX_DELAY_US = 3_600_000_000
"""An hour: a request that no other joins waits for the whole delay."""

_CORRELATION_ID = "CONTROL_SEQUENCE_CORRID"
_CORRELATION_ID_TYPES = (
    DataType.UINT64,
    DataType.INT64,
    DataType.UINT32,
    DataType.INT32,
    DataType.BYTES,
)


def check_config(config: ModelConfig, file: str = CONFIG_FILE) -> None:
    """Check all of `config` except what check_io checks: inputs, outputs and instances.

    The backend may still fill in inputs and outputs; Triton checks instances along with them.
    Raises InvalidConfig with the first complaint.
    """
    _raise_first(
        config,
        file,
        _platform_complaints(config),
        _batching_complaints(config),
        _cache_complaints(config),
        _count_complaints(config),
        _file_complaints(config),
    )


def check_io(config: ModelConfig, file: str = CONFIG_FILE) -> None:
    """Check the inputs, outputs and instances of `config`, once the backend has filled it in.

    Raises InvalidConfig with the first complaint.
    """
    check_instances(config, file)
    tensors: tuple[ModelInput | ModelOutput, ...] = (*config.input, *config.output)
    _raise_first(
        config,
        file,
        *(_tensor_complaints(config, tensor) for tensor in tensors),
        *(_batch_input_complaints(config, one) for one in config.batch_input),
        _batch_output_complaints(config),
    )


def check_instances(config: ModelConfig, file: str = CONFIG_FILE) -> None:
    """Check the instance groups of `config`. Raises InvalidConfig with the first complaint."""
    _raise_first(config, file, _instance_complaints(config))


def is_inside(name: str) -> bool:
    """Tell whether the path `name` stays inside the folder it starts from, on any platform."""
    ways = (PurePosixPath(name), PureWindowsPath(name))
    return not any(way.anchor or ".." in way.parts for way in ways)


def _raise_first(config: ModelConfig, file: str, *complaints: Iterator[str]) -> None:
    for complaint in chain(*complaints):
        msg = f"model '{config.name}', {file}: {complaint}"
        raise InvalidConfig(msg)


# --- platform ---


def _platform_complaints(config: ModelConfig) -> Iterator[str]:
    if config.platform == ENSEMBLE or config.ensemble_scheduling is not None:
        yield from _ensemble_complaints(config)
        return
    known = platform_named(config.platform)
    names = [name for platform in platforms_of(config.backend) for name in platform.names]
    if config.platform and not config.backend and known is None:
        yield f"platform '{config.platform}' is unknown{_meant(config.platform)}"
    if config.platform and names and config.platform not in names:
        yield (
            f"platform '{config.platform}' does not go with backend '{config.backend}', "
            f"which runs {', '.join(names)}"
        )


def _meant(platform: str) -> str:
    """Return a hint at what to write instead of an unknown platform, "" if there is none."""
    if platform == "custom":
        return ": libraries in C++ of the old server's do not run here, a model.py does"
    if platform == "libtorch":
        return ", write platform 'pytorch_libtorch'"
    if platforms_of(platform):
        return f": that is a backend, write backend '{platform}'"
    return ""


def _ensemble_complaints(config: ModelConfig) -> Iterator[str]:
    ensemble = config.ensemble_scheduling
    if config.platform != ENSEMBLE:
        given = f"not '{config.platform}'" if config.platform else "which is not given"
        yield f"ensemble_scheduling needs platform '{ENSEMBLE}', {given}"
    if config.backend not in ("", ENSEMBLE):
        yield f"an ensemble has no backend, the configuration names '{config.backend}'"
    steps = ensemble.step if ensemble is not None else ()
    if not steps:
        yield "an ensemble needs at least one step in ensemble_scheduling"
    for number, step in enumerate(steps):
        for field in ("model_name", "input_map", "output_map"):
            if not getattr(step, field):
                yield f"ensemble_scheduling: step {number} has no {field}"
    for field in ("instance_group", "model_warmup"):
        if getattr(config, field):
            yield f"an ensemble cannot have {field}: its steps' models have their own"
    if config.optimization != Optimization() or "optimization" in config.given:
        yield "an ensemble cannot have optimization: its steps' models have their own"
    yield from wiring_complaints(config, steps)


# --- scheduling ---


def _batching_complaints(config: ModelConfig) -> Iterator[str]:
    if config.max_batch_size < 0:
        yield f"max_batch_size is {config.max_batch_size}, expected 0 or more"
    choices = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")
    given = [choice for choice in choices if getattr(config, choice) is not None]
    if len(given) > 1:
        yield f"{given[1]} cannot be given beside {given[0]}"
    if config.dynamic_batching is not None:
        yield from _dynamic_complaints(config, config.dynamic_batching)
    if config.sequence_batching is not None:
        yield from _sequence_complaints(config, config.sequence_batching)


def _dynamic_complaints(config: ModelConfig, dynamic: DynamicBatching) -> Iterator[str]:
    yield from _delay_complaints("dynamic_batching", dynamic.max_queue_delay_microseconds)
    yield from _preferred_complaints(config, "dynamic_batching", dynamic.preferred_batch_size)
    levels = dynamic.priority_levels
    if levels:
        named = [("default_priority_level is", dynamic.default_priority_level)]
        named += [("priority_queue_policy has level", one) for one in dynamic.priority_queue_policy]
        for what, level in named:
            if not 1 <= level <= levels:
                where = f"expected 1 to {levels}, the priority_levels"
                yield f"dynamic_batching: {what} {level}, {where}"
    if dynamic.preserve_ordering:
        yield from _ordering_complaints(dynamic)


def _delay_complaints(place: str, delay_us: int) -> Iterator[str]:
    if delay_us > MAX_DELAY_US:
        yield (
            f"{place}: max_queue_delay_microseconds is {delay_us}, at most {MAX_DELAY_US} "
            f"(an hour) may be: so long a request waits that nobody joins"
        )


def _ordering_complaints(dynamic: DynamicBatching) -> Iterator[str]:
    if dynamic.priority_levels > 1:
        yield "dynamic_batching: preserve_ordering allows only one of the priority_levels"
    policies = [dynamic.default_queue_policy or QueuePolicy()]
    policies += dynamic.priority_queue_policy.values()
    for policy in policies:
        # Without a default timeout a request's own, which may only shorten it, has no effect.
        if policy.timeout_action == "DELAY" and policy.default_timeout_microseconds:
            yield "dynamic_batching: preserve_ordering does not go with timeout_action DELAY"


def _preferred_complaints(config: ModelConfig, place: str, sizes: tuple[int, ...]) -> Iterator[str]:
    for size in sizes:
        if not 1 <= size <= config.max_batch_size:
            yield (
                f"{place}: preferred_batch_size {size} is not between 1 and "
                f"max_batch_size {config.max_batch_size}"
            )


def _sequence_complaints(config: ModelConfig, sequence: SequenceBatching) -> Iterator[str]:
    yield from _control_name_complaints(sequence)
    for control_input in sequence.control_input:
        for control in control_input.control:
            yield from _control_complaints(control_input.name, control)
    yield from _sequence_name_complaints(config, sequence)
    for state in sequence.state:
        yield from _state_complaints(state)
    if sequence.oldest is not None:
        count = sequence.oldest.max_candidate_sequences
        if count < 0:
            yield f"sequence_batching: oldest: max_candidate_sequences is {count}, not 0 or more"
        sizes = sequence.oldest.preferred_batch_size
        yield from _preferred_complaints(config, "sequence_batching: oldest", sizes)
        delay_us = sequence.oldest.max_queue_delay_microseconds
        yield from _delay_complaints("sequence_batching: oldest", delay_us)
    if sequence.direct is not None:
        delay_us = sequence.direct.max_queue_delay_microseconds
        yield from _delay_complaints("sequence_batching: direct", delay_us)
        share = sequence.direct.minimum_slot_utilization
        if not 0 <= share <= 1:
            yield (
                f"sequence_batching: direct: minimum_slot_utilization is {share}, expected 0 to 1"
            )


def _control_name_complaints(sequence: SequenceBatching) -> Iterator[str]:
    tensors = sequence.control_input
    if not all(tensor.name for tensor in tensors):
        yield "sequence_batching: a control_input has no name"
    # One kind per tensor and one tensor per kind: a duplicate leaves open which one is meant.
    for name, count in _repeated(t.name for t in tensors for _ in t.control):
        yield f"sequence_batching: control '{name}' has {count} kinds, expected 1"
    for kind, count in _repeated(c.kind for t in tensors for c in t.control):
        yield f"sequence_batching: {count} control tensors have the kind {kind}, expected 1"


def _sequence_name_complaints(config: ModelConfig, sequence: SequenceBatching) -> Iterator[str]:
    given = [tensor.name for tensor in config.input]
    given += [tensor.name for tensor in sequence.control_input if tensor.name]
    given += [state.input_name for state in sequence.state if state.input_name]
    for name, count in _repeated(given):
        yield f"sequence_batching: '{name}' names {count} inputs, controls or states, not 1"
    for name, count in _repeated(state.output_name for state in sequence.state):
        yield f"sequence_batching: {count} states have the output_name '{name}', expected 1"


def _repeated(names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield the names that are there more than once, and how often they are."""
    for name, count in Counter(names).items():
        if count > 1:
            yield name, count


def _state_complaints(state: SequenceState) -> Iterator[str]:
    place = f"sequence_batching: state '{state.input_name}'"
    if not state.input_name or not state.output_name:
        yield f"{place} needs an input_name and an output_name"
    if state.datatype is None:
        yield f"{place} has no data_type"
    yield from _rank_complaints(place, state.dims)
    if any(dim == 0 or dim < -1 for dim in state.dims):
        yield f"{place} has dims {list(state.dims)}, expected positive numbers, or -1"
    if len(state.initial_state) > 1:
        yield f"{place} has {len(state.initial_state)} entries initial_state, expected 1"
    for initial in state.initial_state:
        yield from _initial_complaints(place, state, initial)


def _initial_complaints(place: str, state: SequenceState, initial: InitialState) -> Iterator[str]:
    place += ": initial_state"
    yield from _rank_complaints(place, initial.dims)
    if not initial.name:
        yield f"{place} has no name"
    if initial.datatype is not state.datatype:
        yield f"{place} has data_type {_config_name(initial.datatype)}, the state has another"
    if not fits(state.dims, initial.dims) or any(dim < 1 for dim in initial.dims):
        yield f"{place} has dims {list(initial.dims)}, the state has {list(state.dims)}"
    if initial.data_file is None and not initial.zero_data:
        yield f"{place} needs zero_data or a data_file"
    if initial.data_file is not None and not is_inside(initial.data_file):
        yield f"{place}: data_file '{initial.data_file}' leads out of its folder"


def _control_complaints(name: str, control: Control) -> Iterator[str]:
    place = f"sequence_batching: control '{name}' of kind {control.kind}"
    given = [field for field in CONTROL_TYPES if getattr(control, field)]
    if control.kind == _CORRELATION_ID:
        if given:
            yield f"{place} cannot have {given[0]}"
        if control.datatype not in _CORRELATION_ID_TYPES:
            names = ", ".join(_config_name(datatype) for datatype in _CORRELATION_ID_TYPES)
            yield f"{place} has data_type {_config_name(control.datatype)}, expected one of {names}"
    elif len(given) != 1:
        found = " and ".join(given) or "none"
        yield f"{place} needs exactly one of {', '.join(CONTROL_TYPES)}, it has {found}"
    elif (count := len(getattr(control, given[0]))) != 2:
        yield f"{place}: {given[0]} has {count} entries, expected 2, for false and true"


def _cache_complaints(config: ModelConfig) -> Iterator[str]:
    if not config.response_cache:
        return
    if config.sequence_batching is not None:
        yield "response_cache does not go with sequence_batching"
    if config.decoupled:
        yield "response_cache does not go with a decoupled model_transaction_policy"


# --- instances and files ---


def _instance_complaints(config: ModelConfig) -> Iterator[str]:
    for number, group in enumerate(config.instance_group):
        place = f"instance_group '{group.name or number}'"
        if group.kind in ("KIND_CPU", "KIND_MODEL") and group.gpus:
            yield f"{place} has kind {group.kind} but lists gpus {list(group.gpus)}"
        if group.profile and config.backend not in ("", "tensorrt"):
            yield f"{place} has a profile, which only TensorRT models can have"
        for gpu in group.gpus:
            if gpu < 0:
                yield f"{place} lists gpu {gpu}, expected 0 or more"


def _count_complaints(config: ModelConfig) -> Iterator[str]:
    count = sum(group.count * max(1, len(group.gpus)) for group in config.instance_group)
    if count > MAX_INSTANCES:
        yield f"instance_group asks for {count} instances, expected at most {MAX_INSTANCES}"


def _file_complaints(config: ModelConfig) -> Iterator[str]:
    if not is_inside(config.default_model_filename):
        yield (
            f"default_model_filename '{config.default_model_filename}' leads out of the "
            f"version folder"
        )
    for name in config.model_operations:
        if not is_inside(name):
            yield f"model_operations: op_library_filename '{name}' leads out of the model's folder"


# --- inputs and outputs ---


def _tensor_complaints(config: ModelConfig, tensor: ModelInput | ModelOutput) -> Iterator[str]:
    kind = "input" if isinstance(tensor, ModelInput) else "output"
    if not tensor.name:
        yield f"an {kind} has no name"
    place = f"{kind} '{tensor.name}'"
    yield from _rank_complaints(place, tensor.dims)
    yield from _rank_complaints(f"{place}: reshape", tensor.reshape or ())
    if not tensor.dims:
        yield f"{place} has no dims; write 1 for a scalar, with an empty reshape"
    for dim in chain(tensor.dims, tensor.reshape or ()):
        if dim < 1 and dim != -1:
            yield f"{place} has dim {dim}, expected 1 or more, or -1 for one that varies"
    if tensor.is_shape_tensor and config.backend != "tensorrt":
        yield f"{place}: is_shape_tensor is for TensorRT models only"
    if isinstance(tensor, ModelInput):
        if tensor.format != "FORMAT_NONE" and len(tensor.dims) != 3:
            yield f"{place} has {tensor.format}, which needs 3 dims, not {len(tensor.dims)}"
    elif not is_inside(tensor.label_filename):
        yield f"{place}: label_filename '{tensor.label_filename}' leads out of the model's folder"
    if tensor.reshape is not None:
        yield from _reshape_complaints(config, place, tensor.dims, tensor.reshape)


def _rank_complaints(place: str, dims: tuple[int, ...]) -> Iterator[str]:
    if len(dims) > MAX_DIMS:
        yield f"{place} has {len(dims)} dims, expected at most {MAX_DIMS}"


def _reshape_complaints(
    config: ModelConfig, place: str, dims: tuple[int, ...], reshape: tuple[int, ...]
) -> Iterator[str]:
    if not reshape and config.max_batch_size == 0:
        yield f"{place} has an empty reshape, which needs a max_batch_size above 0"
    # Variable dims keep their order, so the dims between them must have the same product.
    if _fixed_parts(dims) != _fixed_parts(reshape):
        yield (
            f"{place}: dims {list(dims)} and reshape {list(reshape)} differ in size"
            f" between their variable dims, or in how many of these they have"
        )


def _fixed_parts(dims: tuple[int, ...]) -> list[int]:
    parts: list[list[int]] = [[]]
    for dim in dims:
        if dim == -1:
            parts.append([])
        else:
            parts[-1].append(dim)
    return [prod(part) for part in parts]


def _batch_input_complaints(config: ModelConfig, one: BatchInput) -> Iterator[str]:
    place = f"batch_input of kind {one.kind}"
    if one.datatype not in (DataType.INT32, DataType.FP32):
        yield (
            f"{place} has data_type {_config_name(one.datatype)}, expected TYPE_INT32 or TYPE_FP32"
        )
    yield from _source_complaints(config, place, one.source_input)


def _batch_output_complaints(config: ModelConfig) -> Iterator[str]:
    outputs = [output.name for output in config.output]
    for one in config.batch_output:
        place = f"batch_output of kind {one.kind}"
        yield from _source_complaints(config, place, one.source_input)
        for name in one.target_name:
            if name not in outputs:
                yield f"{place}: target_name '{name}' is no output"


def _source_complaints(config: ModelConfig, place: str, sources: tuple[str, ...]) -> Iterator[str]:
    if len(sources) != 1:
        yield f"{place} has {len(sources)} of source_input, expected 1"
    inputs = [given.name for given in config.input]
    for name in sources:
        if name not in inputs:
            yield f"{place}: source_input '{name}' is no input"


def _config_name(datatype: DataType | None) -> str:
    if datatype is None:
        return "TYPE_INVALID"
    return "TYPE_STRING" if datatype is DataType.BYTES else f"TYPE_{datatype.value}"
