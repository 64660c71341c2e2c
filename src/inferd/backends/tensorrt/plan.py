"""TensorrtPlan: an engine that TensorRT has read from a file, and the metadata of its tensors."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on
from inferd.config.parameter_names import ALLOW_NATIVE
from inferd.core.signature import Declared, Signature
from inferd.errors import BackendFailed, InvalidConfig, InvalidRequest, Unsupported, foreign_text
from inferd.tensor.dtype import DataType

DATATYPES = {
    "FLOAT": DataType.FP32, "HALF": DataType.FP16, "BF16": DataType.BF16, "INT8": DataType.INT8,
    "INT32": DataType.INT32, "INT64": DataType.INT64, "UINT8": DataType.UINT8,
    "BOOL": DataType.BOOL,
}  # fmt: skip
"""TensorRT's type name -> datatype."""

PACKAGES = ("tensorrt", "tensorrt_lean")
"""The full runtime, and the one that runs plans built to be version-compatible."""

_RTX_MAGIC = b"vtrt"

Shape = tuple[int, ...]


def tensorrt() -> ModuleType:
    """Return TensorRT, the full runtime or the lean one. Raises ModuleNotFoundError."""
    for package in PACKAGES:
        try:
            return import_module(package)
        except ImportError:  # missing, or without the libraries it needs
            continue
    raise ModuleNotFoundError(name=PACKAGES[0])


class TensorrtPlan:
    """An engine, its tensors, and the shapes its profiles allow. Raises Unsupported."""

    def __init__(self, trt: ModuleType, engine: Any, log: Any, config: ModelConfig) -> None:
        self.trt = trt
        self.engine = engine
        self.log = log
        names = [engine.get_tensor_name(number) for number in range(engine.num_io_tensors)]
        is_input = {name: engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT for name in names}
        self.inputs = [name for name in names if is_input[name]]
        self.outputs = [name for name in names if not is_input[name]]
        for name in names:
            if engine.get_tensor_location(name) != trt.TensorLocation.DEVICE:
                msg = f"model '{config.name}': '{name}' is a shape tensor, which is not supported"
                raise Unsupported(msg)
            if engine.get_tensor_format(name) != trt.TensorFormat.LINEAR:
                msg = f"model '{config.name}': '{name}' is not in linear layout, rebuild the plan"
                raise Unsupported(msg)
        self.signature = Signature(self._declared(self.inputs), {}, self._declared(self.outputs))
        self.profiles: list[dict[str, tuple[Shape, Shape]]] = [
            {name: self._limits(name, number) for name in self.inputs}
            for number in range(engine.num_optimization_profiles)
        ]

    @property
    def max_batch_size(self) -> int:
        """The largest first dim that some profile allows for every input."""
        firsts = [
            # A batch has to suit every input of one profile.
            min((high[0] for _, high in profile.values() if high), default=0)
            for profile in self.profiles
        ]
        return max(firsts, default=0)

    def profile_for(self, shapes: Mapping[str, Shape]) -> int:
        """Return the number of the first profile that allows `shapes`. Raises InvalidRequest."""
        for number, profile in enumerate(self.profiles):
            if all(_fits(shape, *profile[name]) for name, shape in shapes.items()):
                return number
        known = "; ".join(
            ", ".join(f"'{n}' {list(low)} to {list(high)}" for n, (low, high) in one.items())
            for one in self.profiles
        )
        sent = ", ".join(f"'{name}' {list(shape)}" for name, shape in shapes.items())
        msg = f"the plan was built for {known}; the request has {sent}"
        raise InvalidRequest(msg)

    def _declared(self, names: Sequence[str]) -> dict[str, Declared]:
        declared = {}
        for name in names:
            kind = str(getattr(self.engine.get_tensor_dtype(name), "name", ""))
            shape = tuple(int(dim) for dim in self.engine.get_tensor_shape(name))
            declared[name] = Declared(name, kind, shape, DATATYPES.get(kind))
        return declared

    def _limits(self, name: str, profile: int) -> tuple[Shape, Shape]:
        low, _, high = self.engine.get_tensor_profile_shape(name, profile)
        return tuple(int(dim) for dim in low), tuple(int(dim) for dim in high)


def load_plan(trt: ModuleType, file: Path, config: ModelConfig) -> TensorrtPlan:
    """Return the plan in `file`; its GPU must be current.

    Raises InvalidConfig for a TensorRT-RTX file, BackendFailed with TensorRT's reason, Unsupported
    for shape tensors and layouts other than linear.
    """
    content = file.read_bytes()
    if content.startswith(_RTX_MAGIC):
        msg = f"model '{config.name}': '{file.name}' was built by TensorRT-RTX, another product"
        raise InvalidConfig(msg)
    log = _log_of(trt)
    try:
        runtime = trt.Runtime(log)
        if is_on(config, ALLOW_NATIVE):  # such a plan has a lean runtime in it
            runtime.engine_host_code_allowed = True
        engine = runtime.deserialize_cuda_engine(content)
    except (RuntimeError, ValueError, TypeError) as error:
        raise failure(config, log, error) from error
    # TensorRT reports failures through its log alone, and returns None.
    if engine is None:
        raise failure(config, log, None)
    return TensorrtPlan(trt, engine, log, config)


def failure(config: ModelConfig, log: Any, error: BaseException | None) -> BackendFailed:
    """Return the error for a refusal by TensorRT, whose reasons are only in its log."""
    reason = log.last or (str(error) if error else "it gives no reason")
    reason_text = foreign_text(RuntimeError(reason)).removeprefix("RuntimeError: ")
    return BackendFailed(f"model '{config.name}': TensorRT: {reason_text}")


def _log_of(trt: ModuleType) -> object:
    # A class in a function, as its base exists only once TensorRT is imported: so mypy knows
    # neither, hence the ignores here and in run.py.
    class Log(trt.ILogger):  # type: ignore[misc, name-defined]
        """Keeps TensorRT's last error."""

        def __init__(self) -> None:
            # Explicitly: pybind11 refuses objects whose base was not
            # initialised, and super() may not reach it.
            trt.ILogger.__init__(self)
            self.last = ""

        def log(self, severity: Any, msg: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                self.last = msg

    return Log()


def _fits(shape: Shape, low: Shape, high: Shape) -> bool:
    return len(shape) == len(low) and all(
        least <= size <= most for size, least, most in zip(shape, low, high, strict=True)
    )
