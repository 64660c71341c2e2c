"""ControllerActor: runs a deployment, on Ray; a thin skin over what decides (Deployment)."""

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import msgspec

import inferd
from inferd.ray.cluster import Cluster
from inferd.ray.deployment import Deployment
from inferd.ray.head import find_replicas, forget_spec, store_spec, stored_spec
from inferd.ray.spec import DeploymentSpec

if TYPE_CHECKING:
    from inferd.ray.status import ReplicaPlace

TICK_S = 0.2

LOGGER = logging.getLogger("inferd")


class ControllerActor:
    """Runs a deployment. Ray starts it again where it ends; it then takes over the replicas."""

    async def __init__(self, name: str) -> None:  # type: ignore[misc]  # Ray awaits it
        self._name = name
        self._cluster = Cluster(name)
        self._deployment = Deployment(name, self._cluster, time.monotonic)
        self._cluster.deployment = self._deployment
        self._places: tuple[ReplicaPlace, ...] = ()
        self._version = time.time_ns()  # other than that of a controller before
        self._changed = asyncio.Condition()
        # Before the first tick, which would otherwise start replicas that there are already.
        await self._take_over()
        self._running = asyncio.create_task(self._run())

    async def version(self) -> str:
        """Return inferd's version."""
        return inferd.__version__

    async def deploy(self, spec: bytes, generation_step: int) -> None:
        """Bring about what a DeploymentSpec, as JSON, says from now on."""
        given = msgspec.json.decode(spec, type=DeploymentSpec)
        # From the store and not from memory: it is what the next controller will find.
        stored = await self._cluster.ask_head(lambda: stored_spec(self._name))
        generation = generation_step + (stored.generation if stored else 0)
        whole = msgspec.structs.replace(given, generation=generation)
        # Stored first: a controller that ends in between then goes on with it.
        await self._cluster.ask_head(lambda: store_spec(self._name, whole))
        self._deployment.become(whole)

    async def scale(self, group: str, count: int) -> None:
        """Have `count` replicas of a group."""
        self._deployment.scale(group, count)

    async def wake(self, group: str) -> None:
        """Have a replica of a group that has none."""
        self._deployment.wake(group)

    async def end(self, wait_s: float) -> bool:
        """End all replicas, and forget the deployment; tell after `wait_s` whether that is done."""
        # Nothing is wanted, so everything is drained, by the same rules as always.
        self._deployment.become(DeploymentSpec(name=self._name))
        await asyncio.sleep(wait_s)
        if next(self._deployment.replicas(), None) is not None:
            return False
        await self._cluster.rest()
        await self._cluster.ask_head(lambda: forget_spec(self._name))
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
                # Held here instead of asked by turns: fronts hear of a change at once, without a
                # question a second from each.
                async with asyncio.timeout(wait_s):
                    await self._changed.wait_for(lambda: self._version != version)
            except TimeoutError:
                pass
            return self._version, msgspec.json.encode(self._places)

    async def _take_over(self) -> None:
        """Go on where the controller before this one ended."""
        spec = await self._cluster.ask_head(lambda: stored_spec(self._name))
        if spec is not None:
            self._deployment.become(spec)
        # By their names, as actors outlive the controller but its memory does not.
        for one in await self._cluster.ask_head(lambda: find_replicas(self._name)):
            self._deployment.adopt(one.group, one.revision, one.number)
            self._cluster.actors[one.number] = one.actor

    async def _run(self) -> None:
        while True:
            try:
                self._deployment.tick()
                self._cluster.listen()
                await self._tell()
            # A mistake in one tick must not be the end of the only one who replaces replicas.
            except Exception:
                LOGGER.exception("the controller of %s goes on after an error", self._name)
            await asyncio.sleep(TICK_S)

    async def _tell(self) -> None:
        places = self._deployment.places()
        if places != self._places:
            async with self._changed:
                self._places = places
                self._version += 1
                self._changed.notify_all()
