"""OnnxInstance: runs requests in one ONNX Runtime session, with as few copies as possible."""

import ctypes
import re
from collections.abc import Callable, Sequence
from math import prod
from time import perf_counter_ns
from typing import Any

import numpy as np

from inferd.backends.onnx.bound import Bindings, Bound, run_bound
from inferd.backends.onnx.places import Places
from inferd.backends.onnx.settings import onnxruntime, run_options
from inferd.backends.onnx.signature import Loaded
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.request import InferRequest, InferResponse
from inferd.core.signature import Signature
from inferd.core.traits import InstanceTraits
from inferd.errors import BackendFailed, InferdError, InvalidConfig, InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor, reshaped

Run = Callable[[list[str], dict[str, Array], Any], Sequence[Array]]

_ONNX_BFLOAT16 = 16  # TensorProto.DataType.BFLOAT16

_array = np.ndarray  # an attribute of the numpy module is slow to look up: some are made lazily

# ONNX Runtime's error code before every text, and places in its source.
_NOISE = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : |\S*/onnxruntime/core/\S+:\d+ "
    r'| resolved path: "[^"]*"( allowed directory: "[^"]*")?'
)

_UNKNOWN = "Unknown Category"
"""What OneHotEncoder says of a category that it has to refuse."""


class OnnxInstance:
    """One instance of a model version, over a session it may share with others.

    A session runs in any number of threads at once and holds all of its model's memory. So
    instances of one version on one device are handles on the same session: a second one costs
    nothing, and the number of instances limits the number of parallel executions.
    """

    __deletable__ = ("_bindings", "_places", "_run")  # in compiled code, others are not

    def __init__(self, loaded: Loaded, config: ModelConfig, version: int) -> None:
        signature = loaded.signature
        self.traits = InstanceTraits(
            is_bounded=loaded.is_bounded, verdict=loaded.verdict_for(config)
        )
        # Shared[Loaded] holds it weakly: the session lives as long as an instance refers to it.
        self._loaded: Loaded | None = loaded
        self._model = config.name
        self._version = str(version)
        outputs = (*config.output, *_scheduler_outputs(config, signature))
        # Also of a sequence's states, which no configuration lists as
        # outputs: the scheduler names them.
        self._datatypes = {output.name: output.datatype for output in outputs}
        self._output_names = [output.name for output in config.output]
        self.run_options = run_options(config, loaded.session)
        self._run = _runner(loaded.session, config)
        self._invalid, self._failed = failures()
        self._places = Places(loaded.session, config, self._invalid)
        self._bindings = Bindings(loaded.session, config)
        scalars = signature.scalars(config)
        self._readers = {t.name: _reader(t, is_scalar=t.name in scalars) for t in config.input}
        self._writers = {t.name: _writer(t, is_scalar=t.name in scalars) for t in outputs}
        tensors: tuple[ModelInput | ModelOutput, ...] = (*config.input, *outputs)
        # BYTES have to be decoded and reshapes computed. For all others the bytes of the wire,
        # little-endian and row-major (Open Inference Protocol, tensor data), are the array's own.
        self._is_plain = not scalars and all(
            tensor.datatype is not DataType.BYTES and tensor.reshape is None for tensor in tensors
        )

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute. Requests run one after another, each by itself."""
        if not self._is_plain:
            return [self._answer_any(request) for request in requests]
        if len(requests) == 1:
            return (self._answer_plain(requests[0]),)
        return [self._answer_plain(request) for request in requests]

    def array(self, tensor: Tensor) -> Array:
        """Return the array that the model takes for an input."""
        read = self._readers.get(tensor.name)
        return tensor.numpy() if read is None else read(tensor)

    def close(self) -> None:
        """Release the session; the last instance to do so frees it."""
        self._loaded = None
        del self._run, self._places, self._bindings

    def _answer_plain(self, request: InferRequest) -> InferResponse | InferdError:
        """Answer when every tensor's wire bytes are its array: the hot path."""
        batch_key = request.batch_key
        # Whoever has shared memory wants the outputs there; bound memory would add a copy.
        if batch_key is not None and request.spans is None:
            bound = self._bindings.take(batch_key)
            if bound is not None:
                answer = self._answer_bound(request, bound)
                if answer is not None:
                    self._bindings.give_back(batch_key, bound)
                    return answer
                # Mostly the output has another shape for other values. The binding is dropped
                # with its memory, whose content is now unknown, and the request runs again below.
                self._bindings.forbid(batch_key)
        names = self._output_names
        # RequestCheck has put them in the model's order, each once: as many as there are are all.
        if request.outputs and len(request.outputs) != len(names):
            names = [wanted.name for wanted in request.outputs]
        feed = {}
        for tensor in request.inputs:
            # A view without a copy; ONNX Runtime takes memory that is
            # read-only or not aligned, too.
            feed[tensor.name] = _array(tensor.shape, tensor.datatype.numpy, tensor.data)
        run = self._run
        if request.spans is not None:
            run = self._places.runner(request) or run
        request.computing_ns = perf_counter_ns()
        try:
            arrays = run(names, feed, self.run_options)
        except self._failed as error:
            return self._failure(error)
        request.computed_ns = perf_counter_ns()
        if batch_key is not None and request.spans is None:
            self._bindings.note_run(batch_key, request.inputs, names, arrays, self.run_options)
        return self._plain_response(request, names, arrays)

    def _answer_bound(self, request: InferRequest, bound: Bound) -> InferResponse | None:
        """Answer through bound memory; return None if that does not work for this request."""
        request.computing_ns = perf_counter_ns()
        try:
            given = bound.run(request.inputs, self.run_options)
        # Whether it is the client's fault is asked of the unbound run that follows.
        except self._failed:
            return None
        request.computed_ns = perf_counter_ns()
        datatypes, shapes = self._datatypes, bound.shapes
        outputs = []
        for index, name in enumerate(bound.names):  # zip() is slower
            outputs.append(Tensor(name, datatypes[name], shapes[index], given[index]))
        return InferResponse(request.model, self._version, request.id, outputs)

    def _plain_response(
        self, request: InferRequest, names: list[str], arrays: Sequence[Array]
    ) -> InferResponse:
        datatypes = self._datatypes
        outputs = []
        for index, name in enumerate(names):  # zip() is slower
            array = arrays[index]
            outputs.append(Tensor(name, datatypes[name], array.shape, array))
        return InferResponse(request.model, self._version, request.id, outputs)

    def _answer_any(self, request: InferRequest) -> InferResponse | InferdError:
        names = self._output_names
        if request.outputs:
            names = [wanted.name for wanted in request.outputs]
        try:
            # Control tensors are not in the configuration; they are read as they are.
            readers = self._readers
            feed = {t.name: readers.get(t.name, Tensor.numpy)(t) for t in request.inputs}
            request.computing_ns = perf_counter_ns()
            arrays = self._run(names, feed, self.run_options)
            request.computed_ns = perf_counter_ns()
            outputs = [
                self._writers[name](array) for name, array in zip(names, arrays, strict=True)
            ]
        except InferdError as error:
            return error
        except self._failed as error:
            return self._failure(error)
        return InferResponse(request.model, self._version, request.id, outputs)

    def _failure(self, error: Exception) -> InferdError:
        """Return the error for the client: its own fault, or the model's."""
        # OneHotEncoder fails with the code of an internal error for a value that is the client's.
        is_theirs = isinstance(error, self._invalid) or _UNKNOWN in str(error)
        kind = InvalidRequest if is_theirs else BackendFailed
        failure = kind(f"model '{self._model}': {error_text(error)}")
        failure.__cause__ = error
        return failure


