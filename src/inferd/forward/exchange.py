"""Exchange: what this process of the server sends to the others, and takes from them."""

from inferd.core.processes import Processes
from inferd.forward.listener import PeerListener
from inferd.forward.owned import OwnedVersions
from inferd.forward.peers import Peers


class Exchange:
    """Links to and from the other `processes`, and the versions that they may send requests to."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.peers = Peers(processes)
        self.owned = OwnedVersions()
        # It finds versions in `owned`, which schedulers fill as they are made.
        self.listener = PeerListener(self.owned)

    async def open(self, path: str) -> None:
        """Take requests of other processes on a Unix socket; see PeerListener.open."""
        await self.listener.open(path)

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
            self.listener.dismiss()
        await self.listener.wait_until_done(timeout_s)

    def stop(self) -> None:
        """Take no more connections of other processes: this one is closing."""
        self.listener.stop()

    def close(self) -> None:
        """End all links. Requests that are still under way there, or for others here, fail."""
        self.listener.close()
        self.peers.close()
