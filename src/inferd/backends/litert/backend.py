"""LitertBackend: runs TensorFlow Lite files (.tflite) in LiteRT."""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from inferd.backends.litert.file import check_file
from inferd.config.model import ModelConfig
from inferd.config.parameter import whole_number
from inferd.core.arrays import ArrayInstance, Run
from inferd.core.completing import CompletingBackend
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.offline import OfflineReport
from inferd.core.shared import Pool
from inferd.core.signature import Declared, Signature, check_config
from inferd.errors import BackendFailed, InvalidConfig, InvalidRequest, foreign_text
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of

SERVING = "serving_default"


class LitertBackend(CompletingBackend):
    """Runs .tflite files. Each thread takes its own interpreter, over one mapping of the file."""

    @cached_property
    def _litert(self) -> Any:
        from ai_edge_litert import interpreter  # only when a model needs it

        return interpreter

    def read_offline(self, files: ModelFiles, config: ModelConfig) -> OfflineReport:
        """See OfflineBackend.read_offline: whether LiteRT may read the file at all."""
        what = f"model '{config.name}', '{files.file.name}'"
        check_file(files.file.read_bytes(), what)
        return OfflineReport(config, is_complete=bool(config.input and config.output))

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete."""
        return self._complete_checked(config, self._interpreter(files, config).signature)

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> ArrayInstance:
        """See Backend.open. Raises InvalidConfig, or BackendFailed if it cannot be loaded."""
        del placement  # LiteRT's Python package runs on the CPU
        first = self._interpreter(files, config)
        check_config(config, first.signature)
        pool = Pool(partial(self._interpreter, files, config))
        pool.give(first)
        scalars = first.signature.scalars(config)
        run = litert_run(pool, config)
        return ArrayInstance(config, files.version, run, scalars=scalars, close=pool.clear)

    def _interpreter(self, files: ModelFiles, config: ModelConfig) -> "Interpreter":
        what = f"model '{config.name}', '{files.file.name}'"
        check_file(files.file.read_bytes(), what)
        threads = whole_number(config, "num_threads", 1, 1, 1024)
        try:
            made = self._litert.Interpreter(model_path=str(files.file), num_threads=threads)
            made.allocate_tensors()
            return Interpreter(made, config, what)
        except (RuntimeError, ValueError) as error:
            raise _failure(config, "load it", error) from error


class Interpreter:
    """One interpreter, and the indices of its tensors by name.

    The names are those of the file's signature, or else of its tensors. `graph` is the number of
    the signature's graph.
    """

    def __init__(self, made: Any, config: ModelConfig, what: str) -> None:
        self.made = made
        self.shapes: dict[str, tuple[int, ...]] = {}  # to which inputs have been resized
        inputs, outputs, self.graph = _details(made, config, what)
        self.inputs = {name: int(detail["index"]) for name, detail in inputs.items()}
        self.outputs = {name: int(detail["index"]) for name, detail in outputs.items()}
        self.signature = Signature(_declared(inputs), {}, _declared(outputs))

    def resize(self, feed: dict[str, Array]) -> None:
        """Resize the inputs for `feed`. Raises RuntimeError or ValueError for impossible shapes.

        Raises InvalidRequest for empty tensors: some operators read elements regardless.
        """
        raw, graph = self.made._interpreter, self.graph
        for name, array in feed.items():
            if not array.size:
                shape = list(array.shape)
                msg = f"input '{name}' has no elements (shape {shape}), and LiteRT takes none such"
                raise InvalidRequest(msg)
        for name, array in feed.items():
            if self.shapes.get(name) != array.shape:
                dims = np.array(array.shape, np.int32)
                # False: not strictly, so that dims which the file gives as 1 may grow, as most
                # converters write the batch.
                raw.ResizeInputTensor(self.inputs[name], dims, False, graph)
                self.shapes[name] = array.shape
        raw.AllocateTensors(graph)


def litert_run(pool: Pool[Interpreter], config: ModelConfig) -> Run:
    """Return the function that runs one request."""
    texts = frozenset(t.name for t in config.output if t.datatype is DataType.BYTES)

    def run(feed: dict[str, Array], names: Sequence[str]) -> Sequence[Array]:
        interpreter = pool.take()  # not given back on failure
        inputs, outputs, shapes = interpreter.inputs, interpreter.outputs, interpreter.shapes
        try:
            for name, array in feed.items():
                if shapes.get(name) != array.shape:
                    interpreter.resize(feed)
                    break
            # These private calls skip the public wrappers, which check for views of the
            # interpreter's memory: there are none.
            raw, graph = interpreter.made._interpreter, interpreter.graph
            for name, array in feed.items():
                raw.SetTensor(inputs[name], array, graph)
            raw.Invoke(graph)
            arrays = [_output(raw, outputs[name], graph) for name in names]
        except (RuntimeError, ValueError) as error:
            raise _failure(config, "run it", error) from error
        pool.give(interpreter)
        if not texts:
            return arrays
        return [
            # LiteRT gives text as fixed-width bytes, of which Tensor.from_numpy takes objects only.
            array.astype(object) if name in texts else array
            for name, array in zip(names, arrays, strict=True)
        ]

    return run


def _output(raw: Any, index: int, graph: int) -> Array:
    """Return a copy of an output. Raises ValueError."""
    try:
        array: Array = raw.GetTensor(index, graph)
    except ValueError:
        # LiteRT gives out no tensor without elements, such as the places of what was not found.
        shape = raw.TensorSize(index, graph)
        if 0 not in shape:
            raise
        return np.empty(shape, raw.TensorType(index, graph))
    return array


def _details(
    made: Any, config: ModelConfig, what: str
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]], int]:
    """Return inputs and outputs by name, and the number of their graph."""
    known = list(made.get_signature_list())
    wanted = config.parameters.get("TF_SIGNATURE_DEF", "")
    if wanted and wanted not in known:
        msg = f"{what} has no signature '{wanted}'; it has {', '.join(known) or 'none'}"
        raise InvalidConfig(msg)
    if not known:
        return _by_name(made.get_input_details()), _by_name(made.get_output_details()), 0
    chosen = wanted or (SERVING if SERVING in known else known[0])
    runner = made.get_signature_runner(chosen)
    # A signature may be of another graph than the first, and every call has to name the graph.
    return runner.get_input_details(), runner.get_output_details(), int(runner._subgraph_index)


def _by_name(details: list[dict[str, object]]) -> dict[str, dict[str, object]]:
    # TensorFlow's converter keeps the names of tensors there, ":0"
    # being an operation's first output.
    return {str(detail["name"]).removesuffix(":0"): detail for detail in details}


def _declared(details: dict[str, dict[str, Any]]) -> dict[str, Declared]:
    declared = {}
    for name, detail in details.items():
        dims = detail["shape_signature"]
        # Files without variable dims have no shape_signature.
        shape = tuple(int(dim) for dim in (dims if len(dims) else detail["shape"]))
        dtype = np.dtype(detail["dtype"])
        try:
            datatype = datatype_of(dtype)
        except TypeError:
            datatype = None
        declared[name] = Declared(name, str(dtype), shape, datatype)
    return declared


def _failure(config: ModelConfig, doing: str, error: BaseException) -> BackendFailed:
    text = foreign_text(RuntimeError(" ".join(str(error).split()))).removeprefix("RuntimeError: ")
    return BackendFailed(f"model '{config.name}': LiteRT cannot {doing}: {text}")
