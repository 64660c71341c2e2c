"""Rows with NaN, infinity or values of no training: where a converted model answers otherwise.

Libraries differ most where a number is missing. scikit-learn's linear models refuse such rows, its
trees send them to the larger side, and what a converter makes of either answers them somehow. So
each column is tried with such numbers. Where the library refuses, or answers otherwise than the
converted model, the latter refuses them as well, by operators in front of it.

Encoders of categories refuse those that they do not know, and converted ones may give them a
number. Nothing tells which are known, so such models are not converted.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, NamedTuple

import numpy as np

from inferd.backends.estimator.model import Columns
from inferd.tensor.array import Array

_ROWS = 200
"""How many rows a column is tried with."""

_MOST_COLUMNS = 64
"""If there are more and not all are alike, rows are refused whichever column is unusual."""

_KINDS = ((np.nan,), (np.inf, -np.inf))

Outcome = Literal["same", "refused", "other"]
"""What a converted model does with rows: it answers as the library does, refuses them, or
answers otherwise, or rows that the library refuses."""

Compare = Callable[[Columns], Outcome]


class ColumnNumber(NamedTuple):
    """A column: its array in `Columns`, and which column of that."""

    name: str
    number: int


class RefusedValues(NamedTuple):
    """The columns in which a converted model refuses NaN, and those in which infinity."""

    nan: Sequence[ColumnNumber] = ()
    infinity: Sequence[ColumnNumber] = ()

    def __str__(self) -> str:
        """Return in words what is refused, "" for nothing."""
        parts = [
            f"{kind} in {len(places)} {'columns' if len(places) > 1 else 'column'}"
            for kind, places in zip(("NaN", "infinity"), self, strict=True)
            if places
        ]
        return f"refuses {' and '.join(parts)}" if parts else ""


def refused_in(columns: Columns, compare: Compare) -> RefusedValues:
    """Return where a model refuses what, tried with some of the rows in `columns`."""
    places = [one for one in _places(columns) if columns[one.name].dtype.kind == "f"]
    return RefusedValues(
        *(_others(columns, dict.fromkeys(places, kind), compare) for kind in _KINDS)
    )


def unseen_in(columns: Columns, compare: Compare) -> Sequence[ColumnNumber]:
    """Return where values that no row in `columns` has are answered otherwise."""
    unseen = {place: _unseen(columns[place.name], place.number) for place in _places(columns)}
    return _others(columns, unseen, compare)


def _others(
    columns: Columns, unusual: Mapping[ColumnNumber, Sequence[object]], compare: Compare
) -> list[ColumnNumber]:
    """Return the places in which `unusual` values are answered otherwise, all if there are many."""
    # All columns at once first: usually nothing is wrong, and one run says so.
    outcome = compare(_tried(columns, unusual))
    if outcome == "same" or (len(unusual) > _MOST_COLUMNS and outcome == "refused"):
        return []
    if len(unusual) > _MOST_COLUMNS:
        return list(unusual)
    tried = {place: compare(_tried(columns, {place: unusual[place]})) for place in unusual}
    return [place for place, outcome in tried.items() if outcome == "other"]


def _unseen(array: Array, number: int) -> Sequence[object]:
    """Return values that a column does not have, numbers near to those that it has."""
    values = np.unique(array.reshape(len(array), -1)[:, number])
    if array.dtype == object:
        # Longer than any known text, so it is none of them.
        return [f"{max(values, key=len)}?"]
    if array.dtype.kind != "f":
        limits = np.iinfo(array.dtype)
        beyond = int(values[0]) - 1, int(values[-1]) + 1
        return [one for one in beyond if limits.min <= one <= limits.max]
    known = values[np.isfinite(values)]
    # Between two neighbours: encoders of numeric categories know neither, models of numbers both.
    return [known[:2].mean()] if len(known) > 1 else []


def _places(columns: Columns) -> list[ColumnNumber]:
    return [
        ColumnNumber(name, number)
        for name, array in columns.items()
        if array.dtype.kind in "Oiuf"
        for number in range(array.shape[1] if array.ndim > 1 else 1)
    ]


def _tried(columns: Columns, unusual: Mapping[ColumnNumber, Sequence[object]]) -> Columns:
    """Return rows of `columns` with one of the `unusual` values in one place each, in turn."""
    pairs = [(place, value) for place, values in unusual.items() for value in values]
    row_count = len(next(iter(columns.values())))
    # np.resize repeats the rows in turn until there are enough.
    chosen = np.resize(np.arange(row_count), max(_ROWS, len(pairs)))
    tried = {name: array[chosen] for name, array in columns.items()}
    for row in range(len(chosen) if pairs else 0):
        (name, number), value = pairs[row % len(pairs)]
        array = tried[name]
        array.reshape(len(array), -1)[row, number] = value
    return tried


def guarded(content: bytes, refused: RefusedValues, columns: Columns) -> bytes:
    """Return an ONNX model that refuses rows as `refused` says, and is otherwise that in `content`.

    Its inputs are `columns`, or one array of them all. ONNX Runtime reports the name of the
    operator that fails, so that says why.
    """
    if not refused.nan and not refused.infinity:
        return content
    onnx = import_module("onnx")
    model = onnx.load_model_from_string(content)
    graph = model.graph
    inputs = [port.name for port in graph.input]
    weights = _weights(refused, columns, inputs)
    renamed = {name: f"{name} checked" for name in weights}
    nodes = []
    for port in graph.input:
        if port.name in weights:
            nodes += _guard(onnx, graph, port, *weights[port.name], renamed[port.name])
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    nodes += graph.node
    del graph.node[:]
    graph.node.extend(nodes)
    made: bytes = model.SerializeToString()
    return made


def _weights(
    refused: RefusedValues, columns: Columns, inputs: Sequence[str]
) -> Mapping[str, tuple[Array, Array]]:
    """Return, for each input that is guarded, 1 for the columns with NaN, and with infinity."""
    is_single = len(inputs) == 1 < len(columns)
    found: dict[str, tuple[Array, Array]] = {}
    names = list(columns)
    for kind, places in enumerate(refused):
        for name, number in places:
            at = names.index(name)
            width = len(columns) if is_single else columns[name][:1].size
            empty = (np.zeros((width, 1)), np.zeros((width, 1)))
            pair = found.setdefault(inputs[0 if is_single else at], empty)
            pair[kind][at if is_single else number] = 1
    return found


def _guard(
    onnx: Any, graph: Any, port: Any, nan: Array, infinity: Array, checked: str
) -> list[Any]:
    """Return operators that give an input under the name `checked`, or fail.

    They count the unusual numbers of each row, and look up an index of 1 in a table of one entry.
    """
    make, name = onnx.helper.make_node, port.name
    kind = port.type.tensor_type.elem_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    prefix = f"{name} guard"

    def constant(suffix: str, array: Array) -> str:
        graph.initializer.append(onnx.numpy_helper.from_array(array, f"{prefix} {suffix}"))
        return f"{prefix} {suffix}"

    def node(op: str, inputs: Sequence[str], suffix: str, **more: Any) -> Any:
        return make(op, list(inputs), [f"{prefix} {suffix}"], **more)

    # Of NaN and infinity, the difference from itself is NaN.
    both = constant("both", infinity.astype(dtype))
    missing = constant("nan", (nan - infinity).astype(dtype))
    what = " or ".join(["NaN"] * bool(nan.any()) + ["infinity"] * bool(infinity.any()))
    return [
        node("Sub", [name, name], "difference"),
        node("IsNaN", [f"{prefix} difference"], "is either"),
        node("Cast", [f"{prefix} is either"], "either", to=kind),
        node("MatMul", [f"{prefix} either", both], "either count"),
        node("IsNaN", [name], "is missing"),
        node("Cast", [f"{prefix} is missing"], "missing", to=kind),
        node("MatMul", [f"{prefix} missing", missing], "missing count"),
        node("Add", [f"{prefix} either count", f"{prefix} missing count"], "count"),
        node("Greater", [f"{prefix} count", constant("half", np.array(0.5, dtype))], "is wrong"),
        node("Cast", [f"{prefix} is wrong"], "index", to=onnx.TensorProto.INT64),
        node(
            "Gather",
            [constant("table", np.zeros(1, bool)), f"{prefix} index"],
            "never",
            name=f"input '{name}' has {what}, refused because only the library could answer it",
        ),
        make("Where", [f"{prefix} never", name, name], [checked]),
    ]
