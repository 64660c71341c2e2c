"""Warnings: what is served, but perhaps not as whoever wrote its configuration thinks."""

import difflib
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from inferd.check.model import ModelCheck
from inferd.config.model import ModelConfig, Optimization
from inferd.config.parameter_names import (
    ALLOW_NATIVE,
    ANY_INPUT_NAME,
    COLUMNS,
    CONVERT,
    CONVERT_SAMPLE,
    CONVERT_TOLERANCE,
    DEFAULT_OUTPUTS,
    EXECUTION_TIMEOUT,
    FOUND_OUTPUTS,
    JOINED,
    JOINING_REASON,
    MODEL_CLASS,
    MOST_ELEMENTS,
    PLACEMENT,
    TABLE,
    VERSION_NAME,
)
from inferd.engine.loading.joining import JOIN_PARAMETER
from inferd.engine.loading.load import EXECUTION_PARAMETER
from inferd.engine.loading.scheduling import QUEUE_SIZE_PARAMETER, QUEUE_TIMEOUT_PARAMETER
from inferd.errors import FieldPath

KNOWN_PARAMETERS = (
    ALLOW_NATIVE,
    ANY_INPUT_NAME,
    COLUMNS,
    CONVERT,
    CONVERT_SAMPLE,
    CONVERT_TOLERANCE,
    DEFAULT_OUTPUTS,
    EXECUTION_PARAMETER,
    EXECUTION_TIMEOUT,
    FOUND_OUTPUTS,
    JOIN_PARAMETER,
    MODEL_CLASS,
    MOST_ELEMENTS,
    PLACEMENT,
    QUEUE_SIZE_PARAMETER,
    QUEUE_TIMEOUT_PARAMETER,
    TABLE,
    VERSION_NAME,
    # Those of backends, which nobody above them may import.
    "inferd_allow_pickle",
    "inferd_environment",
    "inferd_memory_limit_bytes",
    "inferd_mxnet_native",
    "inferd_process",
    "inferd_python",
    "inferd_repeatable",
    "inferd_retry_lost_requests",
    "inferd_trusted_types",
)
"""The parameters of models whose names begin with inferd_."""

SAID_PARAMETERS = (JOINED, JOINING_REASON)
"""The parameters that the server adds to a configuration in force, and does not read."""

_OURS = "inferd_"
_GRAPHS = ("onnxruntime", "caffe2", "mxnet", "fil")
"""Backends that look at optimization: those that run in ONNX Runtime."""

_RESERVED = ("stats",)
"""Names of models that are other calls in URLs: /v2/models/stats."""


class Warned(NamedTuple):
    """A warning: what it says, the field it is about, and what to do."""

    text: str
    path: FieldPath = ()
    fix: str = ""


def add_surprises(check: ModelCheck) -> None:
    """Add warnings to a model that would be served, with the configuration it would have."""
    for reason in check.model.ignored:
        check.add_warning(f"{reason}; it is ignored", "layout")
    config = check.config
    if config is None:
        return
    for warned in (
        *_name_surprises(check, config),
        *_idle_fields(config),
        *_idle_batching(check, config),
        *_parameter_surprises(config),
        *_version_surprises(check, config),
        *_warmup_surprises(config),
    ):
        check.add_warning(warned.text, path=warned.path, fix=warned.fix)


def _name_surprises(check: ModelCheck, config: ModelConfig) -> Iterator[Warned]:
    name = config.name
    if name in _RESERVED:
        text = f"the name '{name}' is that of another call, so that /v2/models/{name} is not it"
        yield Warned(text, fix="give its folder another name")
    elif (written := quote(name, safe="")) != name:
        text = f"clients have to write the name '{name}' as {written} in URLs, and not all do"
        yield Warned(text, fix="use letters, digits, '_', '-' and '.' in its folder's name")
    inputs = [one.name for one in config.input]
    outputs = [one.name for one in config.output]
    for kind, names in (("input", inputs), ("output", outputs)):
        for tensor, count in Counter(names).items():
            if count > 1:
                # protobuf text may have both; clients' names reach the last one.
                last = len(names) - 1 - names[::-1].index(tensor)
                text = f"{count} {kind}s are called '{tensor}': clients can mean only one of them"
                yield Warned(text, (kind, last, "name"))


