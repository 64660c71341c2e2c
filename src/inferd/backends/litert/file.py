"""What LiteRT does not look at in a .tflite file: numbers that point to nothing.

LiteRT checks that the file is a flatbuffer, whose offsets stay inside. That an operator's tensors,
a tensor's bytes or a signature's tensors are there it takes on trust, and reads other memory if
they are not. (FlatBuffers internals; the TensorFlow Lite schema, whose field numbers these are.)
"""

import struct
from collections.abc import Iterator

from inferd.errors import InvalidConfig

MAGIC = b"TFL3"
"""Stands at byte 4 of every such file."""

_CODES, _SUBGRAPHS, _BUFFERS, _SIGNATURES = 1, 2, 4, 7  # of a Model
_TENSORS, _INPUTS, _OUTPUTS, _OPERATORS = 0, 1, 2, 3  # of a SubGraph
_BUFFER = 2  # of a Tensor
_CODE, _TAKES, _GIVES, _BETWEEN = 0, 1, 2, 8  # of an Operator
_SIGNATURE_SUBGRAPH = 4
_TENSOR_INDEX = 1  # of a TensorMap

MAX_ITEMS = 1 << 22
"""So many tables and numbers are looked at: those of a file may all be the same few bytes."""

_NONE = -1  # an input that an operator does without
_OLD_KIND, _KIND = 0, 3  # of an OperatorCode; the larger counts

_FEW = {3: 2, 4: 2, 9: 2, 27: 4, 67: 3, 132: 2, 141: 3}
"""Kinds of operators with a bias, convolutions mostly, and from which input on they do without."""

_MANY = {16: 1, 32: 1, 44: 1, 46: 1, 52: 1}
"""Recurrent kinds, and custom ones: all but the first input may be missing."""

_OPTIONAL_FROM = _FEW | _MANY


def check_file(content: bytes, what: str) -> None:
    """Check that every number in `content` points to something. Raises InvalidConfig."""
    if content[4:8] != MAGIC:
        msg = f"{what} is no TensorFlow Lite file"
        raise InvalidConfig(msg)
    try:
        complaint = _complaint(Table(content, _unsigned(content, 0), [MAX_ITEMS]))
    except (struct.error, IndexError):
        complaint = "it is cut off, or an offset leads out of it"
    except _TooMuch:
        complaint = f"it says that it has more than {MAX_ITEMS} parts"
    if complaint:
        msg = f"{what}: LiteRT cannot load it: {complaint}"
        raise InvalidConfig(msg)


class _TooMuch(Exception):
    """There is more to look at than any model has."""


class Table:
    """A table of a flatbuffer at `place`. Reading outside of the file raises struct.error.

    `left` is how many items may still be read, of all tables of the file together.
    """

    def __init__(self, content: bytes, place: int, left: list[int]) -> None:
        self._content = content
        self._place = place
        self._left = left
        fields = place - struct.unpack_from("<i", content, place)[0]
        if fields < 0:
            raise IndexError
        self._fields = fields
        self._size = struct.unpack_from("<H", content, fields)[0]

    def number(self, field: int) -> int:
        """Return an unsigned number, 0 where it is left out."""
        at = self._at(field)
        return _unsigned(self._content, at) if at else 0

    def byte(self, field: int) -> int:
        """Return a number of one byte, 0 where it is left out."""
        at = self._at(field)
        return self._content[at] if at else 0

    def numbers(self, field: int) -> tuple[int, ...]:
        """Return a vector of signed numbers."""
        start, count = self._vector(field)
        self._spend(count)
        numbers: tuple[int, ...] = struct.unpack_from(f"<{count}i", self._content, start)
        return numbers

    def tables(self, field: int) -> Iterator["Table"]:
        """Yield the tables of a vector."""
        start, count = self._vector(field)
        self._spend(count)
        for place in range(start, start + 4 * count, 4):
            yield Table(self._content, place + _unsigned(self._content, place), self._left)

    def count(self, field: int) -> int:
        """Return how many items a vector says it has."""
        return self._vector(field)[1]

    def _spend(self, count: int) -> None:
        self._left[0] -= count
        if self._left[0] < 0:
            raise _TooMuch

    def _vector(self, field: int) -> tuple[int, int]:
        at = self._at(field)
        if not at:
            return 0, 0
        start = at + _unsigned(self._content, at)
        return start + 4, _unsigned(self._content, start)

    def _at(self, field: int) -> int:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return 0
        offset: int = struct.unpack_from("<H", self._content, self._fields + entry)[0]
        return self._place + offset if offset else 0


def _unsigned(content: bytes, place: int) -> int:
    number: int = struct.unpack_from("<I", content, place)[0]
    return number


def _complaint(model: Table) -> str:
    """Return what is wrong with the model, "" for nothing."""
    buffers = model.count(_BUFFERS)
    kinds = [max(code.byte(_OLD_KIND), code.number(_KIND)) for code in model.tables(_CODES)]
    tensors = []
    for number, graph in enumerate(model.tables(_SUBGRAPHS)):
        count = graph.count(_TENSORS)
        tensors.append(count)
        complaint = _graph_complaint(graph, count, kinds, buffers)
        if complaint:
            return f"graph {number}: {complaint}"
    for signature in model.tables(_SIGNATURES):
        graph_number = signature.number(_SIGNATURE_SUBGRAPH)
        if graph_number >= len(tensors):
            return f"a signature is of graph {graph_number}, and there are {len(tensors)}"
        for field in (0, 1):
            for entry in signature.tables(field):
                if entry.number(_TENSOR_INDEX) >= tensors[graph_number]:
                    return f"a signature names tensor {entry.number(_TENSOR_INDEX)}"
    return "" if tensors else "it has no graph"


def _graph_complaint(graph: Table, count: int, kinds: list[int], buffers: int) -> str:
    for number in graph.numbers(_INPUTS) + graph.numbers(_OUTPUTS):
        if not 0 <= number < count:
            return f"it names tensor {number} of {count}"
    for place, tensor in enumerate(graph.tables(_TENSORS)):
        if (number := tensor.number(_BUFFER)) and number >= buffers:
            return f"tensor {place} lies in buffer {number} of {buffers}"
    for place, operator in enumerate(graph.tables(_OPERATORS)):
        if complaint := _operator_complaint(operator, count, kinds):
            return f"operator {place} {complaint}"
    return ""


def _operator_complaint(operator: Table, count: int, kinds: list[int]) -> str:
    code = operator.number(_CODE)
    if code >= len(kinds):
        return f"is of kind {code} of {len(kinds)}"
    takes, gives = operator.numbers(_TAKES), operator.numbers(_GIVES)
    for number in takes:
        if not _NONE <= number < count:
            return f"takes tensor {number} of {count}"
    if _NONE in takes[: _OPTIONAL_FROM.get(kinds[code], len(takes))]:
        return "lacks an input"
    for number in gives + operator.numbers(_BETWEEN):
        if not 0 <= number < count:
            return f"gives tensor {number} of {count}"
    return ""
