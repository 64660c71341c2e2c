"""Symbol: the graph of an MXNet model, from the JSON that `Symbol.save` writes, old and new."""

import msgspec

from inferd.errors import InvalidConfig

VARIABLE = "null"
"""The op of a node that is not an operator but an input or a parameter."""

MAX_NODES = 100_000
"""Symbols with more are refused."""


class SymbolNode(msgspec.Struct):
    """One node: an operator or a variable. `inputs` are (node, index of its output).

    `place` says in messages where it is.
    """

    op: str
    name: str
    attributes: dict[str, str]
    inputs: list[tuple[int, int]]
    place: str


class Symbol(msgspec.Struct):
    """The nodes in topological order, and the outputs as (node, index of its output)."""

    nodes: list[SymbolNode]
    heads: list[tuple[int, int]]


class _Node(msgspec.Struct):
    op: str
    name: str
    inputs: list[list[int]] = []
    attrs: dict[str, str] = {}
    attr: dict[str, str] = {}  # until 0.12, and beside `param` before 0.9
    param: dict[str, str] = {}


class _Symbol(msgspec.Struct):
    nodes: list[_Node]
    heads: list[list[int]]


def read_symbol(data: bytes, file: str) -> Symbol:
    """Return the graph in `data`. Raises InvalidConfig naming `file` and the node."""
    try:
        # Fields that are not declared are passed over: files have
        # many that say nothing of the graph.
        read = msgspec.json.decode(data, type=_Symbol)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidConfig(f"'{file}' is no MXNet symbol: {error}") from None
    if not read.nodes or not read.heads or len(read.nodes) > MAX_NODES:
        raise InvalidConfig(
            f"'{file}' is no MXNet symbol: it has {len(read.nodes)} nodes and {len(read.heads)} "
            f"outputs, expected at least one each and at most {MAX_NODES}"
        )
    symbol = Symbol([], [])
    for number, node in enumerate(read.nodes):
        place = f"'{file}', node {number} of {len(read.nodes)} ('{node.op}' '{node.name}')"
        inputs = [_entry(entry, number, place) for entry in node.inputs]
        # Each file has one of them, or attr and param; the newest name wins.
        attributes = node.attr | node.param | node.attrs
        symbol.nodes.append(SymbolNode(node.op, node.name, attributes, inputs, place))
    for head in read.heads:
        symbol.heads.append(_entry(head, len(read.nodes), f"'{file}', an output"))
    return symbol


def _entry(entry: list[int], limit: int, place: str) -> tuple[int, int]:
    """Return the node and output index of `entry`; the node must come before node `limit`."""
    # Newer files have a third number, the version of a variable, which means nothing here.
    if len(entry) not in (2, 3) or min(entry) < 0:
        raise InvalidConfig(f"{place} reads {entry}, expected a node and one of its outputs")
    # Topological order is what makes one pass over the nodes enough, and cycles impossible.
    if entry[0] >= limit:
        raise InvalidConfig(f"{place} reads node {entry[0]}, which does not come before it")
    return entry[0], entry[1]
