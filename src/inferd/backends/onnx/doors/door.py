"""Doors: operators that end ONNX Runtime's process for some operands, and how each is shut.

If such an operand is an input of the model, a Check compares each request before it runs. If it
is computed, nodes are put before the operator that fail for it, as an operator may, and otherwise
pass it on unchanged: mostly a Reshape to the tensor's own shape, which copies nothing. A division
by zero is an error of ONNX Runtime, so the nodes divide by what must not be zero.
"""

from collections.abc import Callable

import numpy as np

from inferd.backends.onnx.doors.check import (
    DimsCheck,
    DivisionCheck,
    NonzeroCheck,
)
from inferd.backends.onnx.doors.contrib import CONTRIB, MICROSOFT
from inferd.backends.onnx.doors.pools import shut_pool
from inferd.backends.onnx.doors.scope import Scope
from inferd.backends.onnx.doors.shutting import Shut, Shutter, Shutting
from inferd.backends.onnx.doors.sizes import SIZES
from inferd.formats.onnx_graph import INT32, INT64, RowNode
from inferd.tensor.array import Array

_LOWEST: dict[int, Array] = {
    INT32: np.array(np.iinfo(np.int32).min, np.int32),
    INT64: np.array(np.iinfo(np.int64).min, np.int64),
}
_SINCE_WHERE, _SINCE_EQUAL = 9, 11
"""The opsets that brought Where, and Equal for all numbers."""

# Found by trials: from here on the loop over a window never ends (decision 0030).
_LARGEST_KERNEL = 1 << 31
# NumPy, which every tensor comes through, has at most 64; more read out of bounds.
_MOST_DIMS = 64


def shut(node: RowNode, scope: Scope, opset: int, most: int) -> Shut:
    """Return how `node` is shut; an empty Shut if it is no door. Raises Malformed.

    `scope` knows what its inputs are, `opset` is the version of ONNX's own operators, `most` the
    elements that an operator may make of a request's values.
    """
    refusal = "" if node.domain else _refusal(node)
    if refusal:
        return Shut(refusal=refusal)
    shutter = DOORS.get((node.domain, node.op))
    if shutter is None:
        return Shut()
    return shutter(Shutting(node, scope, opset, most))


def _refusal(node: RowNode) -> str:
    """Return why an operator can never run, "" if nothing speaks against it."""
    if node.op in _WINDOWED:
        for name in ("kernel_shape", "strides", "dilations"):
            numbers = node.numbers(name)
            if any(one < 1 for one in numbers):
                return f"{_words(node)} has {name} {numbers}, and each must be at least 1"
            # Multiplied as floats, which do not wrap around.
            if name == "kernel_shape" and np.prod([float(one) for one in numbers]) >= (
                _LARGEST_KERNEL
            ):
                return f"{_words(node)} has kernel_shape {numbers}: no run of it would end"
    if node.op == "GatherND" and not 0 <= node.number("batch_dims", 0) < _MOST_DIMS:
        return f"{_words(node)} has batch_dims {node.number('batch_dims', 0)}"
    return ""


def _words(node: RowNode) -> str:
    return f"the {node.op} that gives '{node.outputs[0] if node.outputs else ''}'"


def _gru(it: Shutting) -> Shut:
    if it.is_open(0):
        it.check(DimsCheck(it.node.input(0), it.what))
    else:
        # -1 is inferred by a division by the other dims, so Reshape fails if one of those is 0.
        # Two of them, since neither looks at the dim that it infers.
        it.reshape(0, [0, 0, -1], "no dim of input 0 may be 0")
        it.reshape(0, [-1, 0, 0], "no dim of input 0 may be 0")
    return it.shut()


def _lstm(it: Shutting) -> Shut:
    if it.is_open(0):
        # X is [sequence, batch, features] (ONNX, LSTM): only an empty batch aborts.
        it.check(DimsCheck(it.node.input(0), it.what, free=(0, 2)))
    else:
        it.reshape(0, [-1, 0, 0], "dim 1 of input 0 may not be 0")
    return it.shut()


def _conv_transpose(it: Shutting) -> Shut:
    if it.is_open(0):
        it.check(DimsCheck(it.node.input(0), it.what, free=(0,)))
        return it.shut()
    # Weights have the rank of the image, whose own may be unknown.
    weights = it.scope.dims(it.node.input(1))
    why = "no dim of input 0 may be 0, but the first"
    if weights:
        it.reshape(0, [-1] + [0] * (len(weights) - 1), why)
    else:
        it.fill(0, (0,), why)
    return it.shut()


def _einsum(it: Shutting) -> Shut:
    """A dim that two inputs share may not be 0: of some orders, its size is divided by."""
    terms = it.node.text("equation").replace(" ", "").partition("->")[0].split(",")
    letters = [letter for term in terms for letter in set(term)]
    for index, term in enumerate(terms):
        free = tuple(n for n, letter in enumerate(term) if letters.count(letter) < 2)
        # No dim of it is contracted or shared: whatever its dims, nothing is divided by them.
        if len(free) == len(term) and "." not in term:
            continue
        # An ellipsis stands for any number of dims, so places after it cannot be named.
        free = () if "." in term else free
        if it.is_open(index):
            it.check(DimsCheck(it.node.input(index), it.what, free=free))
        elif it.node.input(index) and it.scope.constant(it.node.input(index)) is None:
            it.fill(index, free, f"dims of input {index} that another one has may not be 0")
    return it.shut()