def failures() -> tuple[type[Exception], tuple[type[Exception], ...]]:
    """Return ONNX Runtime's InvalidArgument, and all exceptions it raises on load or run."""
    state = onnxruntime().capi.onnxruntime_pybind11_state
    # All that the module has: each status code is a class of its own, derived from Exception,
    # with no common base, and releases have added some.
    own = tuple(
        kind
        for kind in vars(state).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    )
    # RuntimeError and ValueError come from its binding: an array or a text it cannot take.
    return state.InvalidArgument, (*own, RuntimeError, ValueError)


def error_text(error: Exception) -> str:
    """Return ONNX Runtime's error text in one line, without codes, source files and paths."""
    return " ".join(_NOISE.sub("", str(error)).split())


def _runner(session: Any, config: ModelConfig) -> Run:
    """Return the cheapest way to run `session`: (output names, feed, RunOptions) -> arrays.

    The public `run` repeats checks the engine has made (mainly of names) and costs half as much
    again as the private call below it; it is the fallback should that disappear. BF16 inputs and
    outputs are uint16 bit patterns. Raises InvalidConfig for BYTES inputs with BF16 outputs.
    """
    # 4.0 against 5.8 us of CPU for two inputs and outputs of 16 numbers.
    run: Run = getattr(getattr(session, "_sess", None), "run", session.run)
    brain = frozenset(t.name for t in config.input if t.datatype is DataType.BF16)
    if any(tensor.datatype is DataType.BF16 for tensor in config.output):
        if any(tensor.datatype is DataType.BYTES for tensor in config.input):
            msg = f"model '{config.name}': ONNX Runtime gives no BF16 outputs for BYTES inputs"
            raise InvalidConfig(msg)
        # Its arrays of text cannot be bound to memory, and only a binding gives BF16 back.
        return _bound_run(session, brain)
    if brain:
        wrap = onnxruntime().OrtValue.ortvalue_from_numpy_with_onnx_type
        return lambda names, feed, options: run(
            names,
            # NumPy has no BF16, so the array's dtype cannot tell it from UINT16: the value says so.
            feed | {name: wrap(feed[name], _ONNX_BFLOAT16) for name in feed if name in brain},
            options,
        )
    return run


