"""OpenvinoBackend: runs OpenVINO IR, and other formats that OpenVINO reads, on the CPU."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from inferd.backends.openvino.narrowed import Narrowed
from inferd.backends.openvino.saved_model import check_choice
from inferd.backends.openvino.shapes import Shapes
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.config.parameter import is_on, whole_number
from inferd.core.arrays import ArrayInstance, Run
from inferd.core.completing import CompletingBackend
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.shared import Pool, Shared, fingerprint
from inferd.core.signature import Declared, Signature, check_config
from inferd.errors import BackendFailed, InvalidRequest, Unsupported, foreign_text
from inferd.formats.protobuf import Malformed
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType

DATATYPES = {
    "boolean": DataType.BOOL, "u8": DataType.UINT8, "u16": DataType.UINT16, "u32": DataType.UINT32,
    "u64": DataType.UINT64, "i8": DataType.INT8, "i16": DataType.INT16, "i32": DataType.INT32,
    "i64": DataType.INT64, "f16": DataType.FP16, "f32": DataType.FP32, "f64": DataType.FP64,
    "bf16": DataType.BF16,
}  # fmt: skip
"""OpenVINO's element type name -> datatype. Strings are left out: few operations support them."""

_MOST = 1024  # streams, or threads

# Each stream has its own memory for intermediate results, however few requests there are.
MAX_STREAMS = 64


class OpenvinoBackend(CompletingBackend):
    """Runs any format OpenVINO can read. Instances of a version share the compiled model."""

    def __init__(self) -> None:
        import openvino  # heavy, so only when a model needs it

        super().__init__()
        self._openvino = openvino
        self._core = openvino.Core()
        self._loaded: Shared[CompiledOpenvino] = Shared(one_by_one=True)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete. The file is read, not compiled."""
        ports = Ports(self._read(files, config), config)
        return self._complete_checked(config, ports.signature)

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> ArrayInstance:
        """See Backend.open. Raises InvalidConfig, or BackendFailed if it cannot be compiled."""
        if placement.gpu:
            msg = f"model '{config.name}': backend 'openvino' runs models on the CPU only"
            raise Unsupported(msg)
        # The names that the configuration uses decide which of a port's names are served.
        key = _fingerprint(files), config.parameters, config.input, config.output
        loaded = self._loaded.get(key, partial(self._compile, files, config))
        check_config(config, loaded.ports.signature)
        scalars = loaded.ports.signature.scalars(config)
        return ArrayInstance(config, files.version, openvino_run(loaded, config), scalars=scalars)

    def _compile(self, files: ModelFiles, config: ModelConfig) -> "CompiledOpenvino":
        model = self._read(files, config)
        ports, shapes = Ports(model, config), Shapes(model)
        narrowed = Narrowed(model, ports.inputs)
        properties = settings(config, is_safe=shapes.is_safe)
        try:
            compiled = self._core.compile_model(model, "CPU", properties)
        except RuntimeError as error:
            raise _failure(config, "compile it", error) from error
        return CompiledOpenvino(self._openvino, compiled, ports, shapes, narrowed)

    def _read(self, files: ModelFiles, config: ModelConfig) -> Any:
        try:
            check_choice(files.file, config)
            return self._core.read_model(str(files.file))
        except (RuntimeError, UnicodeDecodeError, Malformed) as error:
            # Its text repeats the file's bytes.
            raise _failure(config, "read it", error) from error


class Ports:
    """Inputs and outputs of a model in OpenVINO's order, under the names the protocol uses.

    A port may have several names. One that the configuration uses is preferred, then one that is
    not a tensor name of the framework the model came from (`name:0`): that of its node if it has
    one, as an input that is also an output has the names of both, else the shortest.
    """

    def __init__(self, model: Any, config: ModelConfig) -> None:
        self.inputs = [_name(port, config.input) for port in model.inputs]
        self.outputs = [_name(port, config.output) for port in model.outputs]
        self.signature = Signature(
            _declared(self.inputs, model.inputs), {}, _declared(self.outputs, model.outputs)
        )


class CompiledOpenvino:
    """A compiled model, and a pool of infer requests shared by threads."""

    def __init__(
        self, openvino: Any, compiled: Any, ports: Ports, shapes: Shapes, narrowed: Narrowed
    ) -> None:
        self.openvino = openvino
        self.ports = ports
        self.shapes = shapes
        self.narrowed = narrowed
        self.pool: Pool[PooledRequest] = Pool(
            lambda: PooledRequest(compiled.create_infer_request(), len(ports.inputs))
        )


def settings(config: ModelConfig, *, is_safe: bool) -> dict[str, Any]:
    """Return the options of the CPU plug-in. Raises InvalidConfig for an invalid value.

    One thread per execution, as requests already run in parallel, and float32 where the model has
    float32: by default OpenVINO would use bfloat16 on CPUs that support it.

    With one thread in total, a request runs in the calling thread, which saves two thread
    switches, half the time of a small model. But OpenVINO 2026.4 then drops the error of a run,
    and returns the outputs of the previous request. So this is only for a single instance of a
    model whose runs cannot fail (`is_safe`); others get at least two threads.
    """
    count = max(1, sum(group.count for group in config.instance_group))
    hint = config.parameters.get("PERFORMANCE_HINT")
    least = 1 if is_safe and count == 1 and not hint else 2
    streams = whole_number(config, "NUM_STREAMS", min(max(least, count), MAX_STREAMS), 1, _MOST)
    # At least 2, whatever is configured: with 1 in total errors would be lost, see above.
    threads = whole_number(config, "INFERENCE_NUM_THREADS", max(least, streams), 2, _MOST)
    return {
        "INFERENCE_PRECISION_HINT": "bf16" if is_on(config, "HINT_BF16") else "f32",
        "NUM_STREAMS": streams,
        "INFERENCE_NUM_THREADS": threads,
        **({"PERFORMANCE_HINT": hint} if hint else {}),
    }


class PooledRequest:
    """An infer request, and views of its input memory, which is reused while shapes match."""

    def __init__(self, request: Any, count: int) -> None:
        self.request = request
        self.has_state = bool(request.query_state())
        self.views: list[Array | None] = [None] * count

    def put(self, openvino: Any, number: int, array: Array, *, is_bits: bool) -> None:
        """Make a tensor of `array` the input of that number; `is_bits`: it is BF16."""
        if is_bits:
            # Copied, and kept in views: the tensor only borrows this memory.
            view = np.array(array)
            tensor = openvino.Tensor(view, list(view.shape), openvino.Type.bf16)
        else:  # copied, as OpenVINO accepts only writable memory
            tensor = openvino.Tensor(array, shared_memory=False)
            view = tensor.data
        self.request.set_input_tensor(number, tensor)
        self.views[number] = view


def openvino_run(loaded: CompiledOpenvino, config: ModelConfig) -> Run:
    """Return the function that runs one request."""
    openvino, ports, pool, shapes = loaded.openvino, loaded.ports, loaded.pool, loaded.shapes
    narrowed = loaded.narrowed
    inputs = list(enumerate(ports.inputs))
    place_of = {name: number for number, name in enumerate(ports.outputs)}
    bits = frozenset(t.name for t in config.input if t.datatype is DataType.BF16)
    dtypes = {t.name: t.datatype.numpy for t in config.output}
    infer = outputs_by(openvino)

    def run(feed: dict[str, Array], names: Sequence[str]) -> Sequence[Array]:
        narrowed.check(feed)
        pooled = pool.take()  # not given back on failure
        views = pooled.views
        try:
            for number, name in inputs:
                view = views[number]
                if view is None or view.shape != feed[name].shape:
                    shapes.check(tuple([feed[name].shape for _, name in inputs]))
                    break
            for number, name in inputs:
                array, view = feed[name], views[number]
                # Into the memory that the request already has: a new tensor
                # costs an allocation each time.
                if view is not None and view.shape == array.shape:
                    view[...] = array
                else:
                    pooled.put(openvino, number, array, is_bits=name in bits)
            if pooled.has_state:
                pooled.request.reset_state()  # what an earlier request has left is another client's
            given = infer(pooled.request)
        except RuntimeError as error:
            raise _failure(config, "run it", error) from error
        pool.give(pooled)
        return [_viewed(given[place_of[name]], dtypes[name]) for name in names]

    return run


def outputs_by(openvino: Any) -> Callable[[Any], list[Array]]:
    """Return a function that runs a request and copies its outputs, which the next overwrites.

    The public method builds its own dictionary of all outputs, and costs twice as much as the
    private one beneath, which is used if it exists and accepts these arguments.
    """
    beneath = getattr(getattr(openvino, "_pyopenvino", None), "InferRequest", None)
    raw = getattr(beneath, "infer", None)

    def infer(request: Any) -> list[Array]:
        if raw is not None:
            # The private method's arguments differ between releases.
            with suppress(TypeError):
                return list(raw(request, {}, False, False).values())
        return [np.array(one) for one in request.infer().values()]

    return infer


def _viewed(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return `array` as `dtype` if OpenVINO returns the same bytes as another type."""
    # BF16 comes as float16, of which the bits are meant, and booleans as uint8.
    if array.dtype != dtype and array.dtype.itemsize == dtype.itemsize and dtype.kind in "ub":
        return array.view(dtype)
    return array


