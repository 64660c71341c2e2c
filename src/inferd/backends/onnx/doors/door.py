"""Doors: operators that end ONNX Runtime's process for some operands, and how each is shut.

If such an operand is an input of the model, a Check compares each request before it runs. If it
is computed, nodes are put before the operator that fail for it, as an operator may, and otherwise
pass it on unchanged: mostly a Reshape to the tensor's own shape, which copies nothing. A division
by zero is an error of ONNX Runtime, so the nodes divide by what must not be zero.

Of a pool, the image is mostly an input of the model, with convolutions between: how high it has to
be is computed when the model loads.
"""

import numpy as np

from inferd.backends.onnx.doors.check import (
    division_check,
    joined_check,
    least_dim_check,
    nonzero_check,
)
from inferd.backends.onnx.doors.scope import Scope
from inferd.backends.onnx.doors.shutting import Shutter, Shutting
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


def shut(node: RowNode, scope: Scope, opset: int, most: int) -> Shutting | None:
    """Return how `node` is shut, None if it is no door. Raises Malformed.

    `scope` knows what its inputs are, `opset` is the version of ONNX's own operators, `most` the
    elements that an operator may make of a request's values.
    """
    refusal = "" if node.domain else _refusal(node)
    shutter = DOORS.get((node.domain, node.op))
    if shutter is None and not refusal:
        return None
    it = Shutting(node, scope, opset, most)
    it.refusal = refusal
    if shutter is not None and not refusal:
        shutter(it)
    return it


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
    parts = node.number("num_outputs", 0) if node.op == "Split" else 0
    if 0 < parts < len(node.outputs):
        # Where the dim is known, that is read out of bounds as the model loads.
        return f"{_words(node)} has num_outputs {parts}, and {len(node.outputs)} outputs"
    return ""


def _words(node: RowNode) -> str:
    return f"the {node.op} that gives '{node.outputs[0] if node.outputs else ''}'"


def _gru(it: Shutting) -> None:
    if not it.compares(0):
        # -1 is inferred by a division by the other dims, so Reshape fails if one of those is 0.
        # Two of them, since neither looks at the dim that it infers.
        it.reshape(0, [0, 0, -1], "no dim of input 0 may be 0")
        it.reshape(0, [-1, 0, 0], "no dim of input 0 may be 0")


def _lstm(it: Shutting) -> None:
    # X is [sequence, batch, features] (ONNX, LSTM): only an empty batch aborts.
    if not it.compares(0, free=(0, 2)):
        it.reshape(0, [-1, 0, 0], "dim 1 of input 0 may not be 0")


def _conv(it: Shutting) -> None:
    """Weights that a request decides may have windows without elements, which never end.

    Those of the file are refused as it loads, and a kernel_shape is compared with the weights.
    """
    if "kernel_shape" in it.node.attributes:
        return
    if not it.compares(1, free=(0, 1)) and it.scope.is_valued(it.node.input(1)):
        it.fill(1, (0, 1), "no dim of input 1 may be 0, but the first two")


def _conv_transpose(it: Shutting) -> None:
    if it.compares(0, free=(0,)):
        return
    # Weights have the rank of the image, whose own may be unknown.
    weights = it.scope.dims(it.node.input(1))
    why = "no dim of input 0 may be 0, but the first"
    if weights:
        it.reshape(0, [-1] + [0] * (len(weights) - 1), why)
    else:
        it.fill(0, (0,), why)


def _einsum(it: Shutting) -> None:
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
        if it.compares(index, free=free):
            continue
        if it.node.input(index) and it.scope.constant(it.node.input(index)) is None:
            it.fill(index, free, f"dims of input {index} that another one has may not be 0")


def _scan(it: Shutting) -> None:
    """It turns what it goes through, or gives, along another dim than the first: nothing empty.

    A computed input has no nodes put before it, after which its rank would no longer be known.
    """
    if any((*it.node.numbers("scan_input_axes"), *it.node.numbers("scan_output_axes"))):
        for index in range(len(it.node.inputs)):
            it.compares(index)


