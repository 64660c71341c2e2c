"""Engine: the server without its sockets, the one entry point for every protocol."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import inferd
from inferd.aio.offload import Offload
from inferd.compiled import mypyc_attr
from inferd.config.model import ModelConfig
from inferd.config.options.log import LogSettings
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
from inferd.core.interfaces import GatheringScheduler, GivenModel
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.metadata import IndexEntry, ModelMetadata, ModelState, ServerMetadata, ServerState
from inferd.core.processes import ALONE as ONE
from inferd.core.processes import Others, Processes, Serves
from inferd.core.request import InferRequest, InferResponse
from inferd.core.streaming import one_answer
from inferd.engine.control.control import RepositoryControl
from inferd.engine.loading.caching import open_store
from inferd.engine.loading.catalog import UNKNOWN, Catalog
from inferd.engine.loading.load import Loader, LoadOptions
from inferd.engine.serving.served import Served
from inferd.engine.steps import Steps
from inferd.engine.streaming import all_answers
from inferd.engine.whole import Whole, processes_families
from inferd.errors import InvalidRequest, ModelNotFound, Unavailable, Unsupported
from inferd.memory.capacity import Capacity
from inferd.observe.custom import CustomMetrics
from inferd.observe.log import Log
from inferd.observe.prometheus import Observed
from inferd.observe.statistics import ModelStatistics
from inferd.observe.tracing.file import TraceWriter
from inferd.observe.tracing.tracer import Tracer
from inferd.repository.repositories import place_of
from inferd.shm.placing import is_large, place_now, place_outputs
from inferd.shm.regions import Regions
from inferd.tensor.classification import Labels

if TYPE_CHECKING:
    from inferd.observe.payloads.log import PayloadLog

log = logging.getLogger("inferd.engine")

EXTENSIONS = [
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
    "generate",
]
"""The protocol extensions this server supports, by their names in Triton's documentation.

