"""Flow: follows the rows of a batch through the operators of a graph.

Operators without a rule may do what they like with tensors that are the same for all rows; of rows
they leave open what becomes of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from inferd.formats.onnx_graph import Constant, Function, OnnxFile, OnnxGraph, RowNode, bound
from inferd.rows.value import ONE, LostTensor, Mixed, RowTensor, Size, Sizes, Unclear, at, give_up

RowTensors = Sequence[RowTensor | None]
"""The inputs of an operator, None for one that is left out."""

Rule = Callable[["RowCall"], RowTensor | Sequence[RowTensor]]
"""Returns what an operator makes of its inputs. Raises Mixed, Unclear."""

Rules = Mapping[tuple[str, str], Rule]
"""Rules by domain and operator."""

Scope = dict[str, RowTensor | LostTensor]

MOST_STEPS = 50_000
"""Loops are followed several times, functions at each call; not more often than this in all."""

# ONNX forbids recursion of functions, but nothing has checked the file.
_MOST_CALLS = 50

ML, MICROSOFT = "ai.onnx.ml", "com.microsoft"
"""Domains of operators for classical models, and of ONNX Runtime's own."""

_TAKEN = ("", ML, MICROSOFT)
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
        rules: Rules,
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

    def run(self, nodes: Sequence[RowNode], outputs: Sequence[str], scope: Scope) -> None:
        """Add to `scope` what `nodes` make of what is in it, as far as `outputs` need it.

        Raises Mixed, and Unclear if it takes too long.
        """
        # What no output needs may mix rows as it likes, as exporters
        # leave checks and training parts.
        for node in _needed(nodes, outputs):
            self._steps += 1
            if self._steps > MOST_STEPS:
                give_up(f"its loops and functions have more than {MOST_STEPS} steps")
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
            give_up(f"it has more than {MOST_STEPS} steps")
        return self._results(node, values, {})

    def scope_of(self, graph: OnnxGraph, outer: Mapping[str, RowTensor | LostTensor]) -> Scope:
        """Return what the nodes of `graph` see before the first has run."""
        return {**outer, **{name: constant_value(one) for name, one in graph.constants.items()}}

    def results_of(self, graph: OnnxGraph, scope: Scope) -> list[RowTensor]:
        """Run `graph`, and return its outputs. Raises Unclear, Mixed."""
        self.run(graph.nodes, graph.outputs, scope)
        return [known(scope, name) for name in graph.outputs]

    def _results(self, node: RowNode, values: RowTensors, scope: Scope) -> Sequence[RowTensor]:
        key = node.domain, node.op
        call, rule = RowCall(self, node, values, scope), self._rules.get(key)
        if rule is not None and key in _CONTROL:
            return _listed(rule(call))
        function = self.functions.get(key)
        if function is not None:
            if node.domain in _TAKEN:
                give_up("a function has the name of what may be an operator of the runtime's own")
            return self._call(function, node, values)
        is_plain = call.is_plain
        _check_places(call)
        # Graphs in an operator see more than its inputs, so they may look at rows all the same.
        if rule is None and (not is_plain or _captured(node)):
            msg = "the operator is not known"
            raise Unclear(f"{msg} (domain {node.domain})" if node.domain else msg)
        try:
            made = rule(call) if rule is not None else ()
        except Unclear:
            if not is_plain:
                raise
            made = ()
        results = _counting(call, _listed(made))
        if not is_plain and len(results) < len([name for name in node.outputs if name]):
            give_up("it is not known what all its outputs are")
        return [*results, *[RowTensor(None)] * (len(node.outputs) - len(results))]

    def _call(self, function: Function, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
        if self._calls >= _MOST_CALLS:
            give_up(f"functions call functions, deeper than {_MOST_CALLS}")
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


class FollowedCall:
    """A call of an operator while rows are followed; its `node` names it in errors."""

    def __init__(self, flow: RowFlow, node: RowNode) -> None:
        self.flow = flow
        self.node = node

    def mixes(self, what: str, *, has_batch_dim: bool = True, is_scale: bool = False) -> NoReturn:
        """Raise Mixed, for an operator that does `what`."""
        raise Mixed(f"{self.node} {what}", has_batch_dim=has_batch_dim, is_scale=is_scale)

    def crosses(self, *values: RowTensor) -> NoReturn:
        """Raise Mixed, for an operator that brings all rows together with all others."""
        if self.flow.are_together(*values):
            self.mixes("brings each row together with all others")
        names = sorted(frozenset().union(*(value.sources for value in values)))
        self.mixes(
            f"brings each row of one input together with all of another: the first dims of "
            f"{', '.join(names)} are not the same batch",
            has_batch_dim=False,
        )

    def steps_through(self, axis: int) -> NoReturn:
        """Raise Mixed, for an operator to which the supposed batch is time."""
        what = f"goes through dim {axis} step by step, with a state: it is time, not the batch"
        self.mixes(what, has_batch_dim=False)

    def unclear(self, why: str) -> NoReturn:
        """Raise Unclear."""
        give_up(why)

    def along(self, value: RowTensor, axes: Iterable[int]) -> None:
        """Raise Mixed if an operator that works along `axes` does so along the batch dim."""
        if value.axis is not None and value.axis in axes:
            self.mixes(f"works along dim {value.axis}, the batch")

    def plain(self, values: Iterable[RowTensor | None], what: str) -> None:
        """Raise Mixed unless all `values` are the same for all rows; `what` they are."""
        if any(value is not None and not value.is_plain for value in values):
            self.mixes(f"has {what} that depend on the rows")

    def joined(self, made: RowTensor, *values: RowTensor) -> RowTensor:
        """Return `made` as what has the rows of all `values`, which are of one batch."""
        return replace(made, sources=self.flow.join(*values))


class RowCall(FollowedCall):
    """A call of one of ONNX's operators with its inputs, None for those that are left out.

    Graphs in it see all that is in `scope`.
    """

    def __init__(self, flow: RowFlow, node: RowNode, values: RowTensors, scope: Scope) -> None:
        super().__init__(flow, node)
        self.values = values
        self.scope = scope

    def having(self, values: RowTensors) -> "RowCall":
        """Return a call of the operator with other inputs."""
        return RowCall(self.flow, self.node, values, self.scope)

    @property
    def taken(self) -> list[RowTensor]:
        """The inputs that are not left out."""
        return [value for value in self.values if value is not None]

    @property
    def is_plain(self) -> bool:
        """Whether all inputs are the same for all rows, and for any number of them."""
        return all(value.is_plain for value in self.taken)

    def given(self, index: int) -> RowTensor | None:
        """Return an optional input."""
        return self.values[index] if index < len(self.values) else None

    def needed(self, index: int) -> RowTensor:
        """Return an input that is not optional. Raises Unclear if it is missing."""
        found = self.given(index)
        if found is None:
            give_up(f"input {index} is missing")
        return found

    def kept(self, first: int | None = None, others: str = "weights") -> RowTensor:
        """Return what an operator makes that only changes elements, along dims from `first` on.

        Raises Mixed if that is along the batch, or if its inputs but the first, which are `others`,
        depend on the rows. A negative `first` counts from the end; None: it works along no dim.
        """
        value = self.needed(0)
        self.plain(self.values[1:], others)
        if first is not None:
            self.along(value, range(first if first >= 0 else first + value.rank, value.rank))
        return value.same()

    def sizes(self, index: int) -> list[Size] | None:
        """Return the lengths in an input, None if one is not known, or it is left out."""
        value = self.given(index)
        return None if value is None else value.sizes()

    def integers(self, index: int) -> list[int] | None:
        """Return the integers in an input, None if one is not known, or it is left out."""
        value = self.given(index)
        return None if value is None else value.integers()

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute, `default` if it is absent."""
        return self.node.attributes.get(name, default)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return an attribute that is 0 or 1. Raises Unclear if it is another number.

        ONNX defines these two alone, and of the others ONNX Runtime takes some for 1, some for 0.
        """
        value = self.attribute(name, default)
        if value not in (0, 1):
            self.unclear(f"its attribute '{name}' is neither 0 nor 1")
        return bool(value)

    def axes(self, index: int) -> list[int] | None:
        """Return what the attribute `axes`, or that input, lists; None if there is neither.

        Raises Unclear if it is not known.
        """
        # An attribute of old opsets, mostly until 12, became an input of new ones.
        axes = self.attribute("axes")
        if axes is not None:
            return list(axes) if isinstance(axes, list) else [axes]
        value = self.given(index)
        if value is None:
            return None
        axes = value.integers()
        if axes is None:
            give_up("its axes are not known")
        return axes

    def axis(self, value: RowTensor, usual: int, name: str = "axis") -> int:
        """Return the dim of `value` that an attribute says. Raises Unclear if it has no such."""
        return at(self.attribute(name, usual), value.rank)


def named(rule: Rule, *operators: str, domain: str = "") -> dict[tuple[str, str], Rule]:
    """Return `rule` as that of each of `operators`."""
    return {(domain, operator): rule for operator in operators}


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


_CONTROL = frozenset(("", op) for op in ("If", "Loop", "Scan"))
"""Operators whose rules run graphs, which see more than the operator's inputs."""


def _listed(made: RowTensor | Sequence[RowTensor]) -> list[RowTensor]:
    return [made] if isinstance(made, RowTensor) else list(made)


def _check_places(call: RowCall) -> None:
    """Raise Mixed for an operator that may do other than find rows by their places."""
    for value in call.taken:
        if value.is_place:
            is_pair = value.rank > 1 and value.dims[-1] != ONE
            if (call.node.domain, call.node.op) not in (_TAKING_PAIRS if is_pair else _FINDING):
                call.mixes("computes with the places of rows in the batch")


def _counting(call: RowCall, results: list[RowTensor]) -> list[RowTensor]:
    """Return `results`, which depend on the number of rows if an input does."""
    if not any(value.counts for value in call.taken):
        return results
    if (call.node.domain, call.node.op) in _COUNT:
        return [one if one.axis is not None else _counted(one) for one in results]
    if any(value.axis is not None for value in call.taken):
        call.mixes("computes with the number of rows")
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
