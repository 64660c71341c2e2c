"""A GPU and a TensorRT of our own: memory is the CPU's, and a plan is a Python function.

They have what the backend uses of the real ones, and refuse what those refuse: addresses that were
not allocated, sizes that are too large, and calls outside of the GPU's context.
"""

import ctypes
from contextlib import contextmanager
from enum import Enum
from types import SimpleNamespace

import numpy as np
import pytest

from inferd.backends.tensorrt.backend import TensorrtBackend
from inferd.core.interfaces import ModelFiles
from inferd.errors import BackendFailed


class FakeDevice:
    """A GPU whose memory is the CPU's."""

    def __init__(self):
        self.memory = {}
        self.host = {}
        self.streams = set()
        self.waits = 0
        self.depth = 0
        self.is_closed = False
        self.is_full = False  # no context finds room
        self.is_lost = False  # as after a kernel's fault

    @contextmanager
    def current(self):
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def _into(self, where, size):
        assert self.depth, "no current GPU"
        block = ctypes.create_string_buffer(max(1, size))
        where[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def allocate(self, size_bytes):
        return self._into(self.memory, size_bytes)

    def allocate_host(self, size_bytes):
        return self._into(self.host, size_bytes)

    def free(self, address):
        del self.memory[address]

    def free_host(self, address):
        del self.host[address]

    def stream(self):
        self.streams.add(7)
        return 7

    def wait(self, stream):
        assert stream in self.streams
        if self.is_lost:
            raise BackendFailed("the GPU is lost")
        self.waits += 1

    def close_stream(self, stream):
        self.streams.remove(stream)

    def copy_in(self, to, host, size_bytes, stream):
        assert stream in self.streams and size_bytes <= len(self.memory[to])
        assert size_bytes <= len(self.host[host])
        ctypes.memmove(to, host, size_bytes)

    def copy_out(self, host, source, size_bytes, stream):
        assert stream in self.streams and size_bytes <= len(self.memory[source])
        ctypes.memmove(host, source, size_bytes)

    def close(self):
        self.is_closed = True


class Tensor(SimpleNamespace):
    """A tensor of a fake engine: shape, profiles [(min, opt, max)], dtype name, is_input."""


Mode = Enum("Mode", "INPUT OUTPUT")
Location = Enum("Location", "DEVICE HOST")
Format = Enum("Format", "LINEAR CHW32")
DTYPES = {"FLOAT": np.float32, "INT64": np.int64, "HALF": np.float16, "BOOL": np.bool_}


class FakeEngine:
    """An engine that computes outputs by `function(**inputs) -> dict of arrays`."""

    def __init__(self, tensors, function, device):
        self.tensors, self.function, self.device = tensors, function, device
        self.num_io_tensors = len(tensors)
        self.num_optimization_profiles = max(len(t.profiles) for t in tensors.values())

    def get_tensor_name(self, number):
        return list(self.tensors)[number]

    def get_tensor_mode(self, name):
        return Mode.INPUT if self.tensors[name].profiles else Mode.OUTPUT

    def get_tensor_location(self, name):
        return self.tensors[name].location

    def get_tensor_format(self, name):
        return self.tensors[name].format

    def get_tensor_dtype(self, name):
        return SimpleNamespace(name=self.tensors[name].dtype)

    def get_tensor_shape(self, name):
        return self.tensors[name].shape

    def get_tensor_profile_shape(self, name, profile):
        return self.tensors[name].profiles[profile]

    def create_execution_context(self):
        return None if self.device.is_full else FakeContext(self)


class FakeContext:
    """A context that notices what was not set, and computes when it is executed."""

    def __init__(self, engine):
        self.engine = engine
        self.profile = 0
        self.shapes, self.addresses, self.allocators = {}, {}, {}

    def set_optimization_profile_async(self, profile, stream):
        self.profile = profile
        return True

    def set_input_shape(self, name, shape):
        low, _, high = self.engine.tensors[name].profiles[self.profile]
        assert all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True))
        self.shapes[name] = shape
        return True

    def set_tensor_address(self, name, address):
        assert address in self.engine.device.memory
        self.addresses[name] = address
        return True

    def set_output_allocator(self, name, allocator):
        self.allocators[name] = allocator
        return True

    def _given(self):
        for name, shape in self.shapes.items():
            dtype = np.dtype(DTYPES[self.engine.tensors[name].dtype])
            size = dtype.itemsize * int(np.prod(shape))
            data = ctypes.string_at(self.addresses[name], size)
            yield name, np.frombuffer(data, dtype).reshape(shape)

    def get_tensor_shape(self, name):
        batch = next(iter(self.shapes.values()))[0]
        shape = self.engine.tensors[name].shape
        return (batch, *shape[1:]) if shape[0] == -1 else tuple(-1 if d < 0 else d for d in shape)

    def execute_async_v3(self, stream):
        if self.engine.function is None:
            return False
        for name, array in self.engine.function(**dict(self._given())).items():
            if name in self.allocators:
                allocator = self.allocators[name]
                address = allocator.reallocate_output_async(name, 0, array.nbytes, 256, stream)
                allocator.notify_shape(name, array.shape)
            else:
                address = self.addresses[name]
            assert array.nbytes <= len(self.engine.device.memory[address])
            ctypes.memmove(address, np.ascontiguousarray(array).ctypes.data, array.nbytes)
        return True


class Logger:
    """What TensorRT's loggers are made of."""

    Severity = Enum("Severity", "INTERNAL_ERROR ERROR WARNING")


def fake_tensorrt(engine):
    """Return a module whose runtime reads one plan."""

    class Runtime:
        def __init__(self, log):
            self.log = log
            self.engine_host_code_allowed = False

        def deserialize_cuda_engine(self, content):
            if content == b"a plan with code" and not self.engine_host_code_allowed:
                self.log.log(Logger.Severity.ERROR, "Host code is not allowed")
                return None
            if not content.startswith(b"a plan"):
                self.log.log(Logger.Severity.ERROR, "Magic tag does not match /opt/x/plan.cpp")
                return None
            return engine

    return SimpleNamespace(
        Runtime=Runtime,
        ILogger=Logger,
        IOutputAllocator=type("IOutputAllocator", (), {}),
        TensorIOMode=Mode,
        TensorLocation=Location,
        TensorFormat=Format,
    )


@pytest.fixture
def device():
    """The one GPU."""
    return FakeDevice()


@pytest.fixture
def make(tmp_path, device):
    """make(function, name=(shape, profiles, dtype), ...) returns backend and files of a plan."""

    def build(function, content=b"a plan", location=Location.DEVICE, **tensors):
        engine = FakeEngine(
            {
                name: Tensor(
                    shape=shape,
                    profiles=profiles,
                    dtype=dtype,
                    location=location,
                    format=Format.LINEAR,
                )
                for name, (shape, profiles, dtype) in tensors.items()
            },
            function,
            device,
        )
        (tmp_path / "1").mkdir(exist_ok=True)
        file = tmp_path / "1" / "model.plan"
        file.write_bytes(content)
        backend = TensorrtBackend(lambda number: device, lambda: fake_tensorrt(engine))
        return backend, ModelFiles(tmp_path, 1, tmp_path / "1", file)

    return build
