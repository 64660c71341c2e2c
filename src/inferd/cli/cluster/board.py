"""Which deployment on Ray a command is about, and its tables in the terminal."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from inferd.cli.parser import CommandParser
from inferd.cli.terminal import Board

if TYPE_CHECKING:
    from inferd.ray.status import DeploymentStatus, GroupStatus, ReplicaPlace, ReplicaStatus


def add_ray_arguments(parser: CommandParser) -> None:
    """Add those that say which deployment is meant, and how it is shown."""
    # Ray's own variable.
    address = os.environ.get("RAY_ADDRESS") or "auto"
    parser.option("--ray", "ADDRESS", "the cluster [%(default)s]", address)
    parser.option("--name", "NAME", "the deployment [inferd]")
    parser.switch("--watch", "go on showing it, until Ctrl-C")
    parser.switch("--json", "JSON, a line each time")


_REPLICA_HEAD = ("replica", "phase", "node", "http", "grpc", "age", "req/s", "under way", "ms", "")
_PLACE_HEAD = ("place", "state", "host", "http", "grpc", "models")
_MOST_MODELS = 5


def status_board(status: "DeploymentStatus") -> Board:
    """Return the board of a deployment."""
    tables = [
        (_group_title(group), _REPLICA_HEAD, [_replica_row(each) for each in group.replicas])
        for group in status.groups
    ]
    lines = [f"{each.name}: {each.reason}" for each in status.groups if each.reason]
    return Board(tables, [*lines, *(f"warning: {each}" for each in status.warnings)])


def places_board(places: Iterable["ReplicaPlace"]) -> Board:
    """Return the board of what fronts are to know."""
    rows = []
    for each in places:
        models = "any" if each.models is None else _models(each.models)
        state = "asleep" if each.is_asleep else "draining" if each.is_draining else "ready"
        ports = _port(each.http_port), _port(each.grpc_port)
        rows.append((each.name, state, each.host or "-", *ports, models))
    title = "1 place" if len(rows) == 1 else f"{len(rows)} places"
    return Board([(title, _PLACE_HEAD, rows)], [])


def changes(before: "DeploymentStatus | None", now: "DeploymentStatus") -> Iterator[str]:
    """Yield a line for each replica that is in another phase than before, or has another reason."""
    # Replicas that were there and are not any more are what is left of it.
    known = {one.name: one for group in before.groups for one in group.replicas} if before else {}
    for group in now.groups:
        for one in group.replicas:
            last = known.pop(one.name, None)
            if last is None or (last.phase, last.reason) != (one.phase, one.reason):
                why = f": {one.reason}" if one.reason else ""
                where = f" on {one.node}" if one.node else ""
                yield f"{one.name} {one.phase}{where}{why}"
    for name in known:
        yield f"{name} ended"
    reasons = {group.name: group.reason for group in before.groups} if before else {}
    for group in now.groups:
        if group.reason and group.reason != reasons.get(group.name):
            yield f"{group.name}: {group.reason}"


def _group_title(group: "GroupStatus") -> str:
    ready = sum(each.phase == "ready" for each in group.replicas)
    bounds = "" if group.least == group.most else f" ({group.least} to {group.most})"
    state = "as wanted" if group.is_settled else "given up" if group.is_given_up else "changing"
    models = f", models {_models(group.models)}" if group.models else ""
    return f"{group.name}: {ready} of {group.desired}{bounds} ready, {state}{models}"


def _models(models: Sequence[str]) -> str:
    shown = ", ".join(models[:_MOST_MODELS])
    more = len(models) - _MOST_MODELS
    return f"{shown} and {more} more" if more > 0 else shown


def _replica_row(one: "ReplicaStatus") -> tuple[str, ...]:
    is_measured = bool(one.rate or one.pending)
    return (
        one.name,
        one.phase,
        one.node or "-",
        f"{one.host}:{one.http_port}" if one.http_port else "-",
        _port(one.grpc_port),
        # Minutes from ten on: seconds say nothing then.
        f"{one.age_s:.0f}s" if one.age_s < 600 else f"{one.age_s / 60:.0f}m",
        f"{one.rate:.0f}" if is_measured else "-",
        f"{one.pending:.2g}" if is_measured else "-",
        f"{one.latency_ms:.3g}" if one.latency_ms else "-",
        "" if one.is_current else "older",
    )


def _port(number: int) -> str:
    return str(number) if number else "-"
