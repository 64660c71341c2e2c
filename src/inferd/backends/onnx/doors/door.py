"""Doors: operators that end ONNX Runtime's process for some operands, and how each is shut.

If such an operand is an input of the model, a Check compares each request before it runs. If it
is computed, nodes are put before the operator that fail for it, as an operator may, and otherwise
pass it on unchanged: mostly a Reshape to the tensor's own shape, which copies nothing. A division
by zero is an error of ONNX Runtime, so the nodes divide by what must not be zero.

Operators that make as much as a request says are checked for more than the memory of the machine.
"""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from inferd.backends.onnx.doors.check import (
    Check,
    DimsCheck,
    DivisionCheck,
    NonzeroCheck,
    RangeCheck,
    SizeCheck,
)
from inferd.backends.onnx.doors.scope import Scope
from inferd.convert.onnx_graph import INT32, INT64, Array, RowNode
from inferd.convert.onnx_model import OnnxNode

_LOWEST: dict[int, Array] = {
    INT32: np.array(np.iinfo(np.int32).min, np.int32),
    INT64: np.array(np.iinfo(np.int64).min, np.int64),
}
_SINCE_SCATTER, _SINCE_WHERE = 11, 9
"""The opsets that brought ScatterElements and Where."""

_LARGEST_KERNEL = 1 << 31
_MOST_DIMS = 64


class Shut(NamedTuple):
    """How one operator is shut.

    `checks` compare requests; `before` are nodes to put before the operator, whose inputs are
    then `renamed`, by index; the operator itself gets the name `name`, which ONNX Runtime's errors
    tell, unless that is "". `refusal` says why the file cannot be right, `left` what is still
    possible; "" for nothing.
    """

    checks: tuple[Check, ...] = ()
    before: tuple[OnnxNode, ...] = ()
    renamed: Mapping[int, str] = MappingProxyType({})
    name: str = ""
    refusal: str = ""
    left: str = ""


class _Shutting:
    """Collects what shuts one operator."""

    def __init__(self, node: RowNode, scope: Scope, opset: int) -> None:
        self.node, self.scope, self.opset = node, scope, opset
        self.prefix = next((one for one in node.outputs if one), "")
        self.what = f"{node.op} '{self.prefix}'"
        self._checks: list[Check] = []
        self._before: list[OnnxNode] = []
        self._renamed: dict[int, str] = {}

    def shut(self, name: str = "") -> Shut:
        return Shut(tuple(self._checks), tuple(self._before), self._renamed, name)

    def is_open(self, index: int) -> bool:
        """Whether that input of the operator is one of the model."""
        return self.node.input(index) in self.scope.open_inputs

    def check(self, check: Check) -> None:
        self._checks.append(check)

    def name(self, index: int) -> str:
        """The present name of that input: the last node put before it gives it."""
        return self._renamed.get(index, self.node.input(index))

    def add(self, op: str, inputs: tuple[str, ...], why: str, **attributes: int) -> str:
        """Put a node before the operator; return the name of its output."""
        name = f"{self.prefix}:{len(self._before)}"
        words = f"{self.what}: {why} ({len(self._before)})"  # names of nodes are unique
        self._before.append(OnnxNode(op, inputs, (name,), attributes, words))
        return name

    def constant(self, value: Array) -> str:
        name = f"{self.prefix}:{len(self._before)}"
        self._before.append(OnnxNode("Constant", (), (name,), {"value": value}))
        return name

    def replace(self, index: int, name: str) -> None:
        self._renamed[index] = name

    def reshape(self, index: int, dims: list[int], why: str) -> None:
        """Let that input pass a Reshape: 0 keeps a dim, and -1 fails if another one is 0."""
        shape = self.constant(np.array(dims, np.int64))
        self.replace(index, self.add("Reshape", (self.name(index), shape), why))

    def fill(self, index: int, free: tuple[int, ...], why: str) -> None:
        """Let that input, of any rank, pass only if no dim is 0 but those at `free`."""
        x = self.name(index)
        shape = divided = self.add("Shape", (x,), why)
        if free and self.opset >= _SINCE_SCATTER:
            places = self.constant(np.array(free, np.int64))
            ones = self.constant(np.ones(len(free), np.int64))
            divided = self.add("ScatterElements", (shape, places, ones), why)
        unit = self.add("Div", (divided, divided), why)
        same = self.add("Mul", (shape, unit), why)
        self.replace(index, self.add("Reshape", (x, same), why))

    def need_rank(self, index: int, rank: int) -> None:
        """Let that input pass only if it has at least `rank` dims."""
        why = f"input {index} needs {rank} dims"
        x = self.name(index)
        shape = self.add("Shape", (x,), why)
        last = self.constant(np.array([rank - 1], np.int64))
        dim = self.add("Gather", (shape, last), why)
        none = self.add("Sub", (dim, dim), why)
        same = self.add("Add", (shape, none), why)
        self.replace(index, self.add("Reshape", (x, same), why))


