"""Settings: which of a model's are tried, with which values, and the configuration they make.

A space has all candidates that these values make.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from inferd.config.model import Accelerator, DynamicBatching, InstanceGroup, ModelConfig
from inferd.config.parameter_names import JOINED
from inferd.config.parameter_names import PROCESS as PROCESS_PARAMETER
from inferd.errors import Unsupported

INSTANCES = "instances"
THREADS = "threads"
BATCH = "batch"
DELAY = "delay_us"
PROCESS = "process"
PROVIDER = "provider"

Value = int | str


class Knob(NamedTuple):
    """A setting and its values: numbers from small to large, or words in any order."""

    name: str
    values: tuple[Value, ...]

    @property
    def is_ordered(self) -> bool:
        """Tell whether neighbours among the values are alike."""
        return all(isinstance(one, int) for one in self.values)


class Space:
    """All candidates: one value for each knob, as a tuple in the order of the `knobs`.

    Settings that say the same are one candidate: without batches there is no delay.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self.knobs = tuple(knobs)
        names = [knob.name for knob in knobs]
        self._batch = names.index(BATCH) if BATCH in names else -1
        self._delay = names.index(DELAY) if DELAY in names else -1
        combinations = itertools.product(*(knob.values for knob in knobs))
        self.candidates = [one for one in combinations if one == self.canonical(one)]

    def canonical(self, candidate: tuple[Value, ...]) -> tuple[Value, ...]:
        """Return the candidate that says the same."""
        # A knob that is missing has the position -1.
        if min(self._batch, self._delay) < 0 or candidate[self._batch] != 1:
            return candidate
        first = self.knobs[self._delay].values[0]
        # Without batches nothing waits, so all delays are the same candidate.
        return (*candidate[: self._delay], first, *candidate[self._delay + 1 :])

    def named(self, candidate: tuple[Value, ...]) -> dict[str, Value]:
        """Return the values of a candidate by the names of their knobs."""
        return {knob.name: value for knob, value in zip(self.knobs, candidate, strict=True)}

    def positions(self) -> Iterator[list[float]]:
        """Yield, for each candidate, where each of its values stands among those of its knob."""
        for candidate in self.candidates:
            yield [
                float(knob.values.index(value))
                for knob, value in zip(self.knobs, candidate, strict=True)
            ]


THREADS_PARAMETERS = {
    "onnxruntime": "intra_op_thread_count",
    "caffe2": "intra_op_thread_count",
    "pytorch": "INTRA_OP_THREAD_COUNT",
    "tensorflow": "TF_NUM_INTRA_THREADS",
    "litert": "num_threads",
    "sklearn": "num_threads",
    "xgboost": "num_threads",
    "lightgbm": "num_threads",
    "catboost": "num_threads",
}
"""The parameter for the threads of one execution, by backend."""

IN_SERVER = ("onnxruntime", "caffe2", "fil")
MAY_WAIT = ("python",)
"""Their models may wait for something else than a core, so more of them may pay."""
IN_WORKERS = ("pytorch", "tensorflow", "litert", "sklearn", "xgboost", "lightgbm", "catboost")

DEFAULT_PROVIDER = "default"
MOST_BATCH = 64
DELAYS_US = (0, 500, 2000)


def knobs(
    config: ModelConfig, file: ModelConfig, cores: int, providers: Sequence[str]
) -> list[Knob]:
    """Return what is tried of a model: `config` is in force for it, and `file` is as written.

    `providers` are the accelerators that its backend has here. Raises Unsupported for models that
    have no settings of their own, or several groups of instances.
    """
    if config.ensemble_scheduling is not None:
        msg = f"model '{config.name}' is an ensemble: its steps are models that can be tuned"
        raise Unsupported(msg)
    if len(config.instance_group) > 1:
        msg = f"model '{config.name}' has several groups of instances, which are not tuned"
        raise Unsupported(msg)
    waits = config.backend in MAY_WAIT
    found = [Knob(INSTANCES, _finer(4 * cores) if waits else _doubling(1, 2 * cores))]
    if config.backend in THREADS_PARAMETERS:
        found.append(Knob(THREADS, _doubling(1, cores)))
    if may_batch(config):
        is_declared = file.max_batch_size > 0
        most = config.max_batch_size if is_declared else max(config.max_batch_size, MOST_BATCH)
        found.append(Knob(BATCH, (1, *_doubling(4, most - 1), most)))
        found.append(Knob(DELAY, DELAYS_US))
    if config.backend in IN_SERVER:
        found.append(Knob(PROCESS, ("server", "worker")))
    elif config.backend in IN_WORKERS:
        found.append(Knob(PROCESS, ("worker", "server")))
    if providers:
        found.append(Knob(PROVIDER, (DEFAULT_PROVIDER, *providers)))
    return found


