"""Warnings: what is served, but perhaps not as whoever wrote its configuration thinks.

And of sizes: what a framework makes of a file is known only once it is loaded; that it needs no
less than its weights is known before.
"""

import difflib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote

from inferd.check.model import ModelCheck
from inferd.config import parameter_names
from inferd.config.model import ModelConfig, Optimization
from inferd.engine.loading.joining import JOIN_PARAMETER
from inferd.engine.loading.load import EXECUTION_PARAMETER
from inferd.engine.loading.scheduling import QUEUE_SIZE_PARAMETER, QUEUE_TIMEOUT_PARAMETER
from inferd.errors import FieldPath
from inferd.repository.tree import entries_of

SAID_PARAMETERS = (parameter_names.JOINED, parameter_names.JOINING_REASON)
"""The parameters that the server adds to a configuration in force, and does not read."""

KNOWN_PARAMETERS = {
    *(text for name, text in vars(parameter_names).items() if name.isupper()),
    EXECUTION_PARAMETER,
    JOIN_PARAMETER,
    QUEUE_SIZE_PARAMETER,
    QUEUE_TIMEOUT_PARAMETER,
    # Those of backends, which nobody above them may import.
    "inferd_allow_pickle",
    "inferd_environment",
    "inferd_memory_limit_bytes",
    "inferd_mxnet_native",
    "inferd_python",
    "inferd_repeatable",
    "inferd_retry_lost_requests",
    "inferd_trusted_types",
}.difference(SAID_PARAMETERS)
"""The parameters of models whose names begin with inferd_."""

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
    for path in _idle_paths(config):
        yield Warned(f"{path[-1]} has no effect in inferd", path)
    if config.backend not in _GRAPHS:
        yield from _idle_graph_fields(config)


def _idle_paths(config: ModelConfig) -> Iterator[FieldPath]:
    usual = Optimization()
    # Fields that Triton passes to its C++ backends or to CUDA.
    for field in ("priority", "cuda", "gather_kernel_buffer_threshold", "eager_batching"):
        if getattr(config.optimization, field) != getattr(usual, field):
            yield "optimization", field
    for number, group in enumerate(config.instance_group):
        if group.secondary_devices:
            yield "instance_group", number, "secondary_devices"
    ensemble = config.ensemble_scheduling
    for number, step in enumerate(ensemble.step if ensemble is not None else ()):
        if step.model_namespace:
            yield "ensemble_scheduling", "step", number, "model_namespace"
    if config.cc_model_filenames:
        yield ("cc_model_filenames",)


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
            near = difflib.get_close_matches(name, sorted(KNOWN_PARAMETERS), n=1)
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


READ_BYTES_PER_S = 200_000_000
"""What is read of a disk over a network; local ones are quicker."""

_LONG_S = 60
_GIB = 1 << 30


def size_bytes(check: ModelCheck) -> int:
    """Return the size of the files of a model's versions that would be served."""
    model = check.model
    if model.file is not None:
        places = [model.file]
    else:
        places = [model.folder / str(version) for version in model.versions]
    # Without what Python and editors leave behind.
    return sum(one.size for place in places for one in entries_of(place))


def memory_bytes() -> int:
    """Return the memory of this machine, 0 if it cannot be told."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # AttributeError is Windows'
        return 0


def add_size_warnings(checks: Sequence[ModelCheck], memory: int) -> None:
    """Warn of models that need more than the `memory` there is, alone or together, or much time."""
    served = [check for check in checks if not check.is_refused]
    sizes = [size_bytes(check) for check in served]
    for check, size in zip(served, sizes, strict=True):
        if memory and size > memory:
            text = f"its files have {_gib(size)}, this machine has {_gib(memory)} of memory"
            check.add_warning(text, "memory", fix="serve it on a machine with more memory")
        elif size / READ_BYTES_PER_S >= _LONG_S:
            text = (
                f"its files have {_gib(size)}: reading them takes about "
                f"{size / READ_BYTES_PER_S:.0f} s at {READ_BYTES_PER_S / 1e6:.0f} MB/s"
            )
            check.add_warning(text, "memory", fix="let probes of its start wait longer than that")
    total = sum(sizes)
    # One that is too large alone has its own warning.
    if memory and total > memory and max(sizes) <= memory:
        text = (
            f"the files of all models have {_gib(total)}, this machine has {_gib(memory)} of memory"
        )
        fix = "load only some: --model-control-mode=explicit"
        # The largest model, since a finding has to be about one.
        served[sizes.index(max(sizes))].add_warning(text, "memory", fix=fix)


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