def shut(node: RowNode, scope: Scope, opset: int) -> Shut:
    """Return how `node` is shut; an empty Shut if it is no door. Raises Malformed.

    `scope` knows what its inputs are, `opset` is the version of ONNX's own operators.
    """
    if node.domain:
        return Shut()
    refusal = _refusal(node)
    if refusal:
        return Shut(refusal=refusal)
    shutter = DOORS.get(node.op)
    if shutter is None:
        return Shut()
    return shutter(_Shutting(node, scope, opset))


def _refusal(node: RowNode) -> str:
    """Return why an operator can never run, "" if nothing speaks against it."""
    if node.op in _WINDOWED:
        for name in ("kernel_shape", "strides", "dilations"):
            numbers = node.numbers(name)
            if any(one < 1 for one in numbers):
                return f"{_words(node)} has {name} {numbers}, and each must be at least 1"
            if name == "kernel_shape" and np.prod([float(one) for one in numbers]) >= (
                _LARGEST_KERNEL
            ):
                return f"{_words(node)} has kernel_shape {numbers}: no run of it would end"
    if node.op == "GatherND" and not 0 <= node.number("batch_dims", 0) < _MOST_DIMS:
        return f"{_words(node)} has batch_dims {node.number('batch_dims', 0)}"
    return ""


def _words(node: RowNode) -> str:
    return f"the {node.op} that gives '{node.outputs[0] if node.outputs else ''}'"


def _gru(it: _Shutting) -> Shut:
    if it.is_open(0):
        it.check(DimsCheck(it.node.input(0), it.what))
    else:
        it.reshape(0, [0, 0, -1], "no dim of input 0 may be 0")
        it.reshape(0, [-1, 0, 0], "no dim of input 0 may be 0")
    return it.shut()


def _lstm(it: _Shutting) -> Shut:
    if it.is_open(0):
        it.check(DimsCheck(it.node.input(0), it.what, free=(0, 2)))
    else:
        it.reshape(0, [-1, 0, 0], "dim 1 of input 0 may not be 0")
    return it.shut()


def _conv_transpose(it: _Shutting) -> Shut:
    if it.is_open(0):
        it.check(DimsCheck(it.node.input(0), it.what, free=(0,)))
        return it.shut()
    rank = it.scope.rank(it.node.input(1))
    why = "no dim of input 0 may be 0, but the first"
    if rank:
        it.reshape(0, [-1] + [0] * (rank - 1), why)
    else:
        it.fill(0, (0,), why)
    return it.shut()


def _einsum(it: _Shutting) -> Shut:
    """A dim that two inputs share may not be 0: of some orders, its size is divided by."""
    terms = it.node.text("equation").replace(" ", "").partition("->")[0].split(",")
    letters = [letter for term in terms for letter in set(term)]
    for index, term in enumerate(terms):
        free = tuple(n for n, letter in enumerate(term) if letters.count(letter) < 2)
        if len(free) == len(term) and "." not in term:
            continue
        free = () if "." in term else free
        if it.is_open(index):
            it.check(DimsCheck(it.node.input(index), it.what, free=free))
        elif it.node.input(index) and it.scope.constant(it.node.input(index)) is None:
            it.fill(index, free, f"dims of input {index} that another one has may not be 0")
    return it.shut()


def _unique(it: _Shutting) -> Shut:
    if "axis" not in it.node.attributes:
        return Shut()
    axis = it.node.number("axis", 0)
    if it.is_open(0):
        it.check(DimsCheck(it.node.input(0), it.what, free=(axis,)))
    else:
        it.fill(0, (axis,), f"no dim of input 0 may be 0, but dim {axis}")
    return it.shut()


def _ranked(index: int, rank: int) -> Callable[[_Shutting], Shut]:
    """Return what shuts an operator whose input of that index needs `rank` dims."""

    def shut_ranks(it: _Shutting) -> Shut:
        if it.is_open(index):
            it.check(DimsCheck(it.node.input(index), it.what, rank, any_size=True))
        elif it.node.input(index):
            it.need_rank(index, rank)
        return it.shut()

    return shut_ranks


def _stft(it: _Shutting) -> Shut:
    _ranked(0, 2)(it)
    window, length = 2, 3
    if it.is_open(window):
        it.check(DimsCheck(it.node.input(window), it.what, 1))
    elif it.node.input(window):
        it.need_rank(window, 1)
        it.fill(window, (), "the window may not be empty")
    for index in (1, length):
        _divisor(it, index)
    return it.shut()


