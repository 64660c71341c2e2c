"""Engine: the server without its sockets, the one entry point for every protocol."""

import logging
from collections.abc import AsyncGenerator, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import inferd
from inferd.aio.offload import Offload
from inferd.compiled import mypyc_attr
from inferd.config.options.log import LogSettings
from inferd.config.options.trace import TraceSettings
from inferd.core.interfaces import GatheringScheduler, GivenModel
from inferd.core.metadata import ServerMetadata
from inferd.core.processes import ALONE as ONE
from inferd.core.processes import Processes
from inferd.core.request import InferRequest, InferResponse
from inferd.core.streaming import one_answer
from inferd.engine.changes import ServerChanges
from inferd.engine.control.control import RepositoryControl
from inferd.engine.loading.caching import open_store
from inferd.engine.loading.catalog import Catalog
from inferd.engine.loading.load import Loader, LoadOptions
from inferd.engine.readiness import ServerReadiness
from inferd.engine.serving.served import Served
from inferd.engine.steps import Steps
from inferd.engine.streaming import all_answers
from inferd.engine.whole import Whole, processes_families
from inferd.errors import Unsupported
from inferd.memory.capacity import Capacity
from inferd.observe.family import CustomMetrics
from inferd.observe.log import Log
from inferd.observe.tracing.file import TraceWriter
from inferd.observe.tracing.tracer import Tracer
from inferd.repository.repositories import place_of
from inferd.shm.placing import is_large, place_now, place_outputs
from inferd.shm.regions import Regions

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
    """Finds the model that a request names, checks the request, and runs it.

    Its parts have what is not a request: `catalog` the models, `readiness` whether the server may
    be asked, `changes` what clients change, `control` the model repositories, `regions` the shared
    memory of clients, who have none unless `allow_client_shm`, `log` and `tracer` the settings of
    these extensions, `capacity` what is under way, which may be given limits, `whole` what has
    been counted, `custom_metrics` the models' own metrics, and `offload` the threads in which every
    protocol decodes and encodes what is large. Where the server is several `processes`, this is one
    of them, and passes requests on by `exchange`.

    `name` is the server's name in its metadata. With `strict_readiness`, one model that failed to
    load makes the whole server not ready, and so does having no model, unless clients load models
    or `load_options` allow none.
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
        self.log = log or Log(LogSettings())
        self.tracer = tracer or Tracer(TraceSettings(), TraceWriter(None))
        self._name = name
        options = load_options or LoadOptions()
        self.catalog = catalog = Catalog()
        # The dict itself, which saves a call for each request; the catalog never replaces it.
        self._models = catalog.models
        self._store = open_store(options.cache)
        loader = Loader(
            options,
            # Models that call others go through this, so that calls within the server are counted
            # once.
            models=Steps(self, self.capacity),
            find=catalog.find,
            store=self._store,
            metrics=self.custom_metrics,
            processes=processes,
        )
        self.exchange = loader.exchange
        self.control = RepositoryControl(catalog, options, loader)
        self.changes = ServerChanges(catalog, self.control, self.regions, self.log, self.tracer)
        loader.control = self.changes
        # In explicit mode a server begins without models by design, and clients load them.
        may_be_empty = options.allow_empty or options.model_control_mode == "explicit"
        self.readiness = ServerReadiness(
            catalog, is_strict=strict_readiness, may_be_empty=may_be_empty
        )
        self.whole = Whole(catalog, self.capacity, self._store, self.custom_metrics, self.offload)
        if processes.count > 1:
            self.whole.sources.append(partial(processes_families, processes))
        self.notes_requests = False
        """Whether requests are logged, so that each call notes what it is about."""
        self.payloads: PayloadLog | None = None

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run `request` and return its one answer, with the wanted outputs in the model's order.

        Raises ModelNotFound, InvalidRequest, Unsupported for a decoupled model, Overloaded, or
        whatever InferdError the scheduler and the model raise.
        """
        response = self.begin(request)
        return response if isinstance(response, InferResponse) else await response

    def begin(
        self, request: InferRequest
    ) -> InferResponse | Coroutine[object, None, InferResponse]:
        """Return what `infer` does: the answer if it is there at once, otherwise a coroutine.

        Most small requests need not wait, and a coroutine costs a tenth of what they cost. Raises
        as `infer` does, at once or when awaited.
        """
        served = self.find(request.model, request.version)
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
        served = self.find(request.model, request.version)
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
        served = self.find(request.model, request.version)
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

    def find(self, name: str, version: str) -> Served:
        """Return what serves that version, "" for the highest. Raises as Catalog.find does."""
        # The usual spelling of a version in one look; all others, and errors, take the longer way.
        model = self._models.get(name)
        if model is not None:
            served = model.ready.get(version) if version else model.default
            if served is not None:
                return served
        return self.catalog.find(name, version)

    def is_decoupled(self, name: str, version: str) -> bool:
        """Tell whether a ready model is decoupled. Raises as `infer` does."""
        return self.find(name, version).config.decoupled

    def check_model(self, name: str, version: str) -> None:
        """Raise as `infer` does when the model, or that version of it, cannot be asked.

        Raises ModelNotFound, Unavailable, or Unsupported for a decoupled model.
        """
        served = self.find(name, version)
        if served.config.decoupled:
            raise _needs_a_stream(served)

    def server_metadata(self) -> ServerMetadata:
        """Return the server's name, version and extensions (V2, Server Metadata)."""
        extensions = [name for name in EXTENSIONS if self.regions.may_have(name)]
        return ServerMetadata(self._name, inferd.__version__, extensions)

    async def load_all(
        self, repositories: Sequence[Path | str], given: Sequence[GivenModel] = ()
    ) -> None:
        """Load the models that the control mode selects; then the server may be ready.

        Models `given` by the program are loaded in every mode. A model that cannot be loaded stays
        in the index with the reason, and the others serve. Raises InvalidConfig for a path that
        holds no models or a URL that names no place; NotLoadable for a cloud that does not answer.
        """
        paths = [place_of(str(path)) for path in repositories]
        is_alone = self.changes.everywhere is None
        if not is_alone:
            # One process looks, and all follow together; otherwise each would serve other versions
            # for a while.
            self.control.announce = self.changes.follow
        await self.control.start(paths, given)
        # With others, the supervisor says when all have loaded.
        if is_alone:
            self.readiness.finish_loading()
            self.control.poll()

    def drain(self) -> None:
        """Stop being ready and loading models; requests still run, but wait for no others.

        If this process is replaced, the server goes on: so do changes that clients ask for.
        """
        self.readiness.is_draining = True
        self.control.stop_polling()
        if not self.readiness.is_replaced:
            self.control.stop()
        for served in self.catalog.served():
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
        await self.control.close(timeout_s)
        if self.exchange is not None:
            self.exchange.close()
        if self._store is not None:
            await self._store.close()


def _settled(served: Served, request: InferRequest, response: InferResponse) -> InferResponse:
    """Count `request` as answered, and fill in the answer's model, version and id."""
    served.counts.add_success(request)
    response.model = served.name
    response.version = served.version
    response.id = request.id
    return response


def _needs_a_stream(served: Served) -> Unsupported:
    msg = (
        f"this call doesn't support models with decoupled transaction policy: "
        f"model '{served.name}' is decoupled, it may give any number of answers; "
        f"use ModelStreamInfer or generate_stream, in a model.py exec(decoupled=True)"
    )
    return Unsupported(msg)
