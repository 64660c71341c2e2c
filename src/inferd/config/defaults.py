"""The defaults of a ModelConfig: fills in names, counts and policies that it leaves out."""

from dataclasses import replace

from inferd.config.checks import CONFIG_FILE
from inferd.config.model import (
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    Optimization,
    SequenceBatching,
    VersionPolicy,
)
from inferd.config.platform import (
    ENSEMBLE,
    filename_of,
    filled_platform,
    is_python_based,
    platform_named,
)
from inferd.errors import InvalidConfig

# Triton's default.
DEFAULT_SEQUENCE_IDLE_US = 1_000_000

_TWO_ON_CPU = ("onnxruntime", "tensorflow")
"""Backends whose models get two instances on the CPU unless the configuration sets a count."""


def normalised(
    config: ModelConfig, folder_name: str, gpu_count: int = 0, file: str = CONFIG_FILE
) -> ModelConfig:
    """Return `config` with the defaults of all fields it leaves out filled in.

    Idempotent; a second call fills in what follows from fields set in between, such as
    max_batch_size. Raises InvalidConfig when `config` has a name other than `folder_name`.
    """
    if config.name not in ("", folder_name):
        msg = (
            f"model '{folder_name}', {file}: name is '{config.name}', "
            f"expected '{folder_name}', the name of its folder"
        )
        raise InvalidConfig(msg, ("name",))
    filled = replace(
        config,
        name=folder_name,
        version_policy=config.version_policy or VersionPolicy(latest=1),
        dynamic_batching=_dynamic(config.dynamic_batching, config.max_batch_size),
        sequence_batching=_sequence(config.sequence_batching, config.max_batch_size),
    )
    # Triton fills in neither files nor pinned memory nor instances of an ensemble, since it has
    # none.
    if config.platform == ENSEMBLE:
        return filled
    known = platform_named(config.platform)
    backend = config.backend or (known.backend if known else "")
    named = replace(config, backend=backend)
    # A Python-based backend decides itself what it reads.
    if not config.default_model_filename and not is_python_based(named):
        named = replace(named, default_model_filename=filename_of(config.platform, backend))
    return replace(
        filled,
        platform=filled_platform(named),
        backend=backend,
        default_model_filename=named.default_model_filename,
        optimization=_pinned(config.optimization),
        instance_group=_instance_groups(replace(filled, backend=backend), gpu_count),
    )


def _dynamic(dynamic: DynamicBatching | None, max_batch_size: int) -> DynamicBatching | None:
    # A number that somebody wrote switches to Triton's rules (docs/decisions/0012); before the
    # backend has found out max_batch_size there is nothing to fill in.
    if dynamic is None or dynamic.preferred_batch_size or max_batch_size < 1:
        return dynamic
    is_adaptive = not dynamic.max_queue_delay_microseconds
    sizes = (max_batch_size,)
    return replace(dynamic, preferred_batch_size=sizes, is_adaptive=is_adaptive, is_filled=True)


def _sequence(sequence: SequenceBatching | None, max_batch_size: int) -> SequenceBatching | None:
    if sequence is None:
        return None
    oldest = sequence.oldest
    if oldest is not None and not oldest.preferred_batch_size and max_batch_size > 0:
        oldest = replace(oldest, preferred_batch_size=(max_batch_size,))
    # protobuf cannot tell a 0 from an absence, and Triton takes both for its default.
    idle_us = sequence.max_sequence_idle_microseconds or DEFAULT_SEQUENCE_IDLE_US
    return replace(sequence, max_sequence_idle_microseconds=idle_us, oldest=oldest)


def _pinned(optimization: Optimization) -> Optimization:
    into, out_of = optimization.input_pinned_memory, optimization.output_pinned_memory
    # Triton shows both as true; there is pinned memory only with a GPU, and nothing reads this
    # without one.
    return replace(
        optimization,
        input_pinned_memory=True if into is None else into,
        output_pinned_memory=True if out_of is None else out_of,
    )


def _instance_groups(config: ModelConfig, gpu_count: int) -> tuple[InstanceGroup, ...]:
    # An automatic group has the model's name, so that its instances are <model>_0, <model>_1, ...
    groups = config.instance_group or (InstanceGroup(name=config.name),)
    return tuple(
        _instance_group(
            replace(group, name=group.name or f"{config.name}_{number}"), config, gpu_count
        )
        for number, group in enumerate(groups)
    )


def _instance_group(group: InstanceGroup, config: ModelConfig, gpu_count: int) -> InstanceGroup:
    kind, gpus = group.kind, group.gpus
    if kind == "KIND_AUTO":
        # An automatic group whose GPUs this machine lacks goes to the CPU; one that says KIND_GPU
        # fails.
        fits = gpu_count > 0 and all(0 <= gpu < gpu_count for gpu in gpus)
        kind, gpus = ("KIND_GPU", gpus) if fits else ("KIND_CPU", ())
    if kind == "KIND_GPU" and not gpus:
        gpus = tuple(range(gpu_count))
    # As in Triton.
    usual_count = 2 if kind == "KIND_CPU" and config.backend in _TWO_ON_CPU else 1
    count = group.count if group.count > 0 else usual_count
    return replace(group, kind=kind, gpus=gpus, count=count)
