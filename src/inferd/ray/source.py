"""RaySource: the places of a deployment on Ray, for `inferd route`."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from typing import IO

import msgspec

from inferd.ray.follower import MARK
from inferd.ray.spec import DEFAULT_NAME
from inferd.ray.status import ReplicaPlace
from inferd.route.place import Place, PlaceState, SourceFailed

AGAIN_S = 5.0
"""A process that follows Ray takes a second of CPU to start: not more often than this."""

# A week: Ray would otherwise end the follower a minute after its head has gone.
_PATIENCE = ("RAY_gcs_rpc_server_reconnect_timeout_s", "604800")
_MOST_LINE_BYTES = 64 << 20
_MOST_SHOWN = 500


class RaySource:
    """See inferd.route.place.Source; `deployment` is the name of one at `address`.

    It goes on while Ray's head is away, as far as the controller is there.
    """

    def __init__(self, address: str, deployment: str = DEFAULT_NAME) -> None:
        self.name = f"deployment {deployment} on Ray at {address}"
        self._words = (address, deployment)
        self._began_s = -AGAIN_S
        self._process: asyncio.subprocess.Process | None = None

    async def follow(self) -> AsyncIterator[tuple[Place, ...]]:
        """See Source."""
        await asyncio.sleep(max(self._began_s + AGAIN_S - time.monotonic(), 0.0))
        self._began_s = time.monotonic()
        # A file and no pipe: nobody reads Ray's warnings meanwhile, and a
        # full pipe would stop the process.
        with tempfile.TemporaryFile() as errors:
            self._process = process = await self._start(errors)
            assert process.stdout is not None
            try:
                while line := await process.stdout.readline():
                    places = msgspec.json.decode(line, type=list[ReplicaPlace])
                    yield tuple(map(place_of, places))
                await process.wait()
            finally:
                # Also when the generator is closed in the middle, at the end of the route.
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            raise SourceFailed(_reason(errors))

    def wake(self, name: str) -> None:
        """See Source; `name` is a group."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(f"{name}\n".encode())

    async def _start(self, errors: IO[bytes]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "inferd.ray.follower", *self._words),
            # Groups to be woken; its end, however this process ends, ends the other.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            # What the operator has set wins.
            env=dict([_PATIENCE]) | os.environ,
            # asyncio's limit for a line is 64 KiB; one line has all places,
            # with the names of all their models.
            limit=_MOST_LINE_BYTES,
        )


def place_of(one: ReplicaPlace) -> Place:
    """Return a replica's place as fronts know it."""
    state = PlaceState.DRAINING if one.is_draining else PlaceState.READY
    return Place(
        one.name,
        one.host,
        one.http_port,
        one.grpc_port,
        None if one.models is None else frozenset(one.models),
        PlaceState.ASLEEP if one.is_asleep else state,
    )


def _reason(errors: IO[bytes]) -> str:
    """Return why the follower has ended: its own words, or the last ones of Ray."""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    own = [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]
    if own:
        return own[-1]
    last = lines[-1][:_MOST_SHOWN] if lines else "no word"
    return f"the process that follows Ray has ended: {last}"