def _name(port: Any, given: Sequence[ModelInput | ModelOutput]) -> str:
    own = str(port.get_node().get_friendly_name())
    names: list[str] = sorted(
        port.get_names(), key=lambda name: (":" in name, name != own, len(name), name)
    )
    wanted = {tensor.name for tensor in given}
    for name in names:
        for alias in (name, name.removesuffix(":0")):
            if alias in wanted:
                return alias
    return names[0].removesuffix(":0") if names else own


def _declared(names: Sequence[str], ports: Sequence[Any]) -> dict[str, Declared]:
    declared = {}
    for name, port in zip(names, ports, strict=True):
        shape = port.get_partial_shape()
        dims = () if shape.rank.is_dynamic else tuple(_dim(dim) for dim in shape)
        kind = port.get_element_type().get_type_name()
        declared[name] = Declared(
            name, kind, dims, DATATYPES.get(kind), is_unranked=shape.rank.is_dynamic
        )
    return declared


def _dim(dim: Any) -> int:
    return -1 if dim.is_dynamic else int(dim.get_length())


def _fingerprint(files: ModelFiles) -> list[tuple[str, int, int]]:
    """Return name, mtime and size of all files that may belong to the model, such as weights."""
    folder = files.file if files.file.is_dir() else files.file.parent
    return fingerprint(one for one in sorted(folder.rglob("*")) if one.is_file())


def _failure(config: ModelConfig, doing: str, error: BaseException) -> Exception:
    """Return the error for the client; the last line of OpenVINO's text says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = foreign_text(RuntimeError(lines[-1] if lines else "")).removeprefix("RuntimeError: ")
    # OpenVINO has one class of exceptions; that it is the client's fault shows in its words only.
    is_fault = doing == "run it" and any(word in text for word in ("shape", "dimension"))
    kind = InvalidRequest if is_fault else BackendFailed
    return kind(f"model '{config.name}': OpenVINO cannot {doing}: {text}")
