"""The actors: thin skins over what decides (Deployment) and what serves (ServingProcess).

This is all that runs inside of Ray. Calls to Ray's head may wait for as long as it is away, so they
are made in a thread, one after the other; calls between actors do not need the head.
"""

import asyncio
import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import inferd
from inferd.ray.deployment import Deployment, name_of
from inferd.ray.replica import Phase, Replica
from inferd.ray.report import ReplicaReport
from inferd.ray.serving import ServingProcess, base_url, is_ready
from inferd.ray.spec import DeploymentSpec, GroupSpec
from inferd.ray.waiting import NodeResources, waiting_for

if TYPE_CHECKING:
    from inferd.ray.status import ReplicaPlace

NAMESPACE = "inferd"
TICK_S = 0.2
REPORT_S = 0.5
HINT_S = 5.0
"""How long a replica may wait for a place before it is said what for."""

_KV = b"inferd"
_PREFIX = "inferd"

log = logging.getLogger("inferd")


def controller_name(deployment: str) -> str:
    """Return the name of the controller among Ray's actors."""
    return f"{_PREFIX}:{deployment}"


class ReplicaActor:
    """Starts a server, and tells how it is. Its methods never wait."""

    def __init__(self, deployment: str, name: str, spec: bytes) -> None:
        import ray

        group = msgspec.json.decode(spec, type=GroupSpec)
        host = ray.util.get_node_ip_address()
        self._process = ServingProcess(
            group.models,
            group.arguments,
            group.environment,
            _log_folder() / f"inferd-{deployment}-{name}.log",
            host,
            _node_name(host),
        )

    def report(self) -> bytes:
        """Return a ReplicaReport as JSON."""
        return msgspec.json.encode(self._process.report())

    def stop(self) -> None:
        """Have the server finish what is under way and end."""
        self._process.stop()

    def leave(self) -> None:
        """End this actor, whose server has ended."""
        import ray

        self._process.kill()
        ray.actor.exit_actor()


class ControllerActor:
    """Runs a deployment. Ray starts it again where it ends; it then takes over the replicas."""

    async def __init__(self, name: str) -> None:  # type: ignore[misc]  # Ray awaits it
        self._name = name
        self._cluster = _Cluster(name)
        self._deployment = Deployment(name, self._cluster, time.monotonic)
        self._cluster.deployment = self._deployment
        self._places: tuple[ReplicaPlace, ...] = ()
        self._version = time.time_ns()  # other than that of a controller before
        self._changed = asyncio.Condition()
        await self._take_over()
        self._running = asyncio.create_task(self._run())

    async def version(self) -> str:
        """Return inferd's version."""
        return inferd.__version__

    async def deploy(self, spec: bytes, generation_step: int) -> None:
        """Bring about what a DeploymentSpec, as JSON, says from now on."""
        given = msgspec.json.decode(spec, type=DeploymentSpec)
        stored = await self._stored()
        generation = generation_step + (stored.generation if stored else 0)
        whole = msgspec.structs.replace(given, generation=generation)
        await self._cluster.asks(lambda: _store(self._name, msgspec.json.encode(whole)))
        self._deployment.follow(whole)

    async def scale(self, group: str, count: int) -> None:
        """Have `count` replicas of a group."""
        self._deployment.scale(group, count)

    async def wake(self, group: str) -> None:
        """Have a replica of a group that has none."""
        self._deployment.wake(group)

    async def end(self, wait_s: float) -> bool:
        """End all replicas, and forget the deployment; tell after `wait_s` whether that is done."""
        self._deployment.follow(DeploymentSpec(name=self._name))
        await asyncio.sleep(wait_s)
        if next(self._deployment.replicas(), None) is not None:
            return False
        await self._cluster.rest()
        await self._cluster.asks(lambda: _forget(self._name))
        return True

    async def status(self) -> bytes:
        """Return a DeploymentStatus as JSON."""
        return msgspec.json.encode(self._deployment.status())

    async def places(self, version: int, wait_s: float) -> tuple[int, bytes]:
        """Return all places as JSON, and their version, once that is another than `version`.

        After `wait_s`, it is the same one.
        """
        await self._tell()
        async with self._changed:
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait_for(lambda: self._version != version)
            except TimeoutError:
                pass
            return self._version, msgspec.json.encode(self._places)

    async def _stored(self) -> DeploymentSpec | None:
        text = await self._cluster.asks(lambda: _load(self._name))
        return msgspec.json.decode(text, type=DeploymentSpec) if text else None

    async def _take_over(self) -> None:
        """Go on where the controller before this one ended."""
        if (spec := await self._stored()) is not None:
            self._deployment.follow(spec)
        for name, handle in await self._cluster.asks(lambda: _replicas(self._name)):
            _, _, group, revision, number = name.split(":")
            self._deployment.adopt(group, revision, int(number))
            self._cluster.handles[int(number)] = handle

    async def _run(self) -> None:
        while True:
            try:
                self._deployment.tick()
                self._cluster.listen()
                await self._tell()
            except Exception:
                log.exception("the controller of %s goes on after an error", self._name)
            await asyncio.sleep(TICK_S)

    async def _tell(self) -> None:
        places = self._deployment.places()
        if places != self._places:
            async with self._changed:
                self._places = places
                self._version += 1
                self._changed.notify_all()


