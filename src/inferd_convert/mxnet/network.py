"""MxnetNetwork: an MXNet symbol with its parameters, converted to one ONNX model."""

from collections.abc import Collection, Mapping, Sequence

from inferd.errors import InvalidConfig
from inferd.formats.onnx_model import OnnxPort
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd_convert.call import Converter, check_convertible, convert_call
from inferd_convert.graph import Graph, Value
from inferd_convert.mxnet import elementwise, image, layer, linalg, recurrent, shape
from inferd_convert.mxnet.call import MxnetCall
from inferd_convert.mxnet.params import TYPES
from inferd_convert.mxnet.symbol import VARIABLE, Symbol, SymbolNode

_PARTS = (elementwise, image, layer, linalg, recurrent, shape)
OPERATORS: dict[str, Converter] = {
    name: converter for part in _PARTS for name, converter in part.OPERATORS.items()
}
"""MXNet's name of an operator -> its converter to ONNX."""

_LOSSES = (
    *("SoftmaxOutput", "Softmax", "LinearRegressionOutput", "LogisticRegressionOutput"),
    "MAERegressionOutput",
)
"""Operators whose second input is a training label, which is absent in inference."""

_SEVERAL = ("SliceChannel", "split", "_split_v2", "RNN", "topk", "moments")
"""Operators with several real outputs; further ones of others are unused masks and moments."""

_AUXILIARY = {
    "BatchNorm": ("moving_mean", "moving_var"),
    "BatchNorm_v1": ("moving_mean", "moving_var"),
}
"""States that MXNet's oldest files do not list among the inputs of an operator."""