def _bound_run(session: Any, brain: frozenset[str]) -> Run:
    """Return a Run for a model with BF16 outputs, which come as OrtValues and are copied."""
    wrap = onnxruntime().OrtValue.ortvalue_from_numpy_with_onnx_type

    def run(names: list[str], feed: dict[str, Array], options: Any) -> Sequence[Array]:
        binding = session.io_binding()
        for name, array in feed.items():
            if name in brain:
                binding.bind_ortvalue_input(name, wrap(array, _ONNX_BFLOAT16))
            else:
                binding.bind_cpu_input(name, array)
        for name in names:
            binding.bind_output(name)
        run_bound(session, binding, options)
        return [_array_of(value) for value in binding.get_outputs()]

    return run


def _array_of(value: Any) -> Array:
    if value.data_type() != "tensor(bfloat16)":
        array: Array = value.numpy()
        return array
    shape = value.shape()
    # numpy() of a BF16 value raises, as NumPy has no such dtype.
    bits = (ctypes.c_uint16 * prod(shape)).from_address(value.data_ptr())
    return np.array(bits, np.uint16).reshape(shape)  # copied: the memory dies with the value


def _scheduler_outputs(config: ModelConfig, signature: Signature) -> list[ModelOutput]:
    """Return the outputs of the file that are computed only if a request names them.

    A sequence scheduler requests its states this way; the configuration does not list them as
    outputs.
    """
    configured = {output.name for output in config.output}
    return [
        ModelOutput(declared.name, declared.datatype, declared.shape)
        for declared in signature.outputs.values()
        if declared.datatype is not None and declared.name not in configured
    ]


def _reader(tensor: ModelInput, *, is_scalar: bool) -> Callable[[Tensor], Array]:
    """Return a function from an input to the array that the model takes."""
    read = _read_text if tensor.datatype is DataType.BYTES else Tensor.numpy
    if is_scalar:
        return lambda given: read(given).reshape(())
    if tensor.reshape is None:
        return read
    dims, target = tensor.dims, tensor.reshape
    return lambda given: read(given).reshape(reshaped(given.shape, dims, target))


def _read_text(tensor: Tensor) -> Array:
    """Return the elements as an object array of str: ONNX strings are UTF-8 text.

    (ONNX Runtime would take the repr() of bytes objects.) Raises InvalidRequest.
    """
    # Objects, not a 'U' dtype, which pads all strings to the longest and drops trailing NULs.
    array = np.empty(prod(tensor.shape), dtype=object)
    for index, element in enumerate(tensor.strings()):
        try:
            # Strictly: ONNX Runtime's binding takes neither lone surrogates nor other bytes, and
            # a replaced character would be another value than the client's.
            array[index] = element.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(
                f"input '{tensor.name}': element {index} is not UTF-8 (at its byte {error.start}), "
                f"and an ONNX model takes nothing else"
            ) from None
    return array.reshape(tensor.shape)


def _writer(tensor: ModelOutput, *, is_scalar: bool) -> Callable[[Array], Tensor]:
    """Return a function from an array of the model to an output."""
    name, datatype, dims, target = tensor.name, tensor.datatype, tensor.dims, tensor.reshape
    is_declared = tensor.is_declared  # in a model that batches: only there a file needs a reshape

    def write(array: Array) -> Tensor:
        if target is not None and (not is_declared or array.ndim == 1 + len(target)):
            array = array.reshape(reshaped(array.shape, target, dims))
        elif is_scalar and not array.shape:
            array = array.reshape(dims)
        return Tensor.from_numpy(name, array, datatype)

    return write
