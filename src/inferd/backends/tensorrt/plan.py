"""TensorrtPlan: an engine that TensorRT has read from a file, and the metadata of its tensors.

PlanRun is one instance of a plan: its context, stream and memory; one request at a time.
"""

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from inferd.backends.tensorrt.device import Device
from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on
from inferd.config.parameter_names import ALLOW_NATIVE
from inferd.core.signature import Declared, Signature
from inferd.errors import BackendFailed, InvalidConfig, InvalidRequest, Unsupported, foreign_text
from inferd.tensor.array import Array
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
        raise InvalidRequest(f"the plan was built for {known}; the request has {sent}")

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
    # neither, hence the ignores here and below.
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


# What cudaMalloc promises; a little more room lets sizes that differ slightly share memory.
_ALIGNMENT = 256


class PlanRun:
    """Runs requests on one stream. Memory grows to the largest request and is kept."""

    def __init__(self, plan: TensorrtPlan, device: Device, config: ModelConfig) -> None:
        self._plan = plan
        self._device = device
        self._config = config
        self._dtypes = {
            name: declared.datatype.numpy
            for name, declared in plan.signature.outputs.items()
            if declared.datatype is not None
        }
        self._memory: dict[str, tuple[int, int]] = {}  # tensor -> address and size on the GPU
        self._pinned: dict[str, tuple[int, int]] = {}
        with device.current():
            self._stream = device.stream()
            self._context = plan.engine.create_execution_context()
            if self._context is None:
                device.close_stream(self._stream)
                raise failure(config, plan.log, None)
        self._profile = 0
        # Kept here, since TensorRT holds only a plain pointer to an allocator.
        self._allocators: dict[str, Any] = {}

    def run(self, feed: dict[str, Array], names: Sequence[str]) -> Sequence[Array]:
        """See inferd.core.arrays.Run."""
        shapes = {name: array.shape for name, array in feed.items()}
        profile = self._plan.profile_for(shapes)
        with self._device.current():
            try:
                return self._run(profile, feed, names)
            except BaseException:
                with suppress(BackendFailed):  # work in progress still reads the memory
                    self._device.wait(self._stream)
                raise

    def _run(self, profile: int, feed: dict[str, Array], names: Sequence[str]) -> list[Array]:
        if profile != self._profile:
            done = self._context.set_optimization_profile_async(profile, self._stream)
            self._check(done, "a profile")
            self._profile = profile
        for name, array in feed.items():
            self._send(name, array)
        outputs = {name: self._place(name) for name in self._plan.outputs}
        self._check(self._context.execute_async_v3(self._stream), "an execution")
        return self._fetch(outputs, names)

    def close(self) -> None:
        """Free context, stream and memory, and release the GPU."""
        try:
            with self._device.current():
                self._device.wait(self._stream)
                # Before its memory is freed, and while the GPU is current: destroying it uses both.
                self._context = None
                for address, _ in self._memory.values():
                    self._device.free(address)
                for address, _ in self._pinned.values():
                    self._device.free_host(address)
                self._device.close_stream(self._stream)
        finally:
            self._device.close()

    def reserve(self, name: str, size_bytes: int) -> int:
        """Return GPU memory for tensor `name`, reusing its old memory if large enough."""
        address, has = self._memory.get(name, (0, -1))
        if has < size_bytes:
            if has >= 0:
                self._device.wait(self._stream)
                self._device.free(self._memory.pop(name)[0])
            size = -(-max(1, size_bytes) // _ALIGNMENT) * _ALIGNMENT
            address = self._device.allocate(size)
            self._memory[name] = address, size
        return address

    def _send(self, name: str, array: Array) -> None:
        self._check(self._context.set_input_shape(name, tuple(array.shape)), f"input '{name}'")
        address = self.reserve(name, array.nbytes)
        staging = self._staging(name, array.nbytes)
        source = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        if len(source):
            # By way of pinned memory: from other memory the driver
            # copies synchronously, page by page.
            np.copyto(_bytes_at(staging, array.nbytes), source)
            self._device.copy_in(address, staging, array.nbytes, self._stream)
        self._check(self._context.set_tensor_address(name, address), f"input '{name}'")

    def _staging(self, name: str, size_bytes: int) -> int:
        address, has = self._pinned.get(name, (0, -1))
        if has < size_bytes:
            if has >= 0:
                self._device.free_host(self._pinned.pop(name)[0])
            address = self._device.allocate_host(size_bytes)
            self._pinned[name] = address, size_bytes
        return address

    def _place(self, name: str) -> tuple[int, ...] | None:
        """Set an output's memory; return its shape, None if only the run determines it."""
        shape = tuple(int(dim) for dim in self._context.get_tensor_shape(name))
        if -1 in shape:
            if name not in self._allocators:
                self._allocators[name] = _allocator(self._plan.trt, self)
            allocator = self._allocators[name]
            self._check(self._context.set_output_allocator(name, allocator), f"output '{name}'")
            return None
        address = self.reserve(name, prod(shape) * self._dtypes[name].itemsize)
        self._check(self._context.set_tensor_address(name, address), f"output '{name}'")
        return shape

    def _fetch(
        self, outputs: dict[str, tuple[int, ...] | None], names: Sequence[str]
    ) -> list[Array]:
        if None in outputs.values():
            self._device.wait(self._stream)  # after that the shapes are known
        arrays = []
        for name in names:
            shape = outputs[name]
            array = np.empty(
                self._allocators[name].shapes[name] if shape is None else shape, self._dtypes[name]
            )
            if array.nbytes:
                source = self._memory[name][0]
                self._device.copy_out(array.ctypes.data, source, array.nbytes, self._stream)
            arrays.append(array)
        self._device.wait(self._stream)
        return arrays

    def _check(self, done: Any, what: str) -> None:
        if done is False:
            reason = failure(self._config, self._plan.log, None).message
            raise BackendFailed(f"{reason} (it refused {what})")


def _allocator(trt: Any, run: PlanRun) -> Any:
    class Allocator(trt.IOutputAllocator):  # type: ignore[misc]
        """Memory for outputs whose size is known only once they are computed."""

        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.shapes: dict[str, tuple[int, ...]] = {}

        def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
            del memory, alignment
            return run.reserve(name, size)

        def reallocate_output_async(
            self, name: str, memory: int, size: int, alignment: int, stream: int
        ) -> int:
            del stream
            return self.reallocate_output(name, memory, size, alignment)

        def notify_shape(self, name: str, shape: Any) -> None:
            self.shapes[name] = tuple(int(dim) for dim in shape)

    return Allocator()


def _bytes_at(address: int, size_bytes: int) -> Array:
    memory = (ctypes.c_uint8 * size_bytes).from_address(address)
    return np.ctypeslib.as_array(memory)