Those of shared memory are left out where clients may not use it.
"""


@mypyc_attr(allow_interpreted_subclasses=True)
class Engine:
    """Knows the models, finds the one a request names, checks the request, and runs it.

    `name` is the server's name in its metadata. With `strict_readiness`, one model that failed to
    load makes the whole server not ready, and so does having no model, unless clients load models
    or `load_options` allow none. The logging and trace extensions read and change `log`
    and `tracer`. `regions` holds the shared memory of clients, who have none unless
    `allow_client_shm`. `custom_metrics` are the models' own metrics. `capacity` counts what is
    under way, and may be given limits. `whole` tells what has been counted. `offload` has the
    threads in which every protocol decodes and encodes what is large. Where the server is several
    `processes`, this is one of them, and passes requests on by `exchange`.
    """

    def __init__(  # noqa: PLR0913
        self,
        name: str = "inferd",
        *,
        strict_readiness: bool = True,
        load_options: LoadOptions | None = None,
        log: Log | None = None,
        tracer: Tracer | None = None,
        allow_client_shm: bool = False,
        processes: Processes = ONE,
    ) -> None:
        self.capacity = Capacity()
        self.offload = Offload()
        self.custom_metrics = CustomMetrics()
        self.regions = Regions(allowed=allow_client_shm)
        self._name = name
        self._strict_readiness = strict_readiness
        self._catalog = Catalog()
        options = load_options or LoadOptions()
        # There a server begins without models by design, and clients load them.
        self._may_be_empty = options.allow_empty or options.model_control_mode == "explicit"
        self._store = open_store(options.cache)
        # Models that call others go through this, so that calls within the server are counted once.
        steps = Steps(self, self.capacity)
        loader = Loader(
            options,
            models=steps,
            find=self._catalog.find,
            store=self._store,
            control=self,
            metrics=self.custom_metrics,
            processes=processes,
        )
        self.exchange = loader.exchange
        self._control = RepositoryControl(self._catalog, options, loader)
        # The dict itself, which saves a call for each request; the catalog never replaces it.
        self._models = self._catalog.models
        self.everywhere: Everywhere | None = None
        self.log = log or Log(LogSettings())
        self.tracer = tracer or Tracer(TraceSettings(), TraceWriter(None))
        self.whole = Whole(
            self._catalog, self.capacity, self._store, self.custom_metrics, self.offload
        )
        if processes.count > 1:
            self.whole.sources.append(partial(processes_families, processes))
        self._is_loaded = False
        self._has_failed = False
        self._is_draining = False
        self.notes_requests = False
        """Whether requests are logged, so that each call notes what it is about."""
        self.payloads: PayloadLog | None = None
        self.is_replaced = False
        """Whether another process has taken the place of this one, so that the server is ready."""

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run `request` and return its one answer, with the wanted outputs in the model's order.

        Raises ModelNotFound, InvalidRequest, Unsupported for a decoupled model, Overloaded, or
        whatever InferdError the scheduler and the model raise.
        """
        response = self.begin(request)
        return response if isinstance(response, InferResponse) else await response

    def begin(self, request: InferRequest) -> InferResponse | Coroutine[Any, Any, InferResponse]:
        """Return what `infer` does: the answer if it is there at once, otherwise a coroutine.

        Most small requests need not wait, and a coroutine costs a tenth of what they cost. Raises
        as `infer` does, at once or when awaited.
        """
        served = self._find(request.model, request.version)
        if request.trace is not None:
            request.trace.version = served.version
        if served.is_decoupled:
            raise _needs_a_stream(served)
        # Before the limits: a request that is wrong is told so, also by a full server.
        served.requests.check(request)
        capacity = self.capacity
        # Compared here and not in a method of Capacity, which would be a call per request.
        if capacity.request_count >= capacity.max_requests:
            raise capacity.too_many_requests()
        if request.copied_bytes and not capacity.has_room(request.copied_bytes):
            raise capacity.too_many_bytes(request.copied_bytes)
        if served.prompt is None:
            return self._run(served, request, None)
        try:
            response = served.prompt.run_now(request)
            if (
                response is None
                # Classification, and copies of large outputs, may take a thread.
                or request.has_top_k
                or (request.spans is not None and is_large(response))
            ):
                return self._run(served, request, response)
            served.responses.check(request, response)
            if request.spans is not None:
                place_now(request, response)
        # Cancellation counts as a failure as well.
        except BaseException as error:
            served.counts.add_failure(request, error)
            raise
        return _settled(served, request, response)

    async def _run(
        self, served: Served, request: InferRequest, response: InferResponse | None
    ) -> InferResponse:
        """Complete a request that has been checked, from `response` if the model has answered."""
        capacity = self.capacity
        # Counted only here: what `begin` answers at once is never under way between two turns of
        # the loop.
        capacity.request_count += 1
        capacity.buffered_bytes += request.copied_bytes
        try:
            if response is None:
                response = await served.scheduler.run(request)
            served.responses.check(request, response)
            if request.has_top_k:
                await served.responses.classify(request, response)
            if request.spans is not None:
                await place_outputs(request, response)
        except BaseException as error:
            served.counts.add_failure(request, error)
            raise
        finally:
            capacity.request_count -= 1
            capacity.buffered_bytes -= request.copied_bytes
        return _settled(served, request, response)

    def infer_now(self, request: InferRequest) -> InferResponse | None:
        """See PromptModels.infer_now. Raises as `infer` does, but not for want of capacity."""
        served = self._find(request.model, request.version)
        if served.prompt is None or served.is_decoupled:
            return None
        served.requests.check(request)
        try:
            response = served.prompt.run_now(request)
            if response is None:
                return None
            served.responses.check(request, response)
        except BaseException as error:
            served.counts.add_failure(request, error)
            raise
        return _settled(served, request, response)

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """Return the answers to `request` as they come; a model that is not decoupled gives one.

        Raises as `infer` does: at once for what is wrong with the request, otherwise while
        iterating. Closing the generator gives up the answers that have not come yet.
        """
        served = self._find(request.model, request.version)
        if request.trace is not None:
            request.trace.version = served.version
        served.requests.check(request)
        if self.capacity.is_full:
            raise self.capacity.too_many_requests()
        if not self.capacity.has_room(request.copied_bytes):
            raise self.capacity.too_many_bytes(request.copied_bytes)
        if served.is_decoupled:
            return all_answers(served, request, self.capacity)
        return one_answer(self.infer, request)

    def state(self) -> ServerState:
        """Return whether the server is starting, serving or shutting down, or could not start."""
        # Draining first: a server that could not start and is stopped has nothing else to say.
        if self._is_draining:
            return ServerState.EXITING
        if self._has_failed:
            return ServerState.FAILED_TO_INITIALIZE
        return ServerState.READY if self._is_loaded else ServerState.INITIALIZING

    def is_decoupled(self, name: str, version: str) -> bool:
        """Tell whether a ready model is decoupled. Raises as `infer` does."""
        return self._find(name, version).config.decoupled

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
        if (self._is_draining and not self.is_replaced) or self._has_failed:
            return False
        if not self._strict_readiness:
            return True
        return self._catalog.is_sound() and not self.needs_models()

    def lacks_models(self) -> bool:
        """Tell whether it has loaded and has no model, although it needs one to be ready."""
        return self._is_loaded and self.needs_models()

    def needs_models(self) -> bool:
        """Tell whether it has no model, although it needs one to be ready once it has loaded."""
        needs_one = self._strict_readiness and not self._may_be_empty
        return needs_one and self._catalog.is_empty()

    async def all_say_ready(self) -> bool:
        """Tell whether it is ready; if strict, the models that can be asked must say so, too."""
        models = self._catalog.with_workers() if self._strict_readiness else ()
        # Workers are asked only if the rest is right, since each question is a message.
        if models and self.is_ready():
            answers = await asyncio.gather(*(served.says_ready() for served in models))
            if not all(answers):
                return False
        # Asked again: models may have come and gone while the workers answered.
        return self.is_ready()

    def is_model_ready(self, name: str, version: str) -> bool:
        """Tell whether the model, or that version of it, is ready. Raises ModelNotFound."""
        return self._catalog.is_ready(name, version)

    async def says_ready(self, name: str, version: str) -> bool:
        """Tell whether a model is ready, and says so if it can be asked. Raises ModelNotFound."""
        if not self.is_model_ready(name, version):
            return False
        return await self._catalog.find(name, version).says_ready()

    def check_model(self, name: str, version: str) -> None:
        """Raise as `infer` does when the model, or that version of it, cannot be asked.

        Raises ModelNotFound, Unavailable, or Unsupported for a decoupled model.
        """
        served = self._find(name, version)
        if served.config.decoupled:
            raise _needs_a_stream(served)

    def server_metadata(self) -> ServerMetadata:
        """Return the server's name, version and extensions (V2, Server Metadata)."""
        extensions = [name for name in EXTENSIONS if self.regions.may_have(name)]
        return ServerMetadata(self._name, inferd.__version__, extensions)

    def model_metadata(self, name: str, version: str) -> ModelMetadata:
        """Return the metadata of a ready model (V2, Model Metadata).

        Its `versions` are all ready ones, or only the one asked for. Raises ModelNotFound,
        Unavailable.
        """
        served = self._find(name, version)
        # Triton lists what is ready; the one asked for, alone.
        versions = [served.version] if version else list(self._models[name].ready)
        return ModelMetadata(
            served.name, versions, served.platform, served.inputs(), served.outputs()
        )

    def model_config(self, name: str, version: str) -> ModelConfig:
        """Return the configuration a ready model runs with. Raises ModelNotFound, Unavailable."""
        return self._find(name, version).config

    def shown_config(self, name: str, version: str) -> ModelConfig:
        """Return what `model_config` does; parameters tell whether requests are joined."""
        return self._find(name, version).shown_config()

    def known_config(self, name: str) -> ModelConfig | None:
        """Return the configuration of a known model, ready or not, None if there is none."""
        model = self._models.get(name)
        return model.config if model is not None else None

    def labels(self, name: str, version: str) -> Mapping[str, Labels]:
        """Return the labels of a ready model by output name. Raises as `infer` does."""
        return self._find(name, version).labels

    def model_names(self) -> list[str]:
        """Return the names of the models that have a ready version."""
        return self._catalog.names()

    def index(self, *, ready: bool = False) -> list[IndexEntry]:
        """Return one row per known model version, or `ready` one, by name and number."""
        rows = self._catalog.rows()
        return [row for row in rows if row.state is ModelState.READY or not ready]

    def statistics(self, name: str = "", version: str = "") -> list[ModelStatistics]:
        """Return what this process has counted of each ready version of one model, or of all.

        Raises as `all_statistics` does.
        """
        return list(map(_statistics, self._ready(name, version)))

    async def all_statistics(self, name: str = "", version: str = "") -> Iterator[ModelStatistics]:
        """Return a row for each ready version of one model, or of all (Statistics extension).

        A row is made when it is taken: those of 1,000 models take some 20 ms. Raises
        InvalidRequest for a model or version that is not ready: clients expect that here, not
        ModelNotFound.
        """
        served = self._ready(name, version)
        return map(_statistics, (await self.whole.sum()).rows(served))

    async def trace_settings(
        self, model: str = "", change: TraceChange | None = None
    ) -> TraceSettings:
        """Return the trace settings of a model, or the global ones, after making `change`.

        Raises InvalidRequest for an unknown model, since clients expect that here, not
        ModelNotFound; otherwise raises as Tracer.change does.
        """
        if model and model not in self._models:
            # Triton's words for it have this space.
            msg = f"Request for unknown model : {model} is not found on this server"
            raise InvalidRequest(msg)
        if change is not None:
            await self.change(ChangeTrace(change, model))
        return self.tracer.settings(model)

    async def repository_index(self, *, ready: bool = False) -> list[IndexEntry]:
        """Return what `index` does, plus a row for each model that clients could load.

        Raises NotLoadable when a repository cannot be read.
        """
        return self.index(ready=True) if ready else await self._control.index()

    @property
    def others(self) -> Others | None:
        """The other processes of the server, None if this is the only one."""
        return self.whole.others

    @others.setter
    def others(self, others: Others | None) -> None:
        self.whole.others = others

    def numbers(self) -> bytes:
        """Return what this process has counted; see Whole.numbers."""
        return self.whole.numbers()

    def check_is_explicit(self) -> None:
        """Raise Unavailable unless clients may load and unload models."""
        self._control.check_is_explicit()

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

    async def change(self, change: Change) -> None:
        """Change regions or settings in every process of the server. Raises as `make` does."""
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
                with self.log.changing(change.change):
                    await agreement.all_can("log", {})
            case ChangeTrace():
                is_replay = agreement.is_replay
                with self.tracer.changing(change.change, change.model, is_replay=is_replay):
                    await agreement.all_can("trace", {})
            case _:
                await self.regions.make(change, agreement)

    def follow_repositories(self) -> None:
        """Look for changes in the repositories from now on, if the control mode is to."""
        self._control.poll()

    def set_state(self, name: str, version: int, state: ModelState, reason: str = "") -> None:
        """Record the state of a version that does not serve, NO_VERSION when none is known."""
        self._catalog.set_state(name, version, state, reason)

    def add(self, served: Served) -> None:
        """Let a loaded version serve from now on."""
        self._catalog.add(served)

    async def load_all(
        self, repositories: Sequence[Path | str], given: Sequence[GivenModel] = ()
    ) -> None:
        """Load the models that the control mode selects; then the server may be ready.

        Models `given` by the program are loaded in every mode. A model that cannot be loaded stays
        in the index with the reason, and the others serve. Raises InvalidConfig for a path that
        holds no models or a URL that names no place; NotLoadable for a cloud that does not answer.
        """
        paths = [place_of(str(path)) for path in repositories]
        if self.everywhere is not None:
            # One process looks, and all follow together; otherwise each would serve other versions
            # for a while.
            self._control.announce = self._have_followed
        await self._control.start(paths, given)
        # With others, the supervisor says when all have loaded.
        if self.everywhere is None:
            self.finish_loading()
            self.follow_repositories()

    def serves(self) -> Serves:
        """Return what serves; see Serves."""
        return self._control.prints()

    async def _have_followed(self, name: str) -> None:
        assert self.everywhere is not None
        await self.everywhere.change(FollowModel(name))

    async def look(self) -> Sequence[asyncio.Task[None]]:
        """Check the repositories once, as poll mode does; see RepositoryControl.look."""
        return await self._control.look()

    def fail(self) -> None:
        """Mark the server as one that could not start: it is neither live nor ready, as Triton."""
        self._has_failed = True

    def finish_loading(self) -> None:
        """Mark the initial loading as done: from now on the server may be ready."""
        self._is_loaded = True

    def drain(self) -> None:
        """Stop being ready and loading models; requests still run, but wait for no others.

        If this process is replaced, the server goes on: so do changes that clients ask for.
        """
        self._is_draining = True
        self._control.stop_polling()
        if not self.is_replaced:
            self._control.stop()
        for served in self._catalog.served():
            if isinstance(served.scheduler, GatheringScheduler):
                served.scheduler.hurry()

    async def close(self, timeout_s: float) -> None:
        """Close every version, waiting at most `timeout_s` for requests that run in threads."""
        self.drain()
        # Before the models: no answer is written to a client's memory any more.
        self.regions.close()
        self.whole.end()
        if self.exchange is not None:
            self.exchange.stop()
        await self._control.close(timeout_s)
        if self.exchange is not None:
            self.exchange.close()
        if self._store is not None:
            await self._store.close()

    def _find(self, name: str, version: str) -> Served:
        # The usual spelling of a version in one look; all others, and errors, take the longer way.
        model = self._models.get(name)
        if model is not None:
            served = model.ready.get(version) if version else model.default
            if served is not None:
                return served
        return self._catalog.find(name, version)

    def _ready(self, name: str, version: str) -> list[Served]:
        try:
            return self._catalog.served(name, version)
        except (ModelNotFound, Unavailable) as error:
            # Triton's own words for it come in front here.
            why = error.message.removeprefix(UNKNOWN)
            msg = f"requested model '{name}' is not available: {why}"
            raise InvalidRequest(msg) from error


def _settled(served: Served, request: InferRequest, response: InferResponse) -> InferResponse:
    """Count `request` as answered, and fill in the answer's model, version and id."""
    served.counts.add_success(request)
    response.model = served.name
    response.version = served.version
    response.id = request.id
    return response


def _statistics(counted: Served | Observed) -> ModelStatistics:
    return counted.counts.statistics(counted.name, counted.version)


def _needs_a_stream(served: Served) -> Unsupported:
    msg = (
        f"this call doesn't support models with decoupled transaction policy: "
        f"model '{served.name}' is decoupled, it may give any number of answers; "
        f"use ModelStreamInfer or generate_stream, in a model.py exec(decoupled=True)"
    )
    return Unsupported(msg)
