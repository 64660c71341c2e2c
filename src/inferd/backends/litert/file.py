"""Checks of a .tflite file that LiteRT does not make: for indices that point to nothing.

LiteRT checks that the file is a flatbuffer whose offsets stay inside. But it trusts that an
operator's tensors, a tensor's bytes and a signature's tensors exist, and reads out of bounds if
they do not. (FlatBuffers internals; field numbers are those of the TensorFlow Lite schema.)
"""

import struct
from math import prod
from typing import NoReturn

from inferd.backends.litert.operator import HANDLES, LitertTensor, operator_complaint
from inferd.backends.litert.table import FlatTable, TooMuch, root
from inferd.errors import InvalidConfig

MAGIC = b"TFL3"
"""At byte 4 of every such file."""

_CODES, _SUBGRAPHS, _BUFFERS, _SIGNATURES = 1, 2, 4, 7  # of a Model
_TENSORS, _INPUTS, _OUTPUTS, _OPERATORS = 0, 1, 2, 3  # of a SubGraph
_SHAPE, _TYPE, _BUFFER, _QUANTIZATION, _IS_VARIABLE = 0, 1, 2, 4, 5  # of a Tensor
_SCALE = 2  # of QuantizationParameters
_DATA, _OFFSET = 0, 1  # of a Buffer
_CODE, _TAKES, _GIVES, _KIND_OF_OPTIONS, _OPTIONS, _BETWEEN = 0, 1, 2, 3, 4, 8  # of an Operator
_SPLIT_OPTIONS = 35
_NUM_SPLITS = 0  # of SplitOptions
_SIGNATURE_SUBGRAPH = 4
_TENSOR_INDEX = 1  # of a TensorMap

MAX_ITEMS = 1 << 22
"""The most tables and numbers that are read: a small file may repeat the same bytes many times."""

_NONE = -1  # an omitted optional input
_OLD_KIND, _KIND = 0, 3  # of an OperatorCode; the larger one counts

_FEW = {3: 2, 4: 2, 9: 2, 27: 4, 67: 3, 132: 2, 141: 3}
"""Operators with a bias, mostly convolutions -> the index of their first optional input."""

_MANY = {16: 1, 32: 1, 44: 1, 46: 1, 52: 1}
"""Recurrent and custom operators: all but the first input may be missing."""

_OPTIONAL_FROM = _FEW | _MANY


def check_file(content: bytes, what: str) -> None:
    """Check that every index in `content` points to something. Raises InvalidConfig."""
    if content[4:8] != MAGIC:
        raise InvalidConfig(f"{what} is no TensorFlow Lite file")
    try:
        complaint = _complaint(FlatTable(content, root(content), [MAX_ITEMS]))
    # FlatTable follows offsets wherever they lead; every read outside the file ends here.
    except (struct.error, IndexError):
        complaint = "it is cut off, or an offset leads out of it"
    except TooMuch:
        complaint = f"it says that it has more than {MAX_ITEMS} parts"
    if complaint:
        raise InvalidConfig(f"{what}: LiteRT cannot load it: {complaint}")


def _complaint(model: FlatTable) -> str:
    """Return what is wrong with the model, "" for nothing."""
    filled = [bool(b.count(_DATA) or b.number(_OFFSET)) for b in model.tables(_BUFFERS)]
    # The old field has one byte; operators beyond 127 stand in the new one (schema, version 3a).
    kinds = [max(code.byte(_OLD_KIND), code.number(_KIND)) for code in model.tables(_CODES)]
    graphs = []
    for number, table in enumerate(model.tables(_SUBGRAPHS)):
        try:
            graphs.append(_Graph(table, kinds, filled))
        except _Wrong as error:
            return f"graph {number}: {error}"
    if not graphs:
        return "it has no graph"
    return _entry_complaint(model, graphs)


def _entry_complaint(model: FlatTable, graphs: list["_Graph"]) -> str:
    """Return what is wrong with the graphs and signatures that clients can call, or ""."""
    # Graph 0 is what runs if no signature is named.
    entries = {0}
    for signature in model.tables(_SIGNATURES):
        number = signature.number(_SIGNATURE_SUBGRAPH)
        if number >= len(graphs):
            return f"a signature is of graph {number}, and there are {len(graphs)}"
        entries.add(number)
        for field, known in enumerate((graphs[number].inputs, graphs[number].outputs)):
            for entry in signature.tables(field):
                if entry.number(_TENSOR_INDEX) not in known:
                    return f"a signature names tensor {entry.number(_TENSOR_INDEX)}"
    for number in sorted(entries):
        if complaint := graphs[number].entry_complaint():
            return f"graph {number}: {complaint}"
    return ""