class MxnetNetwork:
    """A symbol and its parameter arrays."""

    def __init__(self, symbol: Symbol, params: Mapping[str, Array]) -> None:
        self._nodes = symbol.nodes
        several = [symbol.nodes[node].op in _SEVERAL for node, _ in symbol.heads]
        self._heads = [
            # Dropout's mask and BatchNorm's moments are outputs of the
            # symbol, too, and nobody's answer.
            head
            for head, real in zip(symbol.heads, several, strict=True)
            if real or head[1] == 0
        ]
        self._params = params
        # In the file's order, in which every node comes after those that it reads.
        self._used = sorted(self._reached([node for node, _ in symbol.heads]))

    def check_operators(self) -> None:
        """Raise Unsupported naming the operators that cannot be converted, and their places."""
        nodes = [self._nodes[number] for number in self._used]
        unknown = [node for node in nodes if node.op != VARIABLE and node.op not in OPERATORS]
        check_convertible(unknown)

    def input_names(self) -> list[str]:
        """Return the variables that the outputs depend on and that are not parameters."""
        variables = (self._nodes[number] for number in self._used)
        return [
            node.name for node in variables if node.op == VARIABLE and node.name not in self._params
        ]

    def output_names(self) -> list[str]:
        """Return the names of the outputs: that of the node, with an index if it has several.

        An output that the symbol lists twice has one name. MXNet itself appends `_output`;
        `convert` accepts these names as well.
        """
        nodes = [node for node, _ in dict.fromkeys(self._heads)]
        return [
            self._nodes[node].name + (f"{index}" if nodes.count(node) > 1 else "")
            for node, index in self._heads
        ]

    def inferred_inputs(self, names: Collection[str]) -> dict[str, OnnxPort]:
        """Return those of the inputs `names` whose dims the file or their first weights give."""
        inferred: dict[str, OnnxPort] = {}
        for number in self._used:
            node = self._nodes[number]
            if node.op == VARIABLE and node.name in names and "__shape__" in node.attributes:
                # Only to read the attribute, which is a text; nothing is added to that graph.
                dims = MxnetCall(Graph(), node, []).integers("__shape__")
                # What the file itself says wins over what weights suggest,
                # in whichever order they come.
                inferred[node.name] = OnnxPort(
                    node.name, _datatype(node), tuple(d or -1 for d in dims)
                )
            elif node.op in ("FullyConnected", "Convolution") and len(node.inputs) > 1:
                source, weight = (self._nodes[entry[0]] for entry in node.inputs[:2])
                shape = self._met(node, weight.name)
                if source.name in names and source.op == VARIABLE and shape:
                    inferred.setdefault(
                        source.name, OnnxPort(source.name, _datatype(source), shape)
                    )
        return inferred

    def convert(self, inputs: Sequence[OnnxPort], wanted: Sequence[str] = ()) -> bytes:
        """Return the ONNX model; its outputs are those `wanted`, by default all of the symbol.

        An output may also have MXNet's name, or be that of an inner node. Raises InvalidConfig for
        an inconsistent symbol, and Unsupported as `check_operators` does.
        """
        self.check_operators()
        graph = Graph()
        values: dict[tuple[int, int], Value] = {}
        ports = {port.name: port for port in inputs}
        for number in self._used:
            node = self._nodes[number]
            graph.place = node.place
            if node.op == VARIABLE:
                values[number, 0] = self._variable(graph, node.name, ports)
                continue
            call = MxnetCall(graph, node, self._read(graph, node, values))
            for index, value in enumerate(convert_call(OPERATORS[node.op], call)):
                assert value is not None
                values[number, index] = value
        known = dict(zip(self.output_names(), self._heads, strict=True))
        return graph.encode({name: self._output(name, known, values) for name in wanted or known})

    def _reached(self, heads: Sequence[int]) -> set[int]:
        """Return the numbers of the nodes that `heads` depend on, without labels."""
        found: set[int] = set()
        # A list and not recursion: nets have thousands of layers behind each other.
        waiting = list(heads)
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                waiting += [entry[0] for entry in _sources(self._nodes[number])]
        return found

    def _read(
        self, graph: Graph, node: SymbolNode, values: Mapping[tuple[int, int], Value]
    ) -> list[Value]:
        inputs = []
        for entry in _sources(node):
            if entry not in values:
                msg = f"{node.place} reads output {entry[1]} of node {entry[0]}, which has none"
                raise InvalidConfig(msg)
            inputs.append(values[entry])
        if len(inputs) == 3:
            states = _AUXILIARY.get(node.op, ())
            inputs += [self._variable(graph, f"{node.name}_{state}", {}) for state in states]
        return inputs

    def _variable(self, graph: Graph, name: str, ports: Mapping[str, OnnxPort]) -> Value:
        if name in ports:
            return graph.input(ports[name])
        if name not in self._params:
            raise InvalidConfig(f"{graph.place}: there is no parameter '{name}'")
        return graph.constant(self._params[name])

    def _output(
        self,
        name: str,
        known: Mapping[str, tuple[int, int]],
        values: Mapping[tuple[int, int], Value],
    ) -> Value:
        entry = known.get(name) or known.get(name.removesuffix("_output"))
        if entry is None:
            inside = name.removesuffix("_output")
            entry = next(
                ((n, 0) for n in self._used if self._nodes[n].name in (name, inside)), None
            )
        if entry is None or entry not in values:
            listed = ", ".join(f"'{one}'" for one in known)
            raise InvalidConfig(f"the symbol has no output '{name}', it has {listed}")
        return values[entry]

    def _met(self, node: SymbolNode, weight: str) -> tuple[int, ...] | None:
        """Return the shape that an input must have to fit `weight`, None if that does not say."""
        array = self._params.get(weight)
        if array is None:
            return None
        if node.op == "FullyConnected":
            return (-1, array.shape[1]) if array.ndim == 2 else None
        if array.ndim < 3 or node.attributes.get("layout", "NC").find("C") != 1:
            return None
        # A weight has the channels of its own group.
        groups = MxnetCall(Graph(), node, []).integer("num_group", 1)
        return (-1, array.shape[1] * groups, *([-1] * (array.ndim - 2)))


def _sources(node: SymbolNode) -> list[tuple[int, int]]:
    return node.inputs[:1] if node.op in _LOSSES else node.inputs


def _datatype(node: SymbolNode) -> DataType:
    code = MxnetCall(Graph(), node, []).integer("__dtype__", 0)
    return TYPES.get(code, DataType.FP32)
