"""OnnxInstance: requests through one ONNX Runtime session, with no copy that can be spared."""

import ctypes
import re
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from inferd.backends.onnx.settings import onnxruntime, run_options
from inferd.backends.onnx.signature import Signature, read_signature
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import BackendFailed, InferdError, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor, reshaped

Array = np.ndarray[Any, Any]
Run = Callable[[list[str], dict[str, Array], Any], Sequence[Array]]

_ONNX_BFLOAT16 = 16  # TensorProto.DataType.BFLOAT16

# Its code, put before every text, and where in its source it noticed.
_NOISE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : |\S*/onnxruntime/core/\S+:\d+ ")


class Loaded:
    """A session and its signature, alive as long as an instance, or a coming one, needs it."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.signature: Signature = read_signature(session)


class OnnxInstance:
    """One instance of a model version, over a session it may share with others.

    A session runs in any number of threads at once and holds all of its model's memory, so
    instances of one version on one device are handles on the same session: a second one costs
    nothing, and the number of instances is the number of executions that may run side by side.
    """

    bounded = True

    def __init__(self, loaded: Loaded, config: ModelConfig, version: int) -> None:
        signature = loaded.signature
        self._loaded: Loaded | None = loaded
        self._model = config.name
        self._version = str(version)
        self._datatypes = {output.name: output.datatype for output in config.output}
        self._output_names = list(self._datatypes)
        self._run_options = run_options(config)
        self._run = _runner(loaded.session, signature)
        self._invalid, self._failed = failures()
        scalars = _scalars(config, signature)
        self._readers = {t.name: _reader(t, is_scalar=t.name in scalars) for t in config.input}
        self._writers = {t.name: _writer(t, is_scalar=t.name in scalars) for t in config.output}
        tensors: tuple[ModelInput | ModelOutput, ...] = (*config.input, *config.output)
        is_plain = not scalars and all(
            tensor.datatype is not DataType.BYTES and tensor.reshape is None for tensor in tensors
        )
        self._answer = self._answer_plain if is_plain else self._answer_any

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute. Requests run one after another, each by itself."""
        return [self._answer(request) for request in requests]

    def close(self) -> None:
        """Let go of the session; the last instance that does so frees it."""
        self._loaded = None
        del self._run, self._answer

    def _answer_plain(self, request: InferRequest) -> InferResponse | InferdError:
        """Answer when every tensor's wire bytes are its array: this is the hot path."""
        names = self._output_names
        if 0 < len(request.outputs) < len(names):
            names = [wanted.name for wanted in request.outputs]
        try:
            arrays = self._run(
                names,
                {t.name: np.ndarray(t.shape, t.datatype.numpy, t.data) for t in request.inputs},
                self._run_options,
            )
        except self._failed as error:
            return self._failure(error)
        datatypes = self._datatypes
        outputs = [
            Tensor(name, datatypes[name], array.shape, array)
            for name, array in zip(names, arrays, strict=True)
        ]
        return InferResponse(request.model, self._version, request.id, outputs)

    def _answer_any(self, request: InferRequest) -> InferResponse | InferdError:
        names = self._output_names
        if request.outputs:
            names = [wanted.name for wanted in request.outputs]
        try:
            feed = {tensor.name: self._readers[tensor.name](tensor) for tensor in request.inputs}
            arrays = self._run(names, feed, self._run_options)
            outputs = [
                self._writers[name](array) for name, array in zip(names, arrays, strict=True)
            ]
        except InferdError as error:
            return error
        except self._failed as error:
            return self._failure(error)
        return InferResponse(request.model, self._version, request.id, outputs)

    def _failure(self, error: Exception) -> InferdError:
        """Return what the client is told of `error`: its own fault, or the model's."""
        kind = InvalidRequest if isinstance(error, self._invalid) else BackendFailed
        failure = kind(f"model '{self._model}': {error_text(error)}")
        failure.__cause__ = error
        return failure


def failures() -> tuple[type[Exception], tuple[type[Exception], ...]]:
    """Return ONNX Runtime's InvalidArgument, and all it raises when it loads or runs a model."""
    state = onnxruntime().capi.onnxruntime_pybind11_state
    own = tuple(
        kind
        for kind in vars(state).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    )
    # RuntimeError and ValueError come from its binding: an array or a text it cannot take.
    return state.InvalidArgument, (*own, RuntimeError, ValueError)


