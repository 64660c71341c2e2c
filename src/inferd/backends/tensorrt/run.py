"""PlanRun: one instance of a plan: its context, stream and memory; one request at a time."""

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from inferd.backends.tensorrt.device import Device
from inferd.backends.tensorrt.plan import TensorrtPlan, failure
from inferd.config.model import ModelConfig
from inferd.errors import BackendFailed
from inferd.tensor.array import Array

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
            msg = f"{reason} (it refused {what})"
            raise BackendFailed(msg)


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