def _idle_fields(config: ModelConfig) -> Iterator[Warned]:
    """Yield fields that nothing looks at."""
    for path in (*_idle_optimization(config.optimization), *_idle_in_lists(config)):
        yield Warned(f"{path[-1]} has no effect in inferd", path)
    if config.cc_model_filenames:
        yield Warned("cc_model_filenames has no effect in inferd", ("cc_model_filenames",))
    if config.backend not in _GRAPHS:
        yield from _idle_graph_fields(config)


def _idle_optimization(optimization: Optimization) -> Iterator[FieldPath]:
    usual = Optimization()
    # Fields that Triton passes to its C++ backends or to CUDA.
    for field in ("priority", "cuda", "gather_kernel_buffer_threshold", "eager_batching"):
        if getattr(optimization, field) != getattr(usual, field):
            yield "optimization", field


def _idle_in_lists(config: ModelConfig) -> Iterator[FieldPath]:
    for number, group in enumerate(config.instance_group):
        if group.secondary_devices:
            yield "instance_group", number, "secondary_devices"
    ensemble = config.ensemble_scheduling
    for number, step in enumerate(ensemble.step if ensemble is not None else ()):
        if step.model_namespace:
            yield "ensemble_scheduling", "step", number, "model_namespace"


def _idle_graph_fields(config: ModelConfig) -> Iterator[Warned]:
    optimization = config.optimization
    where = f"has no effect on models of backend '{config.backend}', only in ONNX Runtime"
    if optimization.graph_level:
        yield Warned(f"optimization: graph {where}", ("optimization", "graph"))
    if optimization.gpu_execution_accelerator or optimization.cpu_execution_accelerator:
        text = f"optimization: execution_accelerators {where}"
        yield Warned(text, ("optimization", "execution_accelerators"))


def _idle_batching(check: ModelCheck, config: ModelConfig) -> Iterator[Warned]:
    # Not what was filled in.
    if config.dynamic_batching is None or not check.says("dynamic_batching"):
        return
    path: FieldPath = ("dynamic_batching",)
    if config.decoupled:
        text = "dynamic_batching: requests of a decoupled model are never joined"
        yield Warned(text, path)
    elif config.max_batch_size < 2:
        text = f"dynamic_batching joins no requests, as max_batch_size is {config.max_batch_size}"
        yield Warned(text, path, "give the max_batch_size that the model can take")


def _parameter_surprises(config: ModelConfig) -> Iterator[Warned]:
    for name in config.parameters:
        # Somebody has copied a configuration in force.
        if name in SAID_PARAMETERS:
            text = f"parameter {name} is what a server says; it has no effect here"
            yield Warned(text, ("parameters", name), "leave it out")
        elif name.startswith(_OURS) and name not in KNOWN_PARAMETERS:
            # Silence is the usual fate of a misspelt parameter.
            near = difflib.get_close_matches(name, KNOWN_PARAMETERS, n=1)
            fix = f"did you mean {near[0]}?" if near else ""
            yield Warned(f"there is no parameter {name}", ("parameters", name), fix)
    if config.backend == "fil" and "output_class" in config.parameters:
        text = "parameter output_class is the old name of is_classifier"
        yield Warned(text, ("parameters", "output_class"), "call it is_classifier")


def _version_surprises(check: ModelCheck, config: ModelConfig) -> Iterator[Warned]:
    policy = config.version_policy
    wanted = (policy.specific or ()) if policy is not None else ()
    if missing := [number for number in wanted if number not in check.model.versions]:
        numbers = ", ".join(map(str, missing))
        text = f"version_policy asks for version {numbers}, which is not there"
        yield Warned(text, ("version_policy",))


def _warmup_surprises(config: ModelConfig) -> Iterator[Warned]:
    for number, one in enumerate(config.model_warmup):
        # Triton's field without a value is 0, which is no batch.
        if not one.batch_size:
            text = f"model_warmup '{one.name}' has no batch_size, so that it is not run"
            yield Warned(text, ("model_warmup", number), "write batch_size: 1")
