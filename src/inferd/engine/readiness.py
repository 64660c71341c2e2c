"""ServerReadiness: whether the server is live and ready, which load balancers and clients ask."""

import asyncio
from typing import TYPE_CHECKING

from inferd.core.metadata import ServerState
from inferd.engine.loading.catalog import Catalog

if TYPE_CHECKING:
    from inferd.core.processes import Others


class ServerReadiness:
    """Tells what the models in `catalog`, and how far the server has come, say of the server.

    If it `is_strict`, one model that failed to load makes the whole server not ready, and so does
    having no model, unless it `may_be_empty`. It `is_replaced` when another process has taken the
    place of this one, so that the server is ready although this process drains.
    """

    def __init__(self, catalog: Catalog, *, is_strict: bool, may_be_empty: bool) -> None:
        self._catalog = catalog
        self._is_strict = is_strict
        self._needs_one = is_strict and not may_be_empty
        self._is_loaded = False
        self._has_failed = False
        self.is_draining = False
        self.is_replaced = False
        self.others: Others | None = None
        """The other processes of the server, which have instances, too; None if there are none."""

    def fail(self) -> None:
        """Mark the server as one that could not start: it is neither live nor ready, as Triton."""
        self._has_failed = True

    def finish_loading(self) -> None:
        """Mark the initial loading as done: from now on the server may be ready."""
        self._is_loaded = True

    def state(self) -> ServerState:
        """Return whether the server is starting, serving or shutting down, or could not start."""
        # Draining first: a server that could not start and is stopped has nothing else to say.
        if self.is_draining:
            return ServerState.EXITING
        if self._has_failed:
            return ServerState.FAILED_TO_INITIALIZE
        return ServerState.READY if self._is_loaded else ServerState.INITIALIZING

    def is_live(self) -> bool:
        """Tell whether the server can answer at all: as soon as its ports are open.

        It is not live if its repositories could not be opened: see `fail`.
        """
        return not self._has_failed

    def is_ready(self) -> bool:
        """Tell whether inference may be sent: loaded, not draining, and (if strict) no failures.

        Strictly, a server without a model is not ready either: see `lacks_models`.
        """
        return self._is_loaded and self.would_be_ready()

    def would_be_ready(self) -> bool:
        """Tell whether it is ready as soon as it has loaded."""
        # One process of several drains while the server goes on, and health checks may still reach
        # it.
        if (self.is_draining and not self.is_replaced) or self._has_failed:
            return False
        return not self._is_strict or (self._catalog.is_sound() and not self.needs_models())

    def lacks_models(self) -> bool:
        """Tell whether it has loaded and has no model, although it needs one to be ready."""
        return self._is_loaded and self.needs_models()

    def needs_models(self) -> bool:
        """Tell whether it has no model, although it needs one to be ready once it has loaded."""
        return self._needs_one and self._catalog.is_empty()

    async def says_ready(self, name: str, version: str) -> bool:
        """Tell whether a model is ready, and says so if it can be asked. Raises ModelNotFound."""
        if not self._catalog.is_ready(name, version):
            return False
        served = self._catalog.find(name, version)
        if not await served.says_ready():
            return False
        others = self.others if served.is_forwarded else None
        return others is None or await others.say_ready(name, served.version)

    async def all_say_ready(self) -> bool:
        """Tell whether it is ready; if strict, the models that can be asked must say so, too."""
        # They are asked only if the rest is right, since each question is a message.
        if self._is_strict and self.is_ready():
            is_elsewhere = any(served.is_forwarded for served in self._catalog.served())
            others = self.others if is_elsewhere else None
            if not await self.own_say_ready() or (others and not await others.say_ready()):
                return False
        # Asked again: models may have come and gone while the workers answered.
        return self.is_ready()

    async def own_say_ready(self, name: str = "", version: str = "") -> bool:
        """Tell whether no instance in this process, of a model or of all, calls itself not ready.

        A model that does not serve here has none.
        """
        models = self._catalog.with_workers()
        if name:
            models = [one for one in models if (one.name, one.version) == (name, version)]
        return all(await asyncio.gather(*(served.says_ready() for served in models)))