def _concat(it: Shutting) -> None:
    """Inputs without elements are not compared with the rest, but get room in the result."""
    names, axis = it.node.inputs, it.node.number("axis", 0)
    if it.node.domain:
        names = names[2::3]  # QLinearConcat: scale and zero point follow each
    is_new = it.node.number("new_axis", 0) != 0
    if it.node.op == "ConcatFromSequence":
        made = it.scope.producer(it.node.input(0))
        names = made.inputs if made is not None and made.op == "SequenceConstruct" else []
    sources = {name: _origin(it, name) for name in names}
    taken = tuple(dict.fromkeys(one for one in sources.values() if one in it.scope.open_inputs))
    others = [it.scope.dims(name) for name in names if sources[name] not in taken]
    fixed = [dims for dims in others if dims is not None]
    risky = _differing(it, taken, axis, is_new=is_new)
    if taken and risky and len(taken) + len(fixed) > 1:
        place = None if is_new else axis
        is_of_batches = risky == {0}
        it.checks.append(joined_check(taken, it.what, place, fixed, is_of_batches=is_of_batches))


def _origin(it: Shutting, name: str) -> str:
    """Return the value that has the dims of `name` because it was made of it."""
    for _ in range(_MOST_STEPS):
        node = it.scope.producer(name)
        if node is None or node.domain or node.op not in _ALIKE or node.outputs[0] != name:
            break
        name = node.input(0)
    return name


def _differing(it: Shutting, names: tuple[str, ...], axis: int, *, is_new: bool) -> set[int]:
    """Return the dims in which inputs may differ, though they must not, by being 0 in one."""
    found: set[int] = set()
    for name in names:
        dims = it.scope.declared.get(name)
        if dims is None:
            return {0, 1}  # any
        place = None if is_new else axis % (len(dims) or 1)
        found.update(n for n, dim in enumerate(dims) if dim <= 0 and n != place)
    return found


def _unique(it: Shutting) -> None:
    # Without one, Unique flattens its input and never divides by a dim.
    if "axis" not in it.node.attributes:
        return
    axis = it.node.number("axis", 0)
    if not it.compares(0, free=(axis,)):
        it.fill(0, (axis,), f"no dim of input 0 may be 0, but dim {axis}")


def _ranked(index: int, rank: int) -> Shutter:
    """Return what shuts an operator whose input of that index needs `rank` dims."""

    def shut_ranks(it: Shutting) -> None:
        if not it.compares(index, rank, any_size=True) and it.node.input(index):
            it.need_rank(index, rank)

    return shut_ranks


def _stft(it: Shutting) -> None:
    _ranked(0, 2)(it)
    window, length = 2, 3
    if not it.compares(window, 1) and it.node.input(window):
        it.need_rank(window, 1)
        it.fill(window, (), "the window may not be empty")
    for index in (1, length):
        _divisor(it, index)


def _divisor(it: Shutting, index: int) -> None:
    """Let that input, a number, be anything but 0."""
    name = it.node.input(index)
    if it.is_open(index):
        it.checks.append(nonzero_check(name, it.what))
        return
    constant = it.scope.constant(name)
    if name and (constant is None or not constant.all()):
        # x / x is 1, and for 0 the division that ONNX Runtime refuses with an error.
        unit = it.add("Div", (name, name), f"input {index} may not be 0")
        it.replace(index, it.add("Mul", (name, unit), f"input {index} may not be 0"))


def _attention(it: Shutting) -> None:
    for index in (4, 5):  # past_key and past_value
        if not it.compares(index, 4, any_size=True) and it.node.input(index):
            it.reshape(index, [0, 0, 0, 0], f"input {index} needs 4 dims")


def _layer_normalization(it: Shutting) -> None:
    """A bias that an empty name leaves out is read all the same, as the model loads."""
    bias = 2
    if len(it.node.inputs) > bias and not it.node.input(bias):
        it.replace(bias, "")