def _divisor(it: _Shutting, index: int) -> None:
    """Let that input, a number, be anything but 0."""
    name = it.node.input(index)
    if it.is_open(index):
        it.check(NonzeroCheck(name, it.what))
        return
    constant = it.scope.constant(name)
    if name and (constant is None or not constant.all()):
        unit = it.add("Div", (name, name), f"input {index} may not be 0")
        it.replace(index, it.add("Mul", (name, unit), f"input {index} may not be 0"))


def _attention(it: _Shutting) -> Shut:
    for index in (4, 5):  # past_key and past_value
        if it.is_open(index):
            it.check(DimsCheck(it.node.input(index), it.what, 4, any_size=True))
        elif it.node.input(index):
            it.reshape(index, [0, 0, 0, 0], f"input {index} needs 4 dims")
    return it.shut()


def _division(it: _Shutting) -> Shut:
    scope, (a, b) = it.scope, (it.node.input(0), it.node.input(1))
    element = scope.element(a) or scope.element(b)
    left, right = scope.constant(a), scope.constant(b)
    if right is not None and not (right == -1).any():
        return Shut()
    if element and element not in _LOWEST:
        return Shut()
    if (left is not None and not _has_lowest(left)) or scope.is_count(a) or scope.is_count(b):
        if it.is_open(1) and left is not None:
            it.check(DivisionCheck(a, b, it.what, {a: left}))
        return it.shut()
    known = {name: one for name, one in ((a, left), (b, right)) if one is not None}
    if (it.is_open(0) or left is not None) and (it.is_open(1) or right is not None):
        check = DivisionCheck(a, b, it.what, known)
        if check.inputs:
            it.check(check)
            return it.shut()
        complaint = check.complaint({})
        return Shut(refusal=complaint) if complaint else Shut()
    if not element:
        return Shut(left=f"{it.what} divides numbers of unknown type, perhaps integers")
    why = "a quotient that is too large becomes a division by zero"
    lowest = it.add("Equal", (a, it.constant(_LOWEST[element])), why)
    minus = it.constant(np.array(-1, _LOWEST[element].dtype))
    is_over = it.add("And", (lowest, it.add("Equal", (b, minus), why)), why)
    if it.opset >= _SINCE_WHERE:
        zero = it.constant(np.array(0, _LOWEST[element].dtype))
        it.replace(1, it.add("Where", (is_over, zero, b), why))
    else:
        fits = it.add("Cast", (it.add("Not", (is_over,), why),), why, to=element)
        it.replace(1, it.add("Mul", (b, fits), why))
    return it.shut(f"{it.what}: by zero, or its quotient is too large")


def _sized(index: int) -> Callable[[_Shutting], Shut]:
    """Return what shuts an operator that makes as many elements as its input of that index says."""

    def shut_sizes(it: _Shutting) -> Shut:
        if it.is_open(index):
            it.check(SizeCheck(it.node.input(index), it.what, most_elements()))
        return it.shut()

    return shut_sizes


def _range(it: _Shutting) -> Shut:
    names = start, limit, delta = [it.node.input(index) for index in range(3)]
    constants = {name: it.scope.constant(name) for name in names}
    known = {name: one for name, one in constants.items() if one is not None}
    if all(it.is_open(index) or names[index] in known for index in range(3)):
        check = RangeCheck(start, limit, delta, it.what, most_elements(), known)
        if check.inputs:
            it.check(check)
    return it.shut()


def most_elements() -> int:
    """Return how many elements of 8 bytes this machine's memory holds; a tensor cannot have more.

    More would be an error of ONNX Runtime at best, and at worst the system ends the process.
    """
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8


def _has_lowest(array: Array) -> bool:
    return bool((array == np.iinfo(array.dtype).min).any())


DOORS: dict[str, Callable[[_Shutting], Shut]] = {
    "Attention": _attention,
    "ConstantOfShape": _sized(0),
    "ConvTranspose": _conv_transpose,
    "DFT": _ranked(0, 1),
    "Div": _division,
    "Einsum": _einsum,
    "Expand": _sized(1),
    "GRU": _gru,
    "LSTM": _lstm,
    "OneHot": _sized(1),
    "Range": _range,
    "ReverseSequence": _ranked(0, 2),
    "STFT": _stft,
    "Tile": _sized(1),
    "Unique": _unique,
}
"""ONNX's own operator -> what shuts it."""

_CONVOLUTIONS = ("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv")
_WINDOWED = frozenset((*_CONVOLUTIONS, "AveragePool", "LpPool", "MaxPool", "MaxUnpool"))