def _parts(operator: FlatTable) -> int:
    """Return the number of parts that a split operator should make, 0 if it does not say."""
    options = operator.table(_OPTIONS)
    if options is None or operator.byte(_KIND_OF_OPTIONS) != _SPLIT_OPTIONS:
        return 0
    return options.number(_NUM_SPLITS)


class _Wrong(Exception):
    """A graph that cannot run; the text says why."""


def _refuse(why: str) -> NoReturn:
    raise _Wrong(why)


class _Graph:
    """A graph whose tensors and operators have been checked. Raises _Wrong."""

    def __init__(self, graph: FlatTable, kinds: list[int], filled: list[bool]) -> None:
        inputs, outputs = graph.numbers(_INPUTS), graph.numbers(_OUTPUTS)
        self.inputs, self.outputs = frozenset(inputs), frozenset(outputs)
        self._kinds = kinds
        self._known = set(inputs)  # tensors that hold data when the next operator runs
        self._given: set[int] = set()  # outputs of operators
        self._tensors: list[LitertTensor] = []
        for place, tensor in enumerate(graph.tables(_TENSORS)):
            self._add(place, tensor, filled)
        self._check(inputs + outputs, "it names")
        for place, operator in enumerate(graph.tables(_OPERATORS)):
            self._follow(f"operator {place}", operator)
        for number in outputs:
            if number not in self._known:
                _refuse(f"nothing gives its output, tensor {number}")

    def entry_complaint(self) -> str:
        """Return why clients cannot use this graph, "" if they can."""
        for number in sorted(self.inputs | self.outputs):
            if self._tensors[number].type in HANDLES:
                return f"tensor {number}, an input or output, has no numbers"
        for number in sorted(self.inputs):
            if 0 in self._tensors[number].shape:
                return f"its input, tensor {number}, has no elements"
        return ""

    def _add(self, place: int, tensor: FlatTable, filled: list[bool]) -> None:
        number, shape = tensor.number(_BUFFER), tensor.numbers(_SHAPE)
        # Buffer 0 is always empty, by convention: it means that the tensor has none.
        if number and number >= len(filled):
            _refuse(f"tensor {place} lies in buffer {number} of {len(filled)}")
        is_constant = number < len(filled) and filled[number]
        # Variables are zeros before the first run; tensors without
        # elements have nothing to be read.
        if is_constant or tensor.byte(_IS_VARIABLE) or not prod(shape):
            self._known.add(place)
        quantization = tensor.table(_QUANTIZATION)
        scales = () if quantization is None else quantization.floats(_SCALE)
        is_firm = is_constant or place in self.inputs
        self._tensors.append(LitertTensor(tensor.byte(_TYPE), shape, scales, is_firm))

    def _check(self, numbers: tuple[int, ...], doing: str) -> None:
        count = len(self._tensors)
        for number in numbers:
            if not 0 <= number < count:
                _refuse(f"{doing} tensor {number} of {count}")

    def _follow(self, what: str, operator: FlatTable) -> None:
        """Check an operator, and note its outputs."""
        code = operator.number(_CODE)
        if code >= len(self._kinds):
            _refuse(f"{what} is of kind {code} of {len(self._kinds)}")
        kind = self._kinds[code]
        takes, gives = operator.numbers(_TAKES), operator.numbers(_GIVES)
        tensors = self._tensors
        there = tuple(number for number in takes if number != _NONE)
        self._check(there, f"{what} takes")
        if _NONE in takes[: _OPTIONAL_FROM.get(kind, len(takes))]:
            _refuse(f"{what} lacks an input")
        self._check(gives + operator.numbers(_BETWEEN), f"{what} gives")
        for number in there:
            if number not in self._known:
                _refuse(f"{what} takes tensor {number}, which nothing has given")
        for number in gives:
            # A constant lies in the mapped file, which nothing may write to; and of two writers,
            # one would have checked against the other's shape.
            if tensors[number].is_firm or number in self._given:
                _refuse(f"{what} gives tensor {number}, which is there already")
            self._given.add(number)
        complaint = operator_complaint(
            kind,
            [None if number == _NONE else tensors[number] for number in takes],
            [tensors[number] for number in gives],
            _parts(operator),
        )
        if complaint:
            _refuse(f"{what} {complaint}")
        self._known.update(gives)
