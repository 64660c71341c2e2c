"""Signature of an ONNX file: the inputs and outputs it declares, as ONNX Runtime reports them.

Without it they are read from the file. But ONNX Runtime also infers types and shapes; of an output
that the file declares without a type, only it can tell one.
"""

import re
from collections.abc import Sequence, Set
from typing import Any, NamedTuple

from inferd.backends.onnx.doors.check import Check
from inferd.config.model import ModelConfig
from inferd.core.rows import OPEN, UNKNOWN, Verdict
from inferd.core.signature import Declared, Signature
from inferd.errors import InvalidConfig
from inferd.formats.onnx_graph import GraphInput, OnnxFile
from inferd.formats.onnx_model import onnx_type
from inferd.rows.verdict import verdict_on
from inferd.tensor.dtype import DataType

_OWN_NAMES = {
    DataType.FP32: "float",
    DataType.FP64: "double",
    DataType.BF16: "bfloat16",
    DataType.BYTES: "string",
}
DATATYPES = {f"tensor({_OWN_NAMES.get(one, one.numpy.name)})": one for one in DataType}
"""ONNX Runtime's type name -> datatype. Sequences, maps and optionals have none."""
_NAMES = {onnx_type(datatype): name for name, datatype in DATATYPES.items()}

# Names of dims that exporters make up (tf2onnx, PyTorch, Paddle): another one for each tensor.
_MADE_UP = re.compile(r"unk_.*|.*_dynamic_axes_\d+|.*_dim_\d+|.*DynamicDimension.*|None|\?|-1|")


class Loaded:
    """A session and its signature, alive as long as a present or coming instance needs it.

    `checks` are for the inputs of each request, before it runs; `verdict` is what is known of the
    rows of a batch. `scalars` are inputs and outputs that the file declares as such, None if that
    is not known. How long a run takes is bounded by the dims of the inputs if `is_bounded`.
    """

    def __init__(
        self,
        session: Any,
        checks: Sequence[Check] = (),
        verdict: Verdict = UNKNOWN,
        scalars: Set[str] | None = None,
        *,
        is_bounded: bool = True,
    ) -> None:
        self.session = session
        self.checks = checks
        self.is_bounded = is_bounded
        self.signature = read_signature(session, verdict, scalars)

    def verdict_for(self, config: ModelConfig) -> Verdict:
        """Return what is known of the rows of the model, served with `config`."""
        for tensor in config.input:
            # The proof took the constant's value for granted, which every request now replaces.
            if tensor.name in self.signature.defaulted:
                return Verdict(OPEN, f"input '{tensor.name}' is a constant in the file")
        return self.signature.verdict


def read_signature(
    session: Any, verdict: Verdict = UNKNOWN, scalars: Set[str] | None = None
) -> Signature:
    """Return the signature of the file that an onnxruntime.InferenceSession has loaded.

    `verdict` is what is known of its rows. ONNX Runtime shows without dims also what is declared
    without a rank, or with one that cannot be: what is not among the file's `scalars`, if these are
    known. Raises InvalidConfig for names that are not UTF-8.
    """
    try:
        return Signature(
            _declared(session.get_inputs(), scalars),
            _declared(session.get_overridable_initializers(), None),
            _declared(session.get_outputs(), scalars),
            verdict,
        )
    except UnicodeDecodeError as error:
        msg = "an input or output of the file, or a dim of it, has a name that is no UTF-8"
        raise InvalidConfig(msg) from error


def declared_signature(model: OnnxFile) -> Signature | None:
    """Return what the file declares, None if it leaves the type of an output to ONNX Runtime."""
    graph = model.graph
    if any(one.is_tensor and not one.element for one in graph.given):
        return None
    # Until IR version 3, every initializer had to be among the inputs as well (onnx.proto).
    inputs = [_argument(one) for one in graph.inputs if one.name not in graph.constants]
    defaulted = [_argument(one) for one in graph.inputs if one.name in graph.constants]
    return Signature(
        _declared(inputs, graph.scalars),
        _declared(defaulted, None),
        _declared([_argument(one) for one in graph.given], graph.scalars),
        verdict_on(model),
    )


class _Argument(NamedTuple):
    """An input or output, as ONNX Runtime's NodeArg."""

    name: str
    type: str
    shape: Sequence[int | str | None]


def _argument(port: GraphInput) -> _Argument:
    kind = _NAMES.get(port.element, "tensor(?)") if port.is_tensor else "a sequence or map"
    shape: list[int | str | None] = [None if dim < 0 else dim for dim in port.dims or ()]
    if port.first_dim and shape and shape[0] is None:
        shape[0] = port.first_dim
    return _Argument(port.name, kind, shape)


def _declared(arguments: Any, scalars: Set[str] | None) -> dict[str, Declared]:
    return {
        argument.name: Declared(
            argument.name,
            argument.type,
            # A symbolic dim is a str or None; some exporters write -1.
            tuple(dim if isinstance(dim, int) and dim >= 0 else -1 for dim in argument.shape),
            DATATYPES.get(argument.type),
            _first_dim(argument.shape),
            not argument.shape and scalars is not None and argument.name not in scalars,
        )
        for argument in arguments
    }


def _first_dim(shape: Any) -> str:
    """Return what the author calls the first dim of `shape`, "" if nothing."""
    name = shape[0] if shape else ""
    return name if isinstance(name, str) and not _MADE_UP.fullmatch(name) else ""