class _Cluster:
    """What a deployment makes happen, in Ray: see inferd.ray.group.ReplicaShell."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.deployment: Deployment
        self.handles: dict[int, Any] = {}
        self._listening: dict[int, float] = {}  # when the next report is due; inf: under way
        self._probing: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._head = asyncio.Lock()
        self._hint_s = 0.0

    async def asks(self, function: Callable[[], Any]) -> Any:
        """Return what a call to Ray's head gives, after those before it."""
        async with self._head:
            return await asyncio.to_thread(function)

    def start(self, replica: Replica, spec: GroupSpec) -> None:
        """See ReplicaShell."""
        self._begin(self._start(replica, spec))

    def stop(self, replica: Replica) -> None:
        """See ReplicaShell."""
        if (handle := self.handles.get(replica.number)) is not None:
            handle.stop.remote()

    def remove(self, replica: Replica, *, force: bool) -> None:
        """See ReplicaShell."""
        self._listening.pop(replica.number, None)
        handle = self.handles.pop(replica.number, None)
        if handle is not None and not force:
            self._begin(_left(handle))
        elif handle is not None:
            self._begin(self._kill(handle))

    def probe(self, replica: Replica) -> None:
        """See ReplicaShell."""
        if replica.number not in self._probing:
            self._probing.add(replica.number)
            self._begin(self._probe(replica))

    async def rest(self) -> None:
        """Wait until everything that was begun is done."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def listen(self) -> None:
        """Ask the replicas whose report is due; say what those wait for that are not placed."""
        now = time.monotonic()
        for number, handle in self.handles.items():
            if self._listening.setdefault(number, 0.0) <= now:
                self._listening[number] = float("inf")
                self._begin(self._listen(number, handle))
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
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the controller of %s: %r", self._name, error)

    async def _start(self, replica: Replica, spec: GroupSpec) -> None:
        try:
            handle = await self.asks(lambda: _start_replica(self._name, replica, spec))
        except Exception as error:  # noqa: BLE001  whatever Ray says
            self.deployment.lost(replica.number, first_line(error))
            return
        if any(each is replica for each in self.deployment.replicas()):
            self.handles[replica.number] = handle
        else:  # it is not wanted any more
            await self._kill(handle)

    async def _kill(self, handle: Any) -> None:
        import ray

        await self.asks(lambda: ray.kill(handle))

    async def _listen(self, number: int, handle: Any) -> None:
        from ray.exceptions import ActorUnavailableError, RayError

        try:
            report = msgspec.json.decode(await handle.report.remote(), type=ReplicaReport)
        except ActorUnavailableError:  # for now: it is silent
            pass
        except RayError as error:
            self._listening.pop(number, None)
            self.deployment.lost(number, first_line(error))
            return
        else:
            self.deployment.report(number, report)
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
        nodes, free = await self.asks(_resources)
        for replica in waiting:
            needs = self.deployment.needs(replica.number)
            self.deployment.hint(replica.number, waiting_for(needs, nodes, free))


async def _left(handle: Any) -> None:
    """Have an actor end itself."""
    from ray.exceptions import RayError

    with suppress(RayError):  # that is how it says that it is away
        await handle.leave.remote()


def _start_replica(deployment: str, replica: Replica, spec: GroupSpec) -> Any:
    import ray

    options = {
        "name": f"{controller_name(deployment)}:{spec.name}:{replica.revision}:{replica.number}",
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "max_restarts": 0,
        "num_cpus": spec.cpus,
        "num_gpus": spec.gpus,
        "resources": spec.resources,
        "scheduling_strategy": "SPREAD",
    }
    if spec.memory_bytes:
        options["memory"] = spec.memory_bytes
    actor = ray.remote(ReplicaActor).options(**options)
    return actor.remote(deployment, name_of(replica), msgspec.json.encode(spec))


def _replicas(deployment: str) -> list[tuple[str, Any]]:
    """Return the replicas that there are, with their names."""
    import ray

    prefix = f"{controller_name(deployment)}:"
    names = [
        one["name"]
        for one in ray.util.list_named_actors(all_namespaces=True)
        if one["namespace"] == NAMESPACE and one["name"].startswith(prefix)
    ]
    return [(name, ray.get_actor(name, namespace=NAMESPACE)) for name in names]


def _resources() -> tuple[list[NodeResources], dict[str, float]]:
    import ray

    nodes = [
        NodeResources(each["NodeName"], each["Resources"]) for each in ray.nodes() if each["Alive"]
    ]
    return nodes, ray.available_resources()


def _store(deployment: str, text: bytes) -> None:
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(deployment.encode(), text, namespace=_KV)


def _load(deployment: str) -> bytes | None:
    from ray.experimental import internal_kv

    found: bytes | None = internal_kv._internal_kv_get(deployment.encode(), namespace=_KV)
    return found


def _forget(deployment: str) -> None:
    from ray.experimental import internal_kv

    internal_kv._internal_kv_del(deployment.encode(), namespace=_KV)


def _log_folder() -> Path:
    """Return the folder of Ray's logs on this node, where its tools look."""
    try:
        from ray._private.worker import _global_node

        return Path(_global_node.get_logs_dir_path())
    except (ImportError, AttributeError):
        return Path(tempfile.gettempdir()) / "inferd"


def _node_name(host: str) -> str:
    """Return how Ray's own tables call this node."""
    import ray

    own = ray.get_runtime_context().get_node_id()
    return f"{host} ({own[:6]})"


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says that tells something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") and lines[1:] else lines[0]
