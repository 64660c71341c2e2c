"""Caffe2Network: the two nets of a Caffe2 model, converted to one ONNX model."""

from collections.abc import Collection, Sequence

from inferd.errors import InvalidConfig
from inferd.formats.onnx_model import OnnxPort
from inferd.tensor.dtype import DataType
from inferd_convert.caffe2 import elementwise, image, layer, shape
from inferd_convert.caffe2.call import Caffe2Call
from inferd_convert.caffe2.netdef import Net, Operator
from inferd_convert.call import Converter, check_convertible, convert_call
from inferd_convert.graph import Graph, Value

_PARTS = (elementwise, image, layer, shape)
OPERATORS: dict[str, Converter] = {
    name: converter for part in _PARTS for name, converter in part.OPERATORS.items()
}
"""Caffe2's name of an operator -> its converter to ONNX."""


class Caffe2Network:
    """A Caffe2 model: `init` fills in weights once, `predict` runs for each request.

    Raises Unsupported naming the operators that cannot be converted, and their places, and
    InvalidConfig if there is nothing to run.
    """

    def __init__(self, init: Net, predict: Net) -> None:
        if not predict.operators:
            raise InvalidConfig("the net that is to run for requests has no operator")
        operators = [*init.operators, *predict.operators]
        check_convertible([one for one in operators if one.type not in OPERATORS])
        self._init = init
        self._predict = predict
        self._filled = {name: one for one in init.operators for name in one.outputs}

    @property
    def external_input(self) -> list[str]:
        """The blobs that must exist when `predict` starts: inputs and weights."""
        return list(dict.fromkeys(self._predict.external_input))

    def input_names(self) -> list[str]:
        """Return the external inputs that `init` does not fill in.

        Some exporters fill in all of them, an input with one element just so that the blob exists.
        If `init` leaves none out, the inputs are those blobs of one element.
        """
        names, filled = self.external_input, self._filled
        left = [name for name in names if name not in filled]
        return left or [name for name in names if _shape(filled[name]) == [1, 1]]

    def output_names(self) -> list[str]:
        """Return the output blobs; if the net names none, those of its last operator."""
        predict = self._predict
        return list(dict.fromkeys(predict.external_output or predict.operators[-1].outputs))

    def inferred_inputs(self, names: Collection[str]) -> dict[str, OnnxPort]:
        """Return those of the inputs `names` whose dims follow from the first weights they meet."""
        inferred: dict[str, OnnxPort] = {}
        for operator in self._predict.operators:
            if len(operator.inputs) < 2 or operator.inputs[1] not in self._filled:
                continue
            name, weight = operator.inputs[0], _shape(self._filled[operator.inputs[1]])
            # Only to read arguments with their defaults; nothing is added to that graph.
            call = Caffe2Call(Graph(), operator, [])
            shape: tuple[int, ...] | None = None
            if operator.type.startswith("Conv") and len(weight) > 2:
                shape = _conv_input(call, weight)
            elif operator.type == "FC" and len(weight) == 2 and call.integer("axis", 1) == 1:
                shape = (-1, weight[1])
            if shape and name in names:
                # The first use counts; if another one contradicts it, ONNX Runtime says so at load.
                inferred.setdefault(name, OnnxPort(name, DataType.FP32, shape))
        return inferred

    def convert(self, inputs: Sequence[OnnxPort], wanted: Sequence[str] = ()) -> bytes:
        """Return the ONNX model of both nets.

        `inputs` are its inputs: values that `init` fills in for them are not used. Its outputs are
        those of the net in order, then the blobs `wanted`. Raises InvalidConfig for inconsistent
        nets.
        """
        graph = Graph()
        blobs: dict[str, Value | None] = {}
        # The init net runs here, once: what it fills in becomes constants of the ONNX model.
        for operator in self._init.operators:
            _run(graph, operator, blobs)
        for port in inputs:
            blobs[port.name] = graph.input(port)
        for operator in self._predict.operators:
            _run(graph, operator, blobs)
        names = dict.fromkeys([*self.output_names(), *wanted])
        for port in inputs:
            if port.name in names:
                msg = f"blob '{port.name}' is an input and an output, which ONNX cannot say"
                raise InvalidConfig(msg)
        return graph.encode({name: _output(blobs, name) for name in names})


def _conv_input(call: Caffe2Call, weight: list[int]) -> tuple[int, ...]:
    spatial = (-1,) * (len(weight) - 2)
    if call.type.startswith("ConvTranspose"):
        # ConvTranspose has its input's channels first, and all of them whatever the group.
        channels = weight[0]
    else:
        # A weight has the channels of its own group.
        channels = (weight[-1] if call.is_nhwc else weight[1]) * call.integer("group", 1)
    return (-1, *spatial, channels) if call.is_nhwc else (-1, channels, *spatial)


def _shape(fill: Operator) -> list[int]:
    shape = fill.arguments.get("shape")
    return shape.ints if shape else []


def _run(graph: Graph, operator: Operator, blobs: dict[str, Value | None]) -> None:
    inputs = []
    for name in operator.inputs:
        value = blobs.get(name)
        if value is None:
            raise InvalidConfig(f"{operator.place} reads '{name}', which nothing before it gives")
        inputs.append(value)
    graph.place = operator.place
    outputs = convert_call(OPERATORS[operator.type], Caffe2Call(graph, operator, inputs))
    for index, name in enumerate(operator.outputs):
        # Overwrites: Caffe2 lets an operator write to the blob that
        # it reads, ONNX names values once.
        blobs[name] = outputs[index] if index < len(outputs) else None


def _output(blobs: dict[str, Value | None], name: str) -> Value:
    value = blobs.get(name)
    if value is None:
        raise InvalidConfig(f"the net gives no blob '{name}', or not one that can be converted")
    return value