def may_batch(config: ModelConfig) -> bool:
    """Tell whether larger batches change no answer, as the server says or the file asks for.

    Numbers for dynamic_batching, which are tried, have the server join requests without a proof.
    """
    is_joined = config.parameters.get(JOINED) == "joined"
    return config.max_batch_size > 1 and is_joined and not config.decoupled


def _doubling(first: int, most: int) -> tuple[int, ...]:
    found = []
    while first <= most:
        found.append(first)
        first *= 2
    return tuple(found)


def _finer(most: int) -> tuple[int, ...]:
    """Return 1, 2, 3, 4, 6, 8, 12, ... up to `most`."""
    return tuple(sorted({*_doubling(1, most), *_doubling(3, most)}))


def start(found: Sequence[Knob], config: ModelConfig) -> tuple[Value, ...]:
    """Return the values that are nearest to those in force."""
    batching = config.dynamic_batching
    [group] = config.instance_group or (InstanceGroup(count=1),)
    now: dict[str, Value] = {
        INSTANCES: group.count,
        THREADS: int(config.parameters.get(THREADS_PARAMETERS.get(config.backend, ""), "") or 1),
        BATCH: config.max_batch_size if batching else 1,
        DELAY: batching.max_queue_delay_microseconds if batching else 0,
    }
    if batching and batching.preferred_batch_size:
        now[BATCH] = max(batching.preferred_batch_size)
    if process := config.parameters.get(PROCESS_PARAMETER):
        now[PROCESS] = process
    return tuple(_nearest(knob, now.get(knob.name, knob.values[0])) for knob in found)


def _nearest(knob: Knob, value: Value) -> Value:
    if isinstance(value, int):
        numbers = [one for one in knob.values if isinstance(one, int)]
        return min(numbers, key=lambda one: abs(one - value))
    return value if value in knob.values else knob.values[0]


def configured(file: ModelConfig, config: ModelConfig, values: Mapping[str, Value]) -> ModelConfig:
    """Return the configuration in the `file` with these values; `config` is the one in force."""
    parameters = dict(file.parameters)
    if THREADS in values:
        parameters[THREADS_PARAMETERS[config.backend]] = str(values[THREADS])
    if PROCESS in values:
        parameters[PROCESS_PARAMETER] = str(values[PROCESS])
    [group] = config.instance_group or (InstanceGroup(),)
    count = int(values[INSTANCES])
    found = replace(
        file,
        parameters=parameters,
        # The name was filled in; a file that had none keeps none.
        instance_group=(replace(group, name="", count=count),),
        max_batch_size=config.max_batch_size,
    )
    if BATCH in values:
        found = _batching(found, config, int(values[BATCH]), int(values.get(DELAY, 0)))
    provider = values.get(PROVIDER, DEFAULT_PROVIDER)
    if provider != DEFAULT_PROVIDER:
        field = "gpu" if group.kind == "KIND_GPU" else "cpu"
        accelerators = {f"{field}_execution_accelerator": (Accelerator(str(provider)),)}
        found = replace(found, optimization=replace(found.optimization, **accelerators))  # type: ignore[arg-type]
    return found


def _batching(file: ModelConfig, config: ModelConfig, size: int, delay_us: int) -> ModelConfig:
    """Return `file` with batches of up to `size`; what clients may send is never made smaller."""
    most = max(config.max_batch_size, size)
    if size == 1:
        return replace(file, max_batch_size=most, dynamic_batching=None)
    batching = replace(
        file.dynamic_batching or DynamicBatching(),
        max_queue_delay_microseconds=delay_us,
        preferred_batch_size=(size,) if size < most else (),
        # Numbers that were tried are meant: the server must not replace them by its own.
        is_filled=False,
        is_adaptive=False,
    )
    return replace(file, max_batch_size=most, dynamic_batching=batching)
