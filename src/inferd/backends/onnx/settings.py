"""Settings: ONNX Runtime session options and providers from a model configuration."""

import logging
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

from inferd.config.model import Accelerator, ModelConfig
from inferd.config.parameter import MAX_SHOWN, is_on, whole_number, whole_setting
from inferd.core.interfaces import Placement
from inferd.errors import InvalidConfig

_log = logging.getLogger(__name__)

Provider = tuple[str, dict[str, str]]
"""An ONNX Runtime execution provider and its options."""

# ORT_LOGGING_LEVEL_FATAL. ERROR would print failed requests to stderr beside our own log.
_FATAL = 4
# The options are C ints.
_MOST = 2**31 - 1

_SHRINKAGE = "memory.enable_memory_arena_shrinkage"
_ARENA = re.compile(r"(cpu|gpu)(?::([0-9]{1,9}))?")

# optimization.graph.level, as Triton's onnxruntime backend reads it.
_GRAPH_LEVELS = {
    -1: "ORT_ENABLE_BASIC",
    0: "ORT_ENABLE_ALL",
    1: "ORT_ENABLE_EXTENDED",
    2: "ORT_DISABLE_ALL",
}

# Triton numbers these choices, ONNX Runtime names them.
_CUDA_CHOICES = {
    "cudnn_conv_algo_search": {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"},
    "arena_extend_strategy": {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"},
    "gpu_mem_limit": {},
    "do_copy_in_default_stream": {},
}

_ACCELERATORS = {
    "cpu": {"openvino": "OpenVINOExecutionProvider"},
    "gpu": {"tensorrt": "TensorrtExecutionProvider", "cuda": "CUDAExecutionProvider"},
}


def onnxruntime() -> ModuleType:
    """Return onnxruntime, imported on first use, with its own log on stderr silenced.

    Everything it would log is also raised, and we answer and log those exceptions.
    """
    import onnxruntime  # heavy, so only when a model needs it

    onnxruntime.set_default_logger_severity(_FATAL)
    module: ModuleType = onnxruntime
    return module


class Threads(NamedTuple):
    """The threads of an execution, within an operator and for operators side by side.

    One each unless more are asked for: requests already run in parallel. 0: ONNX Runtime's choice.
    """

    intra_op: int = 1
    inter_op: int = 1


def usual_threads(settings: Mapping[str, str]) -> Threads:
    """Return the threads of models that do not choose them. Raises InvalidConfig.

    Triton has these settings for a pool that all models share, `enable-global-threadpool`. Here
    each model has threads of its own in any case: they cost nothing while idle.
    """
    intra_op = whole_setting(settings, "intra_op_thread_count", 1)
    return Threads(intra_op, whole_setting(settings, "inter_op_thread_count", 1))


class SessionSettings(NamedTuple):
    """What a configuration says of a session, read without ONNX Runtime.

    `level` is the name of a GraphOptimizationLevel.
    """

    threads: Threads
    is_parallel: bool
    has_arena: bool
    has_pattern: bool
    level: str


def session_settings(config: ModelConfig, usual: Threads) -> SessionSettings:
    """Return the settings of `config`, with the `usual` threads if it has no others.

    Raises InvalidConfig for an invalid value.
    """
    level = _GRAPH_LEVELS.get(config.optimization.graph_level)
    if level is None:
        msg = (
            f"model '{config.name}': optimization graph level is "
            f"{config.optimization.graph_level}, expected one of {sorted(_GRAPH_LEVELS)}"
        )
        raise InvalidConfig(msg, ("optimization", "graph", "level"))
    shrunk_arenas(config)  # a matter of each run, but refused with the rest
    return SessionSettings(
        Threads(
            whole_number(config, "intra_op_thread_count", usual.intra_op, 0, _MOST),
            whole_number(config, "inter_op_thread_count", usual.inter_op, 0, _MOST),
        ),
        bool(whole_number(config, "execution_mode", 0, 0, 1)),
        is_on(config, "enable_mem_arena", default=True),
        is_on(config, "enable_mem_pattern", default=True),
        level,
    )


def check_accelerators(config: ModelConfig) -> None:
    """Raise InvalidConfig for an accelerator that no build of ONNX Runtime has here."""
    optimization = config.optimization
    for device, wanted in (
        ("gpu", optimization.gpu_execution_accelerator),
        ("cpu", optimization.cpu_execution_accelerator),
    ):
        for number, accelerator in enumerate(wanted):
            if accelerator.name not in _ACCELERATORS[device]:
                msg = (
                    f"model '{config.name}' asks for the {device} execution accelerator "
                    f"'{accelerator.name}', known are {', '.join(_ACCELERATORS[device])}"
                )
                field = f"{device}_execution_accelerator"
                path = ("optimization", "execution_accelerators", field, number)
                raise InvalidConfig(msg, path)


def session_options(config: ModelConfig, usual: Threads) -> Any:
    """Return onnxruntime.SessionOptions for `config`, with the `usual` threads if it has no others.

    Idle threads never spin: on a paced load that costs twenty times the CPU of the
    model. Parameters that start with `session.` are passed to ONNX Runtime unchanged, and may
    override this. Unknown parameters are ignored. Raises InvalidConfig for an invalid value.
    """
    found = session_settings(config, usual)
    ort = onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL
    options.intra_op_num_threads = found.threads.intra_op
    options.inter_op_num_threads = found.threads.inter_op
    # Operators side by side cost a small model twice its time (61
    # against 33 us), so only on request.
    if found.is_parallel:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.enable_cpu_mem_arena = found.has_arena
    options.enable_mem_pattern = found.has_pattern
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, found.level)
    # With requests 1 ms apart, spinning costs 1,140 us of CPU for each, and 60 without.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # Last, so that a model's own entries win over the two above.
    for key, value in config.parameters.items():
        if key.startswith("session."):
            options.add_session_config_entry(key, value)
    return options


def run_options(config: ModelConfig, session: Any) -> Any:
    """Return onnxruntime.RunOptions for `config`; runs of `session` may share one."""
    # Made once: a prebuilt one makes each run cheaper than None does (2.98 against 3.44 us).
    options = onnxruntime().RunOptions()
    options.log_severity_level = _FATAL
    # A run fails if it is to shrink an arena which the session lacks, such as that of a GPU in
    # "cpu:0;gpu:0", Triton's example, on a machine that has none.
    shrunk = [arena for arena in shrunk_arenas(config) if _has_arena(config, session, arena)]
    if shrunk:
        options.add_run_config_entry(_SHRINKAGE, ";".join(shrunk))
    return options


def shrunk_arenas(config: ModelConfig) -> list[str]:
    """Return the arenas that are to shrink after each run, such as cpu:0.

    Raises InvalidConfig for what names none.
    """
    text = config.parameters.get(_SHRINKAGE, "")
    arenas = []
    for entry in filter(None, text.split(";")):
        found = _ARENA.fullmatch(entry)
        if found is None:
            raise InvalidConfig(
                f"model '{config.name}': parameter {_SHRINKAGE} is '{text[:MAX_SHOWN]}', expected "
                f"devices such as cpu:0;gpu:0"
            )
        arenas.append(f"{found[1]}:{int(found[2] or 0)}")
    return arenas


def _has_arena(config: ModelConfig, session: Any, arena: str) -> bool:
    if arena.startswith("cpu"):
        return arena == "cpu:0" and is_on(config, "enable_mem_arena", default=True)
    cuda = session.get_provider_options().get("CUDAExecutionProvider")
    return cuda is not None and arena == f"gpu:{cuda.get('device_id', '0')}"


def providers(config: ModelConfig, placement: Placement, available: list[str]) -> list[Provider]:
    """Return the execution providers to use, best first, of those `available` in this build.

    A GPU placement runs on the CPU, with a warning, if the build has no GPU support. Raises
    InvalidConfig if the configuration names an accelerator that is unknown or not in the build.
    """
    device = "gpu" if placement.gpu else "cpu"
    wanted = (
        config.optimization.gpu_execution_accelerator
        if placement.gpu
        else config.optimization.cpu_execution_accelerator
    )
    chosen = [
        (_accelerator(config, device, accelerator, available), _options(accelerator))
        for accelerator in wanted
    ]
    names = [name for name, _ in chosen]
    # TensorRT takes the parts of a graph that it knows; CUDA has to be there for the others.
    if placement.gpu and "CUDAExecutionProvider" not in names:
        if "CUDAExecutionProvider" in available:
            chosen.append(("CUDAExecutionProvider", {}))
        elif not chosen:
            _log.warning(
                "model '%s' asks for a GPU, but the installed onnxruntime has only %s; "
                "it runs on the CPU (onnxruntime-gpu can use a GPU)",
                config.name,
                ", ".join(available),
            )
    cuda = _cuda_options(config)
    device_id = {"device_id": str(placement.device_id)} if placement.gpu else {}
    # Each accelerator has a device of its own; without the id all instances would share device 0.
    located = [
        (name, options | (cuda if name == "CUDAExecutionProvider" else {}) | device_id)
        for name, options in chosen
    ]
    # Always last: operators that no accelerator has run here, as in Triton's backend.
    return [*located, ("CPUExecutionProvider", {})]


def _accelerator(
    config: ModelConfig, device: str, accelerator: Accelerator, available: list[str]
) -> str:
    provider = _ACCELERATORS[device].get(accelerator.name)
    if provider in available:
        return provider
    known = [name for name, one in _ACCELERATORS[device].items() if one in available]
    raise InvalidConfig(
        f"model '{config.name}' asks for the {device} execution accelerator '{accelerator.name}'; "
        f"the installed onnxruntime offers {', '.join(known) or 'none'} for the {device}"
    )


def _options(accelerator: Accelerator) -> dict[str, str]:
    """Return the provider's options. Two of TensorRT's are renamed to ONNX Runtime's names."""
    options = dict(accelerator.parameters)
    if accelerator.name == "tensorrt":
        # The other value, FP32, is TensorRT's default.
        if options.pop("precision_mode", "").upper() == "FP16":
            options["trt_fp16_enable"] = "1"
        workspace = options.pop("max_workspace_size_bytes", None)
        if workspace is not None:
            options["trt_max_workspace_size"] = workspace
    return options


def _cuda_options(config: ModelConfig) -> dict[str, str]:
    return {
        key: names.get(config.parameters[key], config.parameters[key])
        for key, names in _CUDA_CHOICES.items()
        if key in config.parameters
    }
