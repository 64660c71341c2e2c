"""Declared: the inputs and outputs that an ONNX file declares, read without ONNX Runtime.

ONNX Runtime also infers types and shapes; of an output that the file declares without a type, only
it can tell one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from inferd.backends.onnx.signature import DATATYPES, read_signature
from inferd.core.signature import Signature
from inferd.formats.onnx_graph import GraphInput, OnnxFile
from inferd.formats.onnx_model import onnx_type
from inferd.rows.verdict import verdict_on

_NAMES = {onnx_type(datatype): name for name, datatype in DATATYPES.items()}


class _Argument(NamedTuple):
    """An input or output, as ONNX Runtime's NodeArg."""

    name: str
    type: str
    shape: Sequence[int | str | None]


class _Arguments:
    """The arguments of a file, as an InferenceSession lists them."""

    def __init__(self, model: OnnxFile) -> None:
        graph = model.graph
        # Until IR version 3, every initializer had to be among the inputs as well (onnx.proto).
        self._inputs = [one for one in graph.inputs if one.name not in graph.constants]
        self._defaulted = [one for one in graph.inputs if one.name in graph.constants]
        self._outputs = graph.given

    def get_inputs(self) -> list[_Argument]:
        return [_argument(one) for one in self._inputs]

    def get_overridable_initializers(self) -> list[_Argument]:
        return [_argument(one) for one in self._defaulted]

    def get_outputs(self) -> list[_Argument]:
        return [_argument(one) for one in self._outputs]


def declared_signature(model: OnnxFile) -> Signature | None:
    """Return what the file declares, None if it leaves the type of an output to ONNX Runtime."""
    if any(one.is_tensor and not one.element for one in model.graph.given):
        return None
    return read_signature(_Arguments(model), verdict_on(model), model.graph.scalars)


def _argument(port: GraphInput) -> _Argument:
    kind = _NAMES.get(port.element, "tensor(?)") if port.is_tensor else "a sequence or map"
    shape: list[int | str | None] = [None if dim < 0 else dim for dim in port.dims or ()]
    if port.first_dim and shape and shape[0] is None:
        shape[0] = port.first_dim
    return _Argument(port.name, kind, shape)
