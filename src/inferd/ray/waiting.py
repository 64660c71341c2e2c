"""Says what a replica waits for that Ray has not placed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class NodeResources(NamedTuple):
    """What a node of the cluster has, by Ray's names of resources."""

    name: str
    total: Mapping[str, float]


def waiting_for(
    needs: Mapping[str, float], nodes: Sequence[NodeResources], free: Mapping[str, float]
) -> str:
    """Return why a replica with such needs has no place; `free` is what all nodes have left."""
    wanted = ", ".join(amount(name, count) for name, count in needs.items()) or "a node"
    if not nodes:
        return f"waits for {wanted}: there is no node"
    # Ray itself says only that an actor is pending.
    fitting = [
        node
        for node in nodes
        if all(node.total.get(name, 0.0) >= count for name, count in needs.items())
    ]
    if fitting:
        left = ", ".join(amount(name, free.get(name, 0.0)) for name in needs)
        where = ", ".join(node.name for node in fitting[:3])
        more = f" and {len(fitting) - 3} more" if len(fitting) > 3 else ""
        return f"waits for {wanted}: taken by others on {where}{more} (free in all: {left})"
    for name, count in needs.items():
        most = max(node.total.get(name, 0.0) for node in nodes)
        if most == 0.0:
            return f"waits for {wanted}: no node has any {name}"
        if most < count:
            return f"waits for {wanted}: no node has more than {amount(name, most)}"
    return f"waits for {wanted}: no node has all of it"


def amount(name: str, count: float) -> str:
    """Return an amount of a resource: "2 CPU", "1.5 GiB memory"."""
    if name in ("memory", "object_store_memory"):
        return f"{count / 2**30:.3g} GiB {name}"
    return f"{count:g} {name}"