def error_text(error: Exception) -> str:
    """Return ONNX Runtime's words in one line, without its codes and source files."""
    return " ".join(_NOISE.sub("", str(error)).split())


def _runner(session: Any, signature: Signature) -> Run:
    """Return the cheapest way to run `session`: (output names, feed, RunOptions) -> arrays.

    The public `run` repeats checks the engine has made (names, above all) and costs half as much
    again as the call below it; it is the fallback, should that one ever go.
    """
    tensors = (*signature.inputs.values(), *signature.defaulted.values())
    if any(t.datatype is DataType.BF16 for t in (*tensors, *signature.outputs.values())):
        brain = frozenset(t.name for t in tensors if t.datatype is DataType.BF16)
        return _ValueRun(session, brain).run
    run: Run = getattr(getattr(session, "_sess", None), "run", session.run)
    return run


class _ValueRun:
    """Runs by OrtValue, for models with BF16: arrays cannot say it, a value can.

    BF16 goes in and comes out as uint16 bit patterns. The outputs are copied.
    """

    def __init__(self, session: Any, brain_inputs: frozenset[str]) -> None:
        self._session = session
        self._brain_inputs = brain_inputs
        self._value = onnxruntime().OrtValue

    def run(self, names: list[str], feed: dict[str, Array], options: Any) -> list[Array]:
        """Run with `feed`, and return the arrays of the outputs called `names`."""
        values = {name: self._value_of(name, array) for name, array in feed.items()}
        outputs = self._session.run_with_ort_values(names, values, options)
        return [_array_of(value) for value in outputs]

    def _value_of(self, name: str, array: Array) -> Any:
        if name in self._brain_inputs:
            return self._value.ortvalue_from_numpy_with_onnx_type(array, _ONNX_BFLOAT16)
        return self._value.ortvalue_from_numpy(array)


def _array_of(value: Any) -> Array:
    if value.data_type() != "tensor(bfloat16)":
        array: Array = value.numpy()
        return array
    shape = value.shape()
    bits = (ctypes.c_uint16 * prod(shape)).from_address(value.data_ptr())
    return np.array(bits, np.uint16).reshape(shape)  # the value's memory goes with the value


def _scalars(config: ModelConfig, signature: Signature) -> frozenset[str]:
    """Return the tensors that have no dims in the file and dims [1] in the configuration.

    That is how a configuration says scalar. Where the file leaves the rank open it shows no dims
    either; then `reshape { shape: [1] }` keeps the one dim.
    """
    if config.max_batch_size > 0:
        return frozenset()
    declared = signature.inputs | signature.defaulted | signature.outputs
    tensors: tuple[ModelInput | ModelOutput, ...] = (*config.input, *config.output)
    return frozenset(
        tensor.name
        for tensor in tensors
        if tensor.dims == (1,) and tensor.reshape is None and not declared[tensor.name].shape
    )


def _reader(tensor: ModelInput, *, is_scalar: bool) -> Callable[[Tensor], Array]:
    """Return how an input becomes the array the model takes."""
    read = _read_text if tensor.datatype is DataType.BYTES else Tensor.numpy
    if is_scalar:
        return lambda given: read(given).reshape(())
    if tensor.reshape is None:
        return read
    dims, target = tensor.dims, tensor.reshape
    return lambda given: read(given).reshape(reshaped(given.shape, dims, target))


def _read_text(tensor: Tensor) -> Array:
    """Return the elements as an object array of str: ONNX has text only, and only UTF-8.

    (Of bytes objects ONNX Runtime would take what repr() says.) Raises InvalidRequest.
    """
    array = np.empty(prod(tensor.shape), dtype=object)
    for index, element in enumerate(tensor.strings()):
        try:
            array[index] = element.decode()
        except UnicodeDecodeError as error:
            msg = (
                f"input '{tensor.name}': element {index} is not UTF-8 (at its byte {error.start}), "
                f"and an ONNX model takes nothing else"
            )
            raise InvalidRequest(msg) from None
    return array.reshape(tensor.shape)


def _writer(tensor: ModelOutput, *, is_scalar: bool) -> Callable[[Array], Tensor]:
    """Return how an array the model gave becomes an output."""
    name, datatype, dims, target = tensor.name, tensor.datatype, tensor.dims, tensor.reshape

    def write(array: Array) -> Tensor:
        if target is not None:
            array = array.reshape(reshaped(array.shape, target, dims))
        elif is_scalar and not array.shape:
            array = array.reshape(dims)
        return Tensor.from_numpy(name, array, datatype)

    return write
