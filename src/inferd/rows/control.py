"""Rules of operators that have graphs in them: branches and loops."""

from collections.abc import Callable, Sequence

from inferd.formats.onnx_graph import OnnxGraph
from inferd.rows.flow import RowCall, RowFlow, Rules, named
from inferd.rows.value import RowTensor, Size, Sizes, give_up


def _graph_in(call: RowCall, name: str) -> OnnxGraph:
    graph = call.attribute(name)
    if not isinstance(graph, OnnxGraph):
        give_up(f"it has no graph '{name}'")
    return graph


def _if(call: RowCall) -> list[RowTensor]:
    flow = call.flow
    condition = call.given(0)
    if condition is None or not condition.is_plain:
        call.mixes("runs one branch or the other for all rows together")
    names = ["then_branch", "else_branch"]
    if condition.numbers and isinstance(condition.numbers[0], Size):
        number = condition.numbers[0]
        # A known condition, as exporters leave for optional parts: the other branch never runs.
        if not number.letters:
            names = names[:1] if number.number else names[1:]
    branches = [_graph_in(call, name) for name in names]
    made = [flow.results_of(one, flow.scope_of(one, call.scope)) for one in branches]
    if len(made) == 1:
        return made[0]
    return [agreed(flow, *both) for both in zip(*made, strict=True)]


def agreed(flow: RowFlow, one: RowTensor, other: RowTensor) -> RowTensor:
    """Return what is true of both: their rows are in the same places. Raises Unclear."""
    same = (one.axis, one.outer, one.inner) == (other.axis, other.outer, other.inner)
    if not same or one.is_place or other.is_place:
        give_up("its branches, or its rounds, have their rows in different places")
    shape: Sizes | None = None
    if one.shape is not None and other.shape is not None and len(one.shape) == len(other.shape):
        both = zip(one.shape, other.shape, strict=True)
        shape = tuple(a if a == b else flow.letter() for a, b in both)
    elif one.axis is not None:
        give_up("its branches, or its rounds, give tensors with different numbers of dims")
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
    give_up("what it carries from round to round has another shape in each")


def _loop(call: RowCall) -> list[RowTensor]:
    flow = call.flow
    graph = _graph_in(call, "body")
    if any(value is not None and not value.is_plain for value in call.values[:2]):
        call.mixes("runs as many rounds as the data of all rows together ask for")
    start = [value for value in call.values[2:] if value is not None]

    def body(carried: list[RowTensor]) -> list[RowTensor]:
        inner = flow.scope_of(graph, call.scope)
        names = [port.name for port in graph.inputs]
        # The body takes the number of the round and a condition first (ONNX, Loop).
        inner.update(zip(names, [RowTensor(()), RowTensor(()), *carried], strict=True))
        goes_on, *others = flow.results_of(graph, inner)
        if not goes_on.is_plain:
            call.mixes("runs until the data of all rows together end it")
        return others

    carried, made = _settled(flow, start, body)
    return [*carried, *(_stacked(flow, one, 0) for one in made[len(carried) :])]


def _stacked(flow: RowFlow, value: RowTensor, axis: int) -> RowTensor:
    """Return `value` of each round along a new dim."""
    return value.shaped(None) if value.shape is None else value.widened(axis, flow.letter())


def _scan(call: RowCall) -> list[RowTensor]:
    flow = call.flow
    graph = _graph_in(call, "body")
    # Scan-8 had a batch dim of its own, and took states with it.
    if flow.opset < 9:
        give_up("the operator of opset 8 is not known")
    taken = call.taken
    count = call.attribute("num_scan_inputs", 0)
    states, scanned = taken[: len(taken) - count], taken[len(taken) - count :]
    axes = call.attribute("scan_input_axes") or [0] * count
    slices = []
    for value, axis in zip(scanned, axes, strict=True):
        axis %= value.rank
        if value.axis == axis:
            call.steps_through(axis)
        if value.is_place:
            call.mixes("goes through the places of rows in the batch")
        slices.append(value.narrowed([axis]))

    def body(carried: list[RowTensor]) -> list[RowTensor]:
        inner = flow.scope_of(graph, call.scope)
        names = [port.name for port in graph.inputs]
        inner.update(zip(names, [*carried, *slices], strict=True))
        return flow.results_of(graph, inner)

    carried, made = _settled(flow, states, body)
    outs = made[len(carried) :]
    out_axes = call.attribute("scan_output_axes") or [0] * len(outs)
    stacked = [
        _stacked(flow, one, axis % (one.rank + 1) if axis < 0 else axis)
        for one, axis in zip(outs, out_axes, strict=True)
    ]
    return [*carried, *stacked]


RULES: Rules = {**named(_if, "If"), **named(_loop, "Loop"), **named(_scan, "Scan")}
