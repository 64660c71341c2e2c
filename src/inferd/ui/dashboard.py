"""Dashboard: what the pages of all ports share, and the API beside V2 that they are."""

from collections.abc import Callable
from importlib.resources.abc import Traversable

from inferd.api.mount import Mount
from inferd.engine.engine import Engine
from inferd.http.access import Access
from inferd.http.failure import FailureLog
from inferd.http.grpc.handler import Method
from inferd.http.header_forward import HeaderForward
from inferd.ui.files import page_folder
from inferd.ui.hosts import Hosts
from inferd.ui.routes import UiRoutes
from inferd.ui.streams import Hub
from inferd.ui.tokens import Tokens


class Dashboard(Mount):
    """The dashboard of one `engine`: `hub` has its events, `hosts` knows the server's names.

    With `tokens` pages may change things; `say_next` is told when one has been used. `folder` has
    the files of the page, if not the package's.
    """

    def __init__(
        self,
        engine: Engine,
        hub: Hub,
        hosts: Hosts,
        tokens: Tokens | None = None,
        say_next: Callable[[], None] = lambda: None,
        folder: Traversable | None = None,
    ) -> None:
        self.groups = {}
        self.hub = hub
        self.hosts = hosts
        self.tokens = tokens
        self._engine = engine
        self._say_next = say_next
        self._folder = page_folder() if folder is None else folder

    def http(self, access: Access, failures: FailureLog, *, forwards: bool) -> UiRoutes:
        """See Mount.http."""
        del failures, forwards
        shared = (self.hub, self.hosts, self.tokens, self._say_next, self._folder)
        return UiRoutes(self._engine, access, *shared)

    async def drain(self) -> bool:
        """End the streams of events after a last one; they do not hold anything up."""
        await self.hub.drain()
        return True

    def close(self) -> None:
        """End the streams of events at once."""
        self.hub.close()

    def grpc(self, forward: HeaderForward | None, access: Access) -> dict[str, Method]:
        """See Mount.grpc; there is nothing over gRPC."""
        del forward, access
        return {}
