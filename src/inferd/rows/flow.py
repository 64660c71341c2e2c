"""Flow: follows the rows of a batch through the operators of a graph.

Operators without a rule may do what they like with tensors that are the same for all rows; of rows
they leave open what becomes of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from inferd.formats.onnx_graph import Constant, Function, OnnxFile, OnnxGraph, RowNode, bound
from inferd.rows.size import ONE, Size, Sizes
from inferd.rows.value import LostTensor, Mixed, RowTensor, Unclear, mixes

RowTensors = Sequence[RowTensor | None]
"""The inputs of an operator, None for one that is left out."""

Rule = Callable[["RowFlow", RowNode, RowTensors], RowTensor | Sequence[RowTensor]]
"""Returns what an operator makes of its inputs."""

Scope = dict[str, RowTensor | LostTensor]

MOST_STEPS = 50_000
"""Loops are followed several times, functions at each call; not more often than this in all."""

# ONNX forbids recursion of functions, but nothing has checked the file.
_MOST_CALLS = 50

_TAKEN = ("", "ai.onnx.ml", "com.microsoft")
"""Domains in which ONNX Runtime runs its own operators rather than a model's functions."""


class RowFlow:
    """What is known of one model. `rules` are by domain and operator.

    `takes_scales` is whether the scales of dynamic quantisation count as the same for all rows.
    `ends` are lengths of pieces that were cut off at most at another length: the piece is as long,
    or all that there was, more than 1.
    """

    def __init__(
        self,
        model: OnnxFile,
        rules: Mapping[tuple[str, str], Rule],
        *,
        takes_scales: bool = False,
    ) -> None:
        self.takes_scales = takes_scales
        self.opsets = model.opsets
        self.functions = model.functions
        self._rules = rules
        self.ends: dict[Size, Size] = {}
        self._letters = 0
        self._steps = 0
        self._calls = 0
        self._together: dict[str, str] = {}

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return self.opsets.get("", 0)

    def letter(self) -> Size:
        """Return a length of which nothing is known but that it is the same for all requests."""
        self._letters += 1
        return Size(1, (f"n{self._letters}",))

    def letters(self, count: int) -> Sizes:
        """Return `count` lengths of which nothing is known."""
        return tuple(self.letter() for _ in range(count))

    def join(self, *values: RowTensor) -> frozenset[str]:
        """Note that an operator takes the rows of all `values` as those of one batch."""
        sources = frozenset().union(*(value.sources for value in values))
        roots = sorted({self._root(name) for name in sources})
        for root in roots[1:]:
            # Union-find without ranks: a model has a few inputs. Sorted,
            # so that errors name them alike.
            self._together[root] = roots[0]
        return sources

    def are_together(self, *values: RowTensor) -> bool:
        """Tell whether the rows of all `values` are known to be those of one batch."""
        return len({self._root(name) for value in values for name in value.sources}) < 2

    def _root(self, name: str) -> str:
        while name in self._together:
            name = self._together[name]
        return name

    def crossing(self, node: RowNode, *values: RowTensor) -> Mixed:
        """Return the error for an operator that brings all rows together with all others."""
        if self.are_together(*values):
            return mixes(node, "brings each row together with all others")
        names = sorted(frozenset().union(*(value.sources for value in values)))
        return Mixed(
            f"{node} brings each row of one input together with all of another: the first dims of "
            f"{', '.join(names)} are not the same batch",
            has_batch_dim=False,
        )

    def run(self, nodes: Sequence[RowNode], outputs: Sequence[str], scope: Scope) -> None:
        """Add to `scope` what `nodes` make of what is in it, as far as `outputs` need it.

        Raises Mixed, and Unclear if it takes too long.
        """
        # What no output needs may mix rows as it likes, as exporters
        # leave checks and training parts.
        for node in _needed(nodes, outputs):
            self._steps += 1
            if self._steps > MOST_STEPS:
                msg = f"its loops and functions have more than {MOST_STEPS} steps"
                raise Unclear(msg)
            taken = [
                scope.get(name, LostTensor(f"there is no '{name}'")) if name else None
                for name in node.inputs
            ]
            lost = next((value for value in taken if isinstance(value, LostTensor)), None)
            if lost is None:
                values = [value for value in taken if not isinstance(value, LostTensor)]
                try:
                    made: Sequence[RowTensor | LostTensor] = self._results(node, values, scope)
                # Not raised: an output that does not depend on this one may still be followed,
                # and a later Mixed says more.
                except Unclear as error:
                    lost = LostTensor(f"{node}: {error.reason}")
            if lost is not None:
                made = [lost] * len(node.outputs)
            scope.update((name, one) for name, one in zip(node.outputs, made, strict=False) if name)

    def apply(self, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
        """Return what one operator, without graphs in it, makes of `values`.

        Raises Mixed, Unclear.
        """
        self._steps += 1
        if self._steps > MOST_STEPS:
            msg = f"it has more than {MOST_STEPS} steps"
            raise Unclear(msg)
        return self._results(node, values, {})

    def scope_of(self, graph: OnnxGraph, outer: Mapping[str, RowTensor | LostTensor]) -> Scope:
        """Return what the nodes of `graph` see before the first has run."""
        return {**outer, **{name: constant_value(one) for name, one in graph.constants.items()}}

    def results_of(self, graph: OnnxGraph, scope: Scope) -> list[RowTensor]:
        """Run `graph`, and return its outputs. Raises Unclear, Mixed."""
        self.run(graph.nodes, graph.outputs, scope)
        return [known(scope, name) for name in graph.outputs]

    def _results(self, node: RowNode, values: RowTensors, scope: Scope) -> Sequence[RowTensor]:
        if control := _CONTROL.get((node.domain, node.op)):
            return control(self, node, values, scope)
        function = self.functions.get((node.domain, node.op))
        if function is not None:
            if node.domain in _TAKEN:
                msg = "a function has the name of what may be an operator of the runtime's own"
                raise Unclear(msg)
            return self._call(function, node, values)
        rule = self._rules.get((node.domain, node.op))
        is_plain = all(value is None or value.is_plain for value in values)
        _check_places(node, values)
        if rule is None and not is_plain:
            msg = "the operator is not known"
            raise Unclear(f"{msg} (domain {node.domain})" if node.domain else msg)
        try:
            made = rule(self, node, values) if rule is not None else ()
        except Unclear:
            if not is_plain:
                raise
            made = ()
        results = [made] if isinstance(made, RowTensor) else list(made)
        results = _counting(node, values, results)
        if not is_plain and len(results) < len([name for name in node.outputs if name]):
            msg = "it is not known what all its outputs are"
            raise Unclear(msg)
        return [*results, *[RowTensor(None)] * (len(node.outputs) - len(results))]

    def _call(self, function: Function, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
        if self._calls >= _MOST_CALLS:
            msg = f"functions call functions, deeper than {_MOST_CALLS}"
            raise Unclear(msg)
        attributes = function.defaults | node.attributes
        # A function sees nothing of the graph around it (onnx.proto, FunctionProto).
        scope: Scope = {}
        for name, value in zip(function.inputs, values, strict=False):
            if value is not None:
                scope[name] = value
        nodes = [_without(bound(one, attributes), function.inputs, scope) for one in function.nodes]
        before, self._calls = self.opsets, self._calls + 1
        # A function's own opset_import decides over the operators in it.
        self.opsets = {**before, **function.opsets}
        try:
            self.run(nodes, function.outputs, scope)
        finally:
            self.opsets, self._calls = before, self._calls - 1
        return [known(scope, name) for name in function.outputs]


# Operators whose rules know what to do with the number of rows.
_COUNTING = (
    "Add", "Cast", "CastLike", "Concat", "ConstantOfShape", "Div", "Equal", "Expand", "Gather",
    "Identity", "Max", "Min", "Mod", "Mul", "Pad", "Range", "Reshape", "Resize", "Shape", "Size",
    "Slice", "Split", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Upsample", "Where",
)  # fmt: skip
_COUNT = frozenset(("", op) for op in _COUNTING)


# Operators whose rules know what to do with the places of rows.
_FINDERS = (
    "Cast", "Concat", "Expand", "Gather", "GatherND", "Identity", "Reshape", "Shape", "Size",
    "Squeeze", "Unsqueeze",
)  # fmt: skip
_FINDING = frozenset(("", op) for op in _FINDERS)
_TAKING_PAIRS = frozenset(("", op) for op in ("Cast", "GatherND", "Identity", "Shape", "Size"))


def _check_places(node: RowNode, values: RowTensors) -> None:
    """Raise Mixed for an operator that may do other than find rows by their places."""
    for value in values:
        if value is not None and value.is_place:
            is_pair = value.rank > 1 and value.dims[-1] != ONE
            if (node.domain, node.op) not in (_TAKING_PAIRS if is_pair else _FINDING):
                raise mixes(node, "computes with the places of rows in the batch")


def _counting(node: RowNode, values: RowTensors, results: list[RowTensor]) -> list[RowTensor]:
    """Return `results`, which depend on the number of rows if one of `values` does."""
    if not any(value is not None and value.counts for value in values):
        return results
    if (node.domain, node.op) in _COUNT:
        return [one if one.axis is not None else _counted(one) for one in results]
    if any(value is not None and value.axis is not None for value in values):
        raise mixes(node, "computes with the number of rows")
    return [replace(result, counts=True, numbers=None) for result in results]


def _counted(value: RowTensor) -> RowTensor:
    """Return what was made of the number of rows: it depends on it unless its numbers do not."""
    numbers = value.numbers or (None,)
    is_known = all(isinstance(one, Size) and not one.has_batch for one in numbers)
    return replace(value, counts=not is_known)


def known(scope: Mapping[str, RowTensor | LostTensor], name: str) -> RowTensor:
    """Return what `name` is. Raises Unclear if that is lost."""
    value = scope.get(name, LostTensor(f"there is no '{name}'"))
    if isinstance(value, LostTensor):
        raise Unclear(value.reason)
    return value


def constant_value(constant: Constant) -> RowTensor:
    """Return a constant as a value."""
    numbers = constant.numbers
    return RowTensor(
        tuple(Size(max(dim, 0)) for dim in constant.dims),
        numbers=None
        if numbers is None
        else tuple(one if isinstance(one, float) else Size(int(one)) for one in numbers),
    )


def _without(node: RowNode, names: Sequence[str], scope: Scope) -> RowNode:
    """Return `node` without those inputs of a function that its call leaves out."""
    missing = [name for name in names if name not in scope]
    inputs = ["" if name in missing else name for name in node.inputs]
    return RowNode(node.op, node.domain, node.name, inputs, node.outputs, node.attributes)


def _needed(nodes: Sequence[RowNode], outputs: Sequence[str]) -> list[RowNode]:
    """Return the nodes that `outputs` depend on, in their order."""
    wanted, found = set(outputs), []
    # Backwards: nodes stand in the order in which values are made (onnx.proto, GraphProto.node).
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            found.append(node)
            wanted.update(node.inputs)
            wanted.update(_captured(node))
    found.reverse()
    return found


def _captured(node: RowNode) -> set[str]:
    """Return the names that the graphs in a node's attributes use; more do no harm."""
    names: set[str] = set()
    # A list instead of recursion, which a file with deeply nested graphs could exhaust.
    waiting = [one for one in node.attributes.values() if isinstance(one, OnnxGraph)]
    while waiting:
        graph = waiting.pop()
        names.update(graph.outputs)
        for inner in graph.nodes:
            names.update(inner.inputs)
            waiting += [one for one in inner.attributes.values() if isinstance(one, OnnxGraph)]
    return names


def steps_through(node: RowNode, axis: int) -> Mixed:
    """Return the error for an operator to which the supposed batch is time."""
    what = f"{node} goes through dim {axis} step by step, with a state: it is time, not the batch"
    return Mixed(what, has_batch_dim=False)


def _graph_in(node: RowNode, name: str) -> OnnxGraph:
    graph = node.attributes.get(name)
    if not isinstance(graph, OnnxGraph):
        msg = f"it has no graph '{name}'"
        raise Unclear(msg)
    return graph


def _if(flow: RowFlow, node: RowNode, values: RowTensors, scope: Scope) -> list[RowTensor]:
    condition = values[0] if values else None
    if condition is None or not condition.is_plain:
        raise mixes(node, "runs one branch or the other for all rows together")
    names = ["then_branch", "else_branch"]
    if condition.numbers and isinstance(condition.numbers[0], Size):
        number = condition.numbers[0]
        # A known condition, as exporters leave for optional parts: the other branch never runs.
        if not number.letters:
            names = names[:1] if number.number else names[1:]
    branches = [_graph_in(node, name) for name in names]
    made = [flow.results_of(one, flow.scope_of(one, scope)) for one in branches]
    if len(made) == 1:
        return made[0]
    return [agreed(flow, *both) for both in zip(*made, strict=True)]


def agreed(flow: RowFlow, one: RowTensor, other: RowTensor) -> RowTensor:
    """Return what is true of both: their rows are in the same places. Raises Unclear."""
    same = (one.axis, one.outer, one.inner) == (other.axis, other.outer, other.inner)
    if not same or one.is_place or other.is_place:
        msg = "its branches, or its rounds, have their rows in different places"
        raise Unclear(msg)
    shape: Sizes | None = None
    if one.shape is not None and other.shape is not None and len(one.shape) == len(other.shape):
        both = zip(one.shape, other.shape, strict=True)
        shape = tuple(a if a == b else flow.letter() for a, b in both)
    elif one.axis is not None:
        msg = "its branches, or its rounds, give tensors with different numbers of dims"
        raise Unclear(msg)
    numbers = one.numbers if one.numbers == other.numbers else None
    counts = one.counts or other.counts
    return RowTensor(shape, one.axis, one.outer, one.inner, numbers, counts, flow.join(one, other))


# One round makes a length free, the next confirms it; more than a few mean that it keeps growing.
_ROUNDS = 4


def _settled(
    flow: RowFlow, start: Sequence[RowTensor], body: Callable[[list[RowTensor]], list[RowTensor]]
) -> tuple[list[RowTensor], list[RowTensor]]:
    """Return what the carried values are in any round, and all that the body gives then."""
    # Without known numbers: a counter has another value in each round.
    carried = [value.same() for value in start]
    free: set[Size] = set()  # lengths that may be another one in each round
    for _ in range(_ROUNDS):
        made = body(carried)
        after = [agreed(flow, *both) for both in zip(carried, made, strict=False)]
        changed = {
            size
            for old, new in zip(carried, after, strict=True)
            for was, size in zip(old.shape or (), new.shape or (), strict=False)
            if was != size and was not in free
        }
        is_other = any(
            (old.shape is None, old.counts) != (new.shape is None, new.counts)
            for old, new in zip(carried, after, strict=True)
        )
        if not changed and not is_other:
            return carried, made
        free |= changed
        carried = after
    msg = "what it carries from round to round has another shape in each"
    raise Unclear(msg)


def _loop(flow: RowFlow, node: RowNode, values: RowTensors, scope: Scope) -> list[RowTensor]:
    graph = _graph_in(node, "body")
    if any(value is not None and not value.is_plain for value in values[:2]):
        raise mixes(node, "runs as many rounds as the data of all rows together ask for")
    start = [value for value in values[2:] if value is not None]

    def body(carried: list[RowTensor]) -> list[RowTensor]:
        inner = flow.scope_of(graph, scope)
        names = [port.name for port in graph.inputs]
        # The body takes the number of the round and a condition first (ONNX, Loop).
        inner.update(zip(names, [RowTensor(()), RowTensor(()), *carried], strict=True))
        goes_on, *others = flow.results_of(graph, inner)
        if not goes_on.is_plain:
            raise mixes(node, "runs until the data of all rows together end it")
        return others

    carried, made = _settled(flow, start, body)
    return [*carried, *(_stacked(flow, one, 0) for one in made[len(carried) :])]


def _stacked(flow: RowFlow, value: RowTensor, axis: int) -> RowTensor:
    """Return `value` of each round along a new dim."""
    if value.axis is None:
        shape = value.shape and (*value.shape[:axis], flow.letter(), *value.shape[axis:])
        return value.shaped(shape)
    dims = list(value.dims)
    dims.insert(axis, flow.letter())
    return value.shaped(tuple(dims), value.axis + (axis <= value.axis))


def _scan(flow: RowFlow, node: RowNode, values: RowTensors, scope: Scope) -> list[RowTensor]:
    graph = _graph_in(node, "body")
    # Scan-8 had a batch dim of its own, and took states with it.
    if flow.opset < 9:
        msg = "the operator of opset 8 is not known"
        raise Unclear(msg)
    taken = [value for value in values if value is not None]
    count = node.attributes.get("num_scan_inputs", 0)
    states, scanned = taken[: len(taken) - count], taken[len(taken) - count :]
    axes = node.attributes.get("scan_input_axes") or [0] * count
    slices = []
    for value, axis in zip(scanned, axes, strict=True):
        axis %= value.rank
        if value.axis == axis:
            raise steps_through(node, axis)
        if value.is_place:
            raise mixes(node, "goes through the places of rows in the batch")
        dims = (*value.dims[:axis], *value.dims[axis + 1 :])
        slices.append(
            value.shaped(dims, None if value.axis is None else value.axis - (axis < value.axis))
        )

    def body(carried: list[RowTensor]) -> list[RowTensor]:
        inner = flow.scope_of(graph, scope)
        names = [port.name for port in graph.inputs]
        inner.update(zip(names, [*carried, *slices], strict=True))
        return flow.results_of(graph, inner)

    carried, made = _settled(flow, states, body)
    outs = made[len(carried) :]
    out_axes = node.attributes.get("scan_output_axes") or [0] * len(outs)
    stacked = [
        _stacked(flow, one, axis % (one.rank + 1) if axis < 0 else axis)
        for one, axis in zip(outs, out_axes, strict=True)
    ]
    return [*carried, *stacked]


_CONTROL = {("", "If"): _if, ("", "Loop"): _loop, ("", "Scan"): _scan}
