"""Exchange: what this process of the server sends to the others, and takes from them."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from inferd.core.processes import Processes
from inferd.errors import InvalidConfig
from inferd.forward.frame_line import FrameLine
from inferd.forward.owned import OwnedVersions
from inferd.forward.owner_end import OwnerEnd
from inferd.forward.peers import Peers

# Permissions of group and others.
_OTHERS = 0o077


class Exchange:
    """Links to and from the other `processes`, and the versions that they may send requests to."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.peers = Peers(processes)
        # Requests of others find versions in it; schedulers fill it as they are made.
        self.owned = OwnedVersions()
        self._ends: set[OwnerEnd] = set()
        self._wanting: set[OwnerEnd] = set()  # those of them whose origin has clients
        self._server: asyncio.AbstractServer | None = None
        self._path = ""
        self._left = asyncio.Event()

    @property
    def has_origins(self) -> bool:
        """Whether other processes may send requests."""
        return self._server is not None and bool(self._ends)

    async def open(self, path: str) -> None:
        """Take requests on a Unix socket in a folder that nobody else can enter.

        The folder is made if need be. Raises OSError, or InvalidConfig for a folder that others can
        enter.
        """
        _prepare(Path(path))
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connected, path)
        self._path = path

    async def finish(self, timeout_s: float, *, is_replaced: bool = False) -> None:
        """Wait until the others need nothing of this process, which has no more requests itself.

        They are told: processes that end together would wait for each other otherwise. The links
        to them stay: what runs here for others may call models that are elsewhere. Once nobody has
        requests of clients, nothing runs anywhere. If this process `is_replaced`, they turn to the
        one that took its place. Gives up after `timeout_s`.
        """
        # Before waiting: two processes that both wait would wait for each other's word.
        self.peers.say_last()
        if is_replaced:
            for end in self._ends:
                end.dismiss()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._wanting:
                    # Cleared before waiting, so that no end in between is missed.
                    self._left.clear()
                    await self._left.wait()

    def stop(self) -> None:
        """Take no more connections of other processes: this one is closing. Those there go on."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            # The supervisor may have removed the folder.
            with suppress(FileNotFoundError):
                Path(self._path).unlink()

    def close(self) -> None:
        """End all links. Requests that are still under way there, or for others here, fail."""
        self.stop()
        # Each `close` removes its end from the set.
        for end in list(self._ends):
            end.close()
        self._ends.clear()
        self._wanting.clear()
        self.peers.close()

    def _connected(self) -> FrameLine:
        end = OwnerEnd(self.owned, self._forget, self._note_done)
        self._ends.add(end)
        self._wanting.add(end)
        return end.line

    def _note_done(self, end: OwnerEnd) -> None:
        self._wanting.discard(end)
        self._left.set()

    def _forget(self, end: OwnerEnd) -> None:
        self._ends.discard(end)
        self._note_done(end)


def _prepare(path: Path) -> None:
    """Make room for a socket at `path`, in a folder of our own."""
    folder = path.parent
    # Whoever can connect can have requests run without a check: only this user may.
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & _OTHERS:
        msg = f"the folder {folder} for sockets of the server's processes is open to others"
        raise InvalidConfig(msg)
    # A socket of a process that was killed, whose number this one has.
    path.unlink(missing_ok=True)
