"""What is asked of Ray's head: which actors there are, and what is wanted, which it keeps.

These calls may wait for as long as the head is away.
"""

from typing import Any, NamedTuple

import msgspec

from inferd.ray.spec import DeploymentSpec

NAMESPACE = "inferd"
"""That of all our actors."""

_STORE = b"inferd"
_PREFIX = "inferd"


class ReplicaFound(NamedTuple):
    """A replica that there is, and its actor."""

    group: str
    revision: str
    number: int
    actor: Any


def controller_name(deployment: str) -> str:
    """Return the name of the controller among Ray's actors."""
    return f"{_PREFIX}:{deployment}"


def replica_name(deployment: str, group: str, revision: str, number: int) -> str:
    """Return the name of a replica among Ray's actors."""
    return f"{controller_name(deployment)}:{group}:{revision}:{number}"


def find_replicas(deployment: str) -> list[ReplicaFound]:
    """Return the replicas that there are."""
    import ray

    prefix = f"{controller_name(deployment)}:"
    found = []
    # Otherwise Ray looks in the namespace of whoever asks, which may be
    # that of the program that deployed.
    for one in ray.util.list_named_actors(all_namespaces=True):
        name = one["name"]
        if one["namespace"] == NAMESPACE and name.startswith(prefix):
            # No part has a colon: names of groups are a-z, 0-9 and hyphens.
            group, revision, number = name.removeprefix(prefix).split(":")
            actor = ray.get_actor(name, namespace=NAMESPACE)
            found.append(ReplicaFound(group, revision, int(number), actor))
    return found


def store_spec(deployment: str, spec: DeploymentSpec) -> None:
    """Keep what is wanted of a deployment, for the next controller."""
    from ray.experimental import internal_kv

    text = msgspec.json.encode(spec)
    # Ray's own store for such things (Serve keeps its state there); with Redis
    # behind the head, it outlives the head.
    internal_kv._internal_kv_put(deployment.encode(), text, namespace=_STORE)


def stored_spec(deployment: str) -> DeploymentSpec | None:
    """Return what is wanted of a deployment, None if nothing is."""
    from ray.experimental import internal_kv

    text = internal_kv._internal_kv_get(deployment.encode(), namespace=_STORE)
    return msgspec.json.decode(text, type=DeploymentSpec) if text else None


def forget_spec(deployment: str) -> None:
    """Want nothing of a deployment any more."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_del(deployment.encode(), namespace=_STORE)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says that tells something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # Some of Ray's errors begin with a heading, and have the reason in their last line.
    return f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") and lines[1:] else lines[0]