def _scan(it: Shutting) -> Shut:
    """It turns what it goes through, or gives, along another dim than the first: nothing empty.

    A computed input has no nodes put before it, after which its rank would no longer be known.
    """
    if any((*it.node.numbers("scan_input_axes"), *it.node.numbers("scan_output_axes"))):
        for index, name in enumerate(it.node.inputs):
            if it.is_open(index):
                it.check(DimsCheck(name, it.what))
    return it.shut()


def _unique(it: Shutting) -> Shut:
    # Without one, Unique flattens its input and never divides by a dim.
    if "axis" not in it.node.attributes:
        return Shut()
    axis = it.node.number("axis", 0)
    if it.is_open(0):
        it.check(DimsCheck(it.node.input(0), it.what, free=(axis,)))
    else:
        it.fill(0, (axis,), f"no dim of input 0 may be 0, but dim {axis}")
    return it.shut()


def _ranked(index: int, rank: int) -> Callable[[Shutting], Shut]:
    """Return what shuts an operator whose input of that index needs `rank` dims."""

    def shut_ranks(it: Shutting) -> Shut:
        if it.is_open(index):
            it.check(DimsCheck(it.node.input(index), it.what, rank, any_size=True))
        elif it.node.input(index):
            it.need_rank(index, rank)
        return it.shut()

    return shut_ranks


def _stft(it: Shutting) -> Shut:
    # Collects its checks and nodes in `it`; the Shut that it returns is incomplete here.
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


def _divisor(it: Shutting, index: int) -> None:
    """Let that input, a number, be anything but 0."""
    name = it.node.input(index)
    if it.is_open(index):
        it.check(NonzeroCheck(name, it.what))
        return
    constant = it.scope.constant(name)
    if name and (constant is None or not constant.all()):
        # x / x is 1, and for 0 the division that ONNX Runtime refuses with an error.
        unit = it.add("Div", (name, name), f"input {index} may not be 0")
        it.replace(index, it.add("Mul", (name, unit), f"input {index} may not be 0"))


def _attention(it: Shutting) -> Shut:
    for index in (4, 5):  # past_key and past_value
        if it.is_open(index):
            it.check(DimsCheck(it.node.input(index), it.what, 4, any_size=True))
        elif it.node.input(index):
            it.reshape(index, [0, 0, 0, 0], f"input {index} needs 4 dims")
    return it.shut()


def _division(it: Shutting) -> Shut:
    scope, (a, b) = it.scope, (it.node.input(0), it.node.input(1))
    # Div takes two of one type, so either tells.
    element = scope.element(a) or scope.element(b)
    left, right = scope.constant(a), scope.constant(b)
    # A constant divisor without -1, which is nearly every division: nothing can overflow.
    if right is not None and not (right == -1).any():
        return Shut()
    if element and element not in _LOWEST:
        return Shut()
    # Counts are never negative, so neither side of these can be what overflows.
    if (left is not None and not _has_lowest(left)) or scope.is_count(a) or scope.is_count(b):
        if it.is_open(1) and left is not None:
            it.check(DivisionCheck(a, b, it.what, {a: left}))
        return it.shut()
    known = {name: one for name, one in ((a, left), (b, right)) if one is not None}
    # Both sides are known before the run: a check costs less than nodes in the graph.
    if (it.is_open(0) or left is not None) and (it.is_open(1) or right is not None):
        check = DivisionCheck(a, b, it.what, known)
        if check.inputs:
            it.check(check)
            return it.shut()
        complaint = check.complaint({})
        return Shut(refusal=complaint) if complaint else Shut()
    why = "a quotient that is too large becomes a division by zero"
    if not element:
        if it.opset < _SINCE_EQUAL:
            return Shut(left=f"{it.what} divides numbers of unknown type, perhaps integers")
        it.replace(1, _divisor_of_any(it, a, b, why))
        return it.shut(f"{it.what}: by zero, or its quotient is too large")
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


def _divisor_of_any(it: Shutting, a: str, b: str, why: str) -> str:
    """Return the divisor `b`, or 0 where the quotient does not fit, of numbers of any type.

    Only the lowest integer is its own negative and not 0; of integers, which wrap around, only 0
    and -1 are the negatives of their squares. No float but 0 is its own negative.
    """
    nothing, none = (it.add("Sub", (one, one), why) for one in (a, b))
    is_own = it.add("Equal", (it.add("Sub", (nothing, a), why), a), why)
    is_some = it.add("Not", (it.add("Equal", (a, nothing), why),), why)
    squared = it.add("Add", (it.add("Mul", (b, b), why), b), why)
    is_minus = it.add("Equal", (squared, none), why)
    is_over = it.add("And", (it.add("And", (is_own, is_some), why), is_minus), why)
    return it.add("Where", (is_over, none, b), why)


def _has_lowest(array: Array) -> bool:
    return bool((array == np.iinfo(array.dtype).min).any())


_OWN: dict[str, Shutter] = {
    "Attention": _attention,
    "AveragePool": shut_pool,
    "ConvTranspose": _conv_transpose,
    "DFT": _ranked(0, 1),
    "Div": _division,
    "Einsum": _einsum,
    "GRU": _gru,
    "LSTM": _lstm,
    "MaxPool": shut_pool,
    "ReverseSequence": _ranked(0, 2),
    "Scan": _scan,
    "STFT": _stft,
    "Unique": _unique,
}
"""ONNX's own operator -> what shuts it."""

DOORS: dict[tuple[str, str], Shutter] = {
    **{("", op): one for op, one in (SIZES | _OWN).items()},
    **{(MICROSOFT, op): one for op, one in CONTRIB.items()},
}
"""Domain and operator -> what shuts it."""

_CONVOLUTIONS = ("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv")
_WINDOWED = frozenset((*_CONVOLUTIONS, "AveragePool", "LpPool", "MaxPool", "MaxUnpool"))
