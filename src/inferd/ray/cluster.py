"""Cluster: makes happen in Ray what a deployment decides, and tells it what happens there.

Calls to Ray's head may wait for as long as it is away, so they are made in a thread, one after the
other; calls between actors do not need the head.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from inferd.ray.head import NAMESPACE, first_line, replica_name
from inferd.ray.replica import Phase, Replica, ReplicaReport
from inferd.ray.replica_actor import ReplicaActor
from inferd.ray.serving import base_url, is_ready
from inferd.ray.spec import GroupSpec

if TYPE_CHECKING:
    from inferd.ray.deployment import Deployment

Answer = TypeVar("Answer")

REPORT_S = 0.5
"""How long after a report of a replica it is asked for the next one."""

HINT_S = 5.0
"""How long a replica may wait for a place before it is said what for."""

LOGGER = logging.getLogger("inferd")


class NodeResources(NamedTuple):
    """What a node of the cluster has, by Ray's names of resources."""

    name: str
    total: Mapping[str, float]


class Cluster:
    """The ReplicaShell of a deployment (see inferd.ray.group), which hears what comes of it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.deployment: Deployment
        """What decides; it is set before anything happens."""
        self.actors: dict[int, Any] = {}
        self._listening: dict[int, float] = {}  # when the next report is due; inf: under way
        self._probing: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        # One call at a time: all of them would wait for the same head, each in a thread of
        # asyncio's pool, and none would be left for probes.
        self._head = asyncio.Lock()
        self._hint_s = 0.0

    async def ask_head(self, function: Callable[[], Answer]) -> Answer:
        """Return what a call to Ray's head gives, after those before it."""
        # In a thread, as Ray's functions block while the head is away, and the reports of replicas,
        # which do not need it, must go on.
        async with self._head:
            return await asyncio.to_thread(function)

    def start(self, replica: Replica, spec: GroupSpec) -> None:
        """See ReplicaShell."""
        self._begin(self._start(replica, spec))

    def stop(self, replica: Replica) -> None:
        """See ReplicaShell."""
        if (actor := self.actors.get(replica.number)) is not None:
            actor.stop.remote()

    def remove(self, replica: Replica, *, force: bool) -> None:
        """See ReplicaShell."""
        self._listening.pop(replica.number, None)
        actor = self.actors.pop(replica.number, None)
        if actor is not None and not force:
            self._begin(_leave(actor))
        elif actor is not None:
            self._begin(self._kill(actor))

    def probe(self, replica: Replica) -> None:
        """See ReplicaShell."""
        # The group asks at each tick, five times a second; a server that does not
        # answer keeps one probe busy for seconds.
        if replica.number not in self._probing:
            self._probing.add(replica.number)
            self._begin(self._probe(replica))

    async def rest(self) -> None:
        """Wait until everything that was begun is done."""
        # What ends may begin something else.
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def listen(self) -> None:
        """Ask the replicas whose report is due; say what those wait for that are not placed."""
        now = time.monotonic()
        for number, actor in self.actors.items():
            if self._listening.setdefault(number, 0.0) <= now:
                self._listening[number] = float("inf")
                self._begin(self._listen(number, actor))
        waiting = [
            each
            for each in self.deployment.replicas()
            if each.phase is Phase.PLACING and now - each.since_s >= HINT_S
        ]
        if waiting and now - self._hint_s >= HINT_S:
            self._hint_s = now
            self._begin(self._hint(waiting))

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        # asyncio itself keeps only weak references to tasks.
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            LOGGER.error("the controller of %s: %r", self._name, error)

    async def _start(self, replica: Replica, spec: GroupSpec) -> None:
        try:
            actor = await self.ask_head(lambda: _start_replica(self._name, replica, spec))
        except Exception as error:  # noqa: BLE001  whatever Ray says
            self.deployment.lost(replica.number, first_line(error))
            return
        # While the head was away, the replica may have been given up; then its actor, which nobody
        # knows, would live for ever.
        if any(each is replica for each in self.deployment.replicas()):
            self.actors[replica.number] = actor
        else:  # it is not wanted any more
            await self._kill(actor)

    async def _kill(self, actor: Any) -> None:
        import ray

        await self.ask_head(lambda: ray.kill(actor))

    async def _listen(self, number: int, actor: Any) -> None:
        from ray.exceptions import ActorUnavailableError, RayError

        try:
            report = msgspec.json.decode(await actor.report.remote(), type=ReplicaReport)
        # Ray does not know, or has lost a connection: calls may succeed again.
        # What is really gone raises another error.
        except ActorUnavailableError:  # for now: it is silent
            pass
        except RayError as error:
            self._listening.pop(number, None)
            self.deployment.lost(number, first_line(error))
            return
        else:
            self.deployment.report(number, report)
        # It may have been removed while its report was on the way.
        if number in self._listening:
            self._listening[number] = time.monotonic() + REPORT_S

    async def _probe(self, replica: Replica) -> None:
        try:
            report = replica.report
            answers = bool(report.http_port) and await asyncio.to_thread(is_ready, base_url(report))
            self.deployment.probed(replica.number, answers=answers)
        finally:
            self._probing.discard(replica.number)

    async def _hint(self, waiting: list[Replica]) -> None:
        nodes, free = await self.ask_head(_resources)
        for replica in waiting:
            needs = self.deployment.needs(replica.number)
            self.deployment.hint(replica.number, waiting_for(needs, nodes, free))


async def _leave(actor: Any) -> None:
    """Have an actor end itself."""
    from ray.exceptions import RayError

    with suppress(RayError):  # that is how it says that it is away
        # exit_actor raises in the actor, which Ray reports as the call's failure.
        await actor.leave.remote()


def _start_replica(deployment: str, replica: Replica, spec: GroupSpec) -> Any:
    import ray

    options = {
        "name": replica_name(deployment, spec.name, replica.revision, replica.number),
        "namespace": NAMESPACE,
        # Detached: replicas outlive the controller, which may be replaced at any time, and then
        # finds them by their names.
        "lifetime": "detached",
        # The controller starts another one instead: a second way to start, for a second or two, is
        # not worth its cases (decision 0037).
        "max_restarts": 0,
        "num_cpus": spec.cpus,
        "num_gpus": spec.gpus,
        "resources": spec.resources,
        # Ray's default fills a node before it takes another, and the end of one machine could
        # take all the replicas of a group.
        "scheduling_strategy": "SPREAD",
    }
    if spec.memory_bytes:
        options["memory"] = spec.memory_bytes
    starter = ray.remote(ReplicaActor).options(**options)
    return starter.remote(deployment, replica.name, msgspec.json.encode(spec))


def _resources() -> tuple[list[NodeResources], dict[str, float]]:
    import ray

    nodes = [
        NodeResources(each["NodeName"], each["Resources"]) for each in ray.nodes() if each["Alive"]
    ]
    return nodes, ray.available_resources()


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
