"""ServerReadiness: whether the server is live and ready, which load balancers and clients ask."""

import asyncio

from inferd.core.metadata import ServerState
from inferd.engine.loading.catalog import Catalog


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

    async def all_say_ready(self) -> bool:
        """Tell whether it is ready; if strict, the models that can be asked must say so, too."""
        models = self._catalog.with_workers() if self._is_strict else ()
        # Workers are asked only if the rest is right, since each question is a message.
        if models and self.is_ready():
            answers = await asyncio.gather(*(served.says_ready() for served in models))
            if not all(answers):
                return False
        # Asked again: models may have come and gone while the workers answered.
        return self.is_ready()