def _division(it: Shutting) -> None:
    scope, (a, b) = it.scope, (it.node.input(0), it.node.input(1))
    # Div takes two of one type, so either tells.
    element = scope.element(a) or scope.element(b)
    left, right = scope.constant(a), scope.constant(b)
    # A constant divisor without -1, which is nearly every division: nothing can overflow.
    if right is not None and not (right == -1).any():
        return
    if element and element not in _LOWEST:
        return
    # Counts are never negative, so neither side of these can be what overflows.
    if (left is not None and not _has_lowest(left)) or scope.is_count(a) or scope.is_count(b):
        if it.is_open(1) and left is not None:
            it.checks.append(division_check(a, b, it.what, {a: left}))
        return
    known = {name: one for name, one in ((a, left), (b, right)) if one is not None}
    # Both sides are known before the run: a check costs less than nodes in the graph.
    if (it.is_open(0) or left is not None) and (it.is_open(1) or right is not None):
        check = division_check(a, b, it.what, known)
        if check.inputs:
            it.checks.append(check)
            return
        it.refusal = check.complaint({})
        return
    why = "a quotient that is too large becomes a division by zero"
    if not element:
        if it.opset < _SINCE_EQUAL:
            it.left = f"{it.what} divides numbers of unknown type, perhaps integers"
            return
        it.replace(1, _divisor_of_any(it, a, b, why))
        it.called = f"{it.what}: by zero, or its quotient is too large"
        return
    lowest = it.add("Equal", (a, it.constant(_LOWEST[element])), why)
    minus = it.constant(np.array(-1, _LOWEST[element].dtype))
    is_over = it.add("And", (lowest, it.add("Equal", (b, minus), why)), why)
    if it.opset >= _SINCE_WHERE:
        zero = it.constant(np.array(0, _LOWEST[element].dtype))
        it.replace(1, it.add("Where", (is_over, zero, b), why))
    else:
        fits = it.add("Cast", (it.add("Not", (is_over,), why),), why, to=element)
        it.replace(1, it.add("Mul", (b, fits), why))
    it.called = f"{it.what}: by zero, or its quotient is too large"


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


# Images are [batch, channels, height, width]; only the height is divided by.
_HEIGHT = 2
_IMAGE_WINDOW = 2
"""The number of dims that a window of images has."""

# The file is not checked for cycles yet, and following one would never end.
_MOST_STEPS = 10_000
_SINCE_LESS = 9
"""The opset that brought Less for integers."""

_ALIKE = frozenset(
    (
        *("Abs", "BatchNormalization", "Cast", "Clip", "Dropout", "Elu", "Erf", "Exp", "Gelu"),
        *("HardSigmoid", "HardSwish", "Identity", "InstanceNormalization", "LRN", "LeakyRelu"),
        *("Mish", "Neg", "PRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Sqrt", "Tanh"),
    )
)
"""Operators that make images as high as their first input."""


def _pool(it: Shutting) -> None:
    """Let a pool of images pass only if its window fits: others it refuses, or ends the process."""
    least = _least(it.node, 1) - (_stride(it.node) - 1)  # a last window that is cut off runs
    if least <= 1:
        return
    source, height = _traced(it, least)
    if source in it.scope.open_inputs:
        declared = it.scope.declared.get(source)
        if declared is None or len(declared) <= _HEIGHT or declared[_HEIGHT] < height:
            it.checks.append(least_dim_check(source, it.what, _HEIGHT, height))
    elif it.opset >= _SINCE_LESS and it.scope.dims(source) is None:
        why = f"images need a height of {least}"
        shape = it.add("Shape", (it.node.input(0),), why)
        found = it.add("Gather", (shape, it.constant(np.array(_HEIGHT))), why)
        is_low = it.add("Less", (found, it.constant(np.array(least))), why)
        it.keep_shape(0, shape, it.unit(it.add("Not", (is_low,), why), why), why)


def _traced(it: Shutting, least: int) -> tuple[str, int]:
    """Return the image that the pool's comes from, and how high it must be for `least` there."""
    name = it.node.input(0)
    for _ in range(_MOST_STEPS):
        node = it.scope.producer(name)
        if node is None or node.domain:
            break
        # MaxPool's second output has indices, not an image.
        if node.op in ("Conv", "AveragePool", "MaxPool") and node.outputs[0] == name:
            before = _least(node, least, it.scope.dims(node.input(1)))
            if not before:
                break
            least = before
        elif node.op not in _ALIKE:
            break
        name = node.input(0)
    return name, least


def _least(node: RowNode, least: int, weights: tuple[int, ...] | None = None) -> int:
    """Return how high an image must be for a window to make one of `least` of it, 0 if unknown."""
    # Conv may leave kernel_shape out; it is then inferred from W, [M, C, height, width] (ONNX).
    kernel = node.numbers("kernel_shape") or list((weights or ())[_HEIGHT:])
    if len(kernel) != _IMAGE_WINDOW:
        return 0
    above = (least - 1) * _stride(node)
    kind = node.text("auto_pad")
    # Padded so that ceil(height / stride) windows fit, however large the kernel is.
    if kind.startswith("SAME"):
        return above + 1
    pads = node.numbers("pads") if kind in ("", "NOTSET") else []
    padded = pads[0] + pads[_IMAGE_WINDOW] if len(pads) == 2 * _IMAGE_WINDOW else 0
    dilation = (node.numbers("dilations") or [1])[0]
    return max(1, above + (kernel[0] - 1) * dilation + 1 - padded)


