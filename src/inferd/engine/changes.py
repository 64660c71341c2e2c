"""ServerChanges: what clients, and files, change of the server, in every process that it is."""

from inferd.config.options.trace import TraceChange, TraceSettings
from inferd.core.change import (
    UNSHARED,
    Agreement,
    Change,
    ChangeLog,
    ChangeTrace,
    Everywhere,
    FollowModel,
    LoadModel,
    UnloadModel,
    load_of,
    of_load,
)
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.engine.control.control import RepositoryControl
from inferd.engine.loading.catalog import Catalog
from inferd.errors import InvalidRequest
from inferd.observe.log import Log
from inferd.observe.tracing.tracer import Tracer
from inferd.shm.regions import Regions


class ServerChanges:
    """ServerChanges the models under `control`, `regions`, and the settings of `log` and `tracer`.

    `everywhere` is all processes of the server, None if this is the only one.
    """

    def __init__(
        self,
        catalog: Catalog,
        control: RepositoryControl,
        regions: Regions,
        log: Log,
        tracer: Tracer,
    ) -> None:
        self._catalog = catalog
        self._control = control
        self._regions = regions
        self._log = log
        self._tracer = tracer
        self.everywhere: Everywhere | None = None

    def is_model_ready(self, name: str, version: str) -> bool:
        """Tell whether the model, or that version of it, is ready. Raises ModelNotFound."""
        return self._catalog.is_ready(name, version)

    async def load(self, request: LoadRequest) -> None:
        """Load or reload a model (Model Repository extension); see RepositoryControl.load."""
        if self.everywhere is None:
            await self._control.load(request)
        else:
            self._control.check_load(request)
            await self.everywhere.change(of_load(request))

    async def unload(self, request: UnloadRequest) -> None:
        """Unload a model (Model Repository extension); see RepositoryControl.unload."""
        if self.everywhere is None:
            await self._control.unload(request)
        else:
            self._control.check_unload(request)
            # The others are told, because a process that starts later would load it again.
            is_at_start = self._control.loads_at_start(request.model)
            await self.everywhere.change(
                UnloadModel(request.model, request.unload_dependents, is_at_start)
            )

    async def follow(self, name: str) -> None:
        """Have a model be as it is in the repositories now."""
        await self.change(FollowModel(name))

    async def trace_settings(
        self, model: str = "", change: TraceChange | None = None
    ) -> TraceSettings:
        """Return the trace settings of a model, or the global ones, after making `change`.

        Raises InvalidRequest for an unknown model, since clients expect that here, not
        ModelNotFound; otherwise raises as Tracer.change does.
        """
        if model and model not in self._catalog.models:
            # Triton's words for it have this space.
            raise InvalidRequest(f"Request for unknown model : {model} is not found on this server")
        if change is not None:
            await self.change(ChangeTrace(change, model))
        return self._tracer.settings(model)

    async def change(self, change: Change) -> None:
        """Make a change in every process of the server. Raises as `make` does."""
        if self.everywhere is None:
            await self.make(change, UNSHARED)
        else:
            await self.everywhere.change(change)

    async def make(self, change: Change, agreement: Agreement) -> None:
        """Make a change in this process, when all those of the `agreement` can.

        Raises InferdError; nothing is changed then.
        """
        match change:
            case LoadModel():
                await self._control.load(load_of(change), agreement)
            case UnloadModel():
                request = UnloadRequest(change.model, change.unload_dependents)
                await self._control.unload(request)
            case FollowModel():
                await self._control.follow(change.model, agreement)
            case ChangeLog():
                # A change is prepared, and undone if another process of the server cannot make it.
                with self._log.changing(change.change):
                    await agreement.all_can("log", {})
            case ChangeTrace():
                is_replay = agreement.is_replay
                with self._tracer.changing(change.change, change.model, is_replay=is_replay):
                    await agreement.all_can("trace", {})
            case _:
                await self._regions.make(change, agreement)
