"""Verdict: whether the rows of the batch of an ONNX model, or of another graph, are independent.

The batch dim, dim 0 of every input, is followed operator by operator to every output. Only what is
proved counts: an operator that is not known leaves the question open. The names of dims prove
nothing, since exporters invent them; they only tell whether inputs that never meet share a batch.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from inferd.core.rows import DEPENDENT, INDEPENDENT, OPEN, Verdict
from inferd.formats.onnx_graph import GraphInput, OnnxFile, OnnxGraph, read_model
from inferd.formats.protobuf import Malformed
from inferd.rows import classical, control, dims, elementwise, maths, nets, pieces
from inferd.rows.flow import RowFlow, Rules, Scope
from inferd.rows.value import ONE, B, LostTensor, Mixed, RowTensor, Size, Sizes, Unclear, give_up

log = logging.getLogger("inferd.backends")

RULES: Rules = {
    **control.RULES,
    **elementwise.RULES,
    **dims.RULES,
    **pieces.RULES,
    **maths.RULES,
    **nets.RULES,
    **classical.RULES,
}

MAX_NODES = 200_000
"""A model with more operators is not followed."""

_PROVED = Verdict(INDEPENDENT, "every operator keeps the rows of the batch apart")

_OPSET = 20
"""The opset of graphs that are none of ONNX: the newest whose rules are all known."""

# What may be wrong with a file that ONNX Runtime has loaded, or with one of its operators.
_ODD = (Malformed, ValueError, LookupError, TypeError, AttributeError, ArithmeticError)


Followed = tuple[Sequence[GraphInput], Mapping[str, RowTensor | LostTensor]]
"""A graph's inputs, and what became of their rows in each output."""


def verdict_on(model: OnnxFile | bytes | None) -> Verdict:
    """Return whether the rows of an ONNX model, or of an encoded one, are independent.

    Never raises: of None, a model that cannot be read, nothing is known.
    """
    if model is None:
        return Verdict(OPEN, "its file cannot be read")
    try:
        read = read_model(model) if isinstance(model, bytes) else model
    except _ODD as error:
        return _given_up(error)
    if read.size > MAX_NODES:
        return Verdict(OPEN, f"it has more than {MAX_NODES} operators")
    return verdict_by(partial(_followed, read), read)


def verdict_by(
    follow: Callable[[RowFlow], Followed],
    model: OnnxFile | None = None,
    odd: tuple[type[Exception], ...] = _ODD,
) -> Verdict:
    """Return what `follow` finds of the rows of a graph, with the operators of ONNX.

    `model` says which versions of them, and has functions; without it they are those of opset 20.
    `follow` may raise Mixed, Unclear, and what is in `odd` for a graph that is not as it should be.
    Never raises.
    """
    about = model or OnnxFile(OnnxGraph(), {"": _OPSET}, {})
    try:
        return _judged(follow, about)
    except Unclear as error:
        return Verdict(OPEN, error.reason)
    # Caught although it is no usual error: a file may nest its graphs as deeply as it likes.
    except RecursionError:
        return Verdict(OPEN, "its graphs lie too deep in one another")
    except odd as error:
        return _given_up(error)


def _given_up(error: Exception) -> Verdict:
    log.debug("the rows of a model cannot be followed", exc_info=True)
    return Verdict(OPEN, f"its graph cannot be followed: {type(error).__name__} {error}")


def _judged(follow: Callable[[RowFlow], Followed], model: OnnxFile) -> Verdict:
    try:
        return _concluded(follow, RowFlow(model, RULES))
    except Mixed as error:
        mixed = error
    is_quantised = False
    if mixed.is_scale:
        # A second time, as if scales were the same for all rows: if that is all that mixes them,
        # joined requests differ as much as quantisation rounds.
        with suppress(Mixed, Unclear):
            tolerant = RowFlow(model, RULES, takes_scales=True)
            is_quantised = _concluded(follow, tolerant).rows == INDEPENDENT
    return Verdict(DEPENDENT, mixed.reason, mixed.has_batch_dim, is_quantised)


def _concluded(follow: Callable[[RowFlow], Followed], flow: RowFlow) -> Verdict:
    """Return the verdict. Raises Mixed, Unclear, and whatever an odd file leads to."""
    ports, found = follow(flow)
    if not ports or not found:
        return Verdict(OPEN, "it has no inputs, or no outputs")
    # What mixes rows is said first, whatever else is not known.
    for name, value in found.items():
        if isinstance(value, RowTensor):
            _check_output(name, value)
    for value in found.values():
        if isinstance(value, LostTensor):
            return Verdict(OPEN, value.reason)
    return _apart(flow, ports) or _PROVED


def _followed(model: OnnxFile, flow: RowFlow) -> Followed:
    graph = model.graph
    scope: Scope = flow.scope_of(graph, {})
    ports = [one for one in graph.inputs if one.name not in graph.constants]
    for port in ports:
        scope[port.name] = given_rows(flow, port)
    flow.run(graph.nodes, graph.outputs, scope)
    lost = {name: LostTensor(f"there is no '{name}'") for name in graph.outputs}
    return ports, {name: scope.get(name, lost[name]) for name in graph.outputs}


def given_rows(flow: RowFlow, port: GraphInput) -> RowTensor:
    """Return an input of a graph as rows. Raises Mixed, or Unclear if it is not known to be."""
    if not port.dims:
        what = "no dims" if port.dims == () else "an unknown number of dims"
        give_up(f"input '{port.name}' has {what}")
    # A fixed number in the file is what ONNX Runtime insists on: batches of other sizes fail.
    if port.dims[0] >= 0:
        raise Mixed(f"dim 0 of input '{port.name}' is {port.dims[0]} in the file, and no batch dim")
    # Names of other dims are not trusted to mean equal lengths, either.
    rest: Sizes = tuple(flow.letter() if dim < 0 else Size(dim) for dim in port.dims[1:])
    return RowTensor((B, *rest), 0, sources=frozenset([port.name]))


def _check_output(name: str, value: RowTensor) -> None:
    if value.axis is None:
        what = "counts the rows" if value.counts else "is the same for all rows"
        raise Mixed(f"output '{name}' {what}: it has none of its own for each")
    if value.is_place:
        raise Mixed(f"output '{name}' is the place of each row in the batch")
    if value.axis != 0:
        raise Mixed(f"output '{name}' has the batch in dim {value.axis}, not in the first")
    # Requests are answered with consecutive rows, one for each of theirs.
    if value.outer != ONE or value.inner != ONE:
        raise Mixed(f"output '{name}' has several rows for each of the batch")


def _apart(flow: RowFlow, ports: Sequence[GraphInput]) -> Verdict | None:
    """Return the verdict on inputs that never meet, and whose first dims have different names."""
    for port in ports[1:]:
        one, other = (RowTensor(None, sources=frozenset([each.name])) for each in (ports[0], port))
        names = {ports[0].first_dim, port.first_dim}
        # Different names alone prove nothing, nor do inputs that never meet; both together do.
        if not flow.are_together(one, other) and len(names) == 2 and "" not in names:
            reason = (
                f"inputs '{ports[0].name}' and '{port.name}' never meet, and their first dims are "
                f"called {ports[0].first_dim} and {port.first_dim}: they are not the same batch"
            )
            return Verdict(DEPENDENT, reason, has_batch_dim=False)
    return None