def _stride(node: RowNode) -> int:
    return (node.numbers("strides") or [1])[0]


def _inverse(it: Shutting) -> None:
    """A matrix that is not square is written out of bounds; its two last dims are compared."""
    why = "matrices must be square"
    shape = it.add("Shape", (it.node.input(0),), why)
    rows, columns = (
        it.add("Gather", (shape, it.constant(np.array(place))), why) for place in (-2, -1)
    )
    it.keep_shape(0, shape, it.unit(it.add("Equal", (rows, columns), why), why), why)


def _feature_vectorizer(it: Shutting) -> None:
    """Without rows it ends the process; inputs of different numbers of rows it refuses itself."""
    lengths = it.node.numbers("inputdimensions")
    if any(one < 0 for one in lengths):
        it.refusal = f"{it.what} has inputdimensions {lengths}"
    elif not it.compares(0, 1, free=tuple(range(1, _MOST_DIMS))):
        why = "input 0 needs a row"
        shape = it.add("Shape", (it.node.input(0),), why)
        rows = it.add("Gather", (shape, it.constant(np.array([0]))), why)
        # 0 / 0 if there is none.
        it.keep_shape(0, shape, it.add("Div", (rows, rows), why), why)


def _quantised(weights: int, scale: int, zero: int, bias: int) -> Shutter:
    """Return what shuts a product with weights, whose inputs have these indices.

    ONNX Runtime does not compare their shapes. Those in the file are compared at load.
    """

    def shut_product(it: Shutting) -> None:
        names = [it.node.input(index) for index in (weights, scale, zero, bias)]
        dims = {name: it.scope.dims(name) for name in names if name}
        # Quantising tools write them as constants; elsewhere there is nothing to compare at load.
        if None in dims.values():
            it.left = f"{it.what} has weights, scales or zero points that are no constants"
            return
        matrix, scales = (dims.get(name) or () for name in names[:2])
        columns = matrix[-1:]
        is_sound = (
            len(matrix) > 1
            and 0 not in matrix
            # The forms that its kernels read: one for all, or one for each column, also of a
            # stack of matrices. Others are read beyond their end.
            and scales in ((), (1,), columns, (*matrix[:-2], 1, *columns))
            and dims.get(names[2], scales) == scales
            and dims.get(names[3], columns) == columns
        )
        if not is_sound:
            shown = ", ".join(f"{name} {list(one or ())}" for name, one in dims.items())
            it.refusal = f"{it.what} has weights, scales or a bias that do not fit: {shown}"

    return shut_product


_OWN: dict[str, Shutter] = {
    "Attention": _attention,
    "AveragePool": _pool,
    "Concat": _concat,
    "ConcatFromSequence": _concat,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DFT": _ranked(0, 1),
    "Div": _division,
    "Einsum": _einsum,
    "GRU": _gru,
    "LSTM": _lstm,
    "LayerNormalization": _layer_normalization,
    "MaxPool": _pool,
    "ReverseSequence": _ranked(0, 2),
    "Scan": _scan,
    "STFT": _stft,
    "Unique": _unique,
}
"""ONNX's own operator -> what shuts it."""

_CONTRIB: dict[str, Shutter] = {
    "DynamicQuantizeMatMul": _quantised(1, 2, 3, 4),
    "FusedConv": _conv,
    "Inverse": _inverse,
    "MatMulIntegerToFloat": _quantised(1, 3, 5, 6),
    "QLinearConcat": _concat,
}
"""Operator of com.microsoft, which ONNX Runtime adds to ONNX's -> what shuts it."""

DOORS: dict[tuple[str, str], Shutter] = {
    **{("", op): one for op, one in (SIZES | _OWN).items()},
    **{("com.microsoft", op): one for op, one in _CONTRIB.items()},
    ("ai.onnx.ml", "FeatureVectorizer"): _feature_vectorizer,
}
"""Domain and operator -> what shuts it."""

_CONVOLUTIONS = ("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv")
_WINDOWED = frozenset((*_CONVOLUTIONS, "AveragePool", "LpPool", "MaxPool", "MaxUnpool"))
