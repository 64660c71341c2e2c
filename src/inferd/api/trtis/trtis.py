"""Trtis: what HTTP and gRPC share of the TensorRT Inference Server API on one server.

Both number their requests in one sequence and count their calls; old calls are translated into the
engine calls that V2 makes. TrtisCodec is what they share in inferences.
"""

import asyncio
import itertools
from collections.abc import Iterator
from time import monotonic_ns, perf_counter_ns
from typing import Any, NoReturn

import inferd
from inferd.aio.inline import groups
from inferd.aio.offload import Work
from inferd.compiled import mypyc_attr
from inferd.core.change import DropRegions
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.metadata import IndexEntry, ModelState, ServerState
from inferd.core.request import InferRequest, InferResponse
from inferd.engine.engine import Engine
from inferd.engine.whole import Sum
from inferd.errors import (
    InvalidConfig,
    InvalidRequest,
    LoadFailed,
    ModelNotFound,
    NotLoadable,
    Unavailable,
    Unsupported,
)
from inferd.http.access import Access, Guard
from inferd.memory.buffer import Buffer
from inferd.observe.statistics import Duration
from inferd.record import Record
from inferd.wire.infer_codec import InferCodec
from inferd.wire.json.document import JsonObject
from inferd.wire.trtis import status as trtis_status
from inferd.wire.trtis.answer import Answer
from inferd.wire.trtis.header import InferHeader
from inferd.wire.trtis.http import StatusLine
from inferd.wire.trtis.infer import Form
from inferd.wire.trtis.status import NO_VERSION, ModelRow, ServerRow, VersionRow

STATUS, HEALTH, CONTROL = "status_stats", "health_stats", "model_control_stats"
SHARED_MEMORY, REPOSITORY = "shm_control_stats", "repository_stats"

_MAX_FORMS = 1000


def _numbers(engine: Engine) -> Iterator[int]:
    """Return the numbers of requests: each is higher than all before, in every process."""
    if engine.exchange is None:
        # One process: a plain count, as in the old server.
        return itertools.count(1)
    return _growing()


def _growing() -> Iterator[int]:
    last = 0
    while True:
        # The clock is the same for all processes of a machine, so that numbers grow across them
        # without asking.
        last = max(last + 1, monotonic_ns() // 1000)
        yield last


class Trtis:
    """The old API of `engine`, without the transports; `server_id` is the server's name in it."""

    def __init__(self, engine: Engine, server_id: str) -> None:
        self.engine = engine
        self.server_id = server_id
        self.status_line = StatusLine(server_id)
        self.numbers = _numbers(engine)
        self._began_ns = perf_counter_ns()
        self._forms: dict[tuple[str, str], Form] = {}
        self._offload = engine.offload

    def count(self, call: str, began_ns: int) -> None:
        """Count a successful call of this kind, which began at `began_ns` by perf_counter_ns."""
        duration = self.engine.whole.calls.setdefault(call, Duration())
        duration.add(perf_counter_ns() - began_ns)

    def form(self, model: str, version: str) -> Form:
        """Return the Form of requests to a ready model. Raises ModelNotFound, Unavailable."""
        try:
            config = self.engine.find(model, version).config
        except ModelNotFound as error:  # 1.13 and later have the first words, 0.9 to 1.12 the last
            msg = f"{error.message}. Inference request for unknown model '{model}'"
            raise ModelNotFound(msg) from error
        form = self._forms.get((model, version))
        # A reload makes another configuration object, so identity tells that the form is old.
        if form is None or form.config is not config:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            form = Form(config, self.engine.find(model, version).labels)
            self._forms[model, version] = form
        return form

    @staticmethod
    def status_guards(access: Access) -> list[Guard]:
        """Return the guards of Status beyond its own: it has data of two other API groups."""
        guards = (access.guard(group) for group in ("model-config", "statistics"))
        return [guard for guard in guards if guard is not None]

    def is_healthy(self, mode: str) -> bool:
        """Return whether the server is "live" or "ready". Raises Unavailable if it is exiting.

        Unlike in V2, it is not live before its models have loaded.
        """
        state = self.engine.readiness.state()
        if state is ServerState.EXITING:
            raise Unavailable("Server exiting: it takes no more requests")
        return state is ServerState.READY if mode == "live" else self.engine.readiness.is_ready()

    async def status(self, name: str = "") -> object:
        """Return the ServerStatus with all models, or only with the one called `name`.

        The models are read in groups, and the message is assembled in a thread: there may be many.
        Raises InvalidRequest for an unknown `name`.
        """
        rows: dict[str, list[IndexEntry]] = {}
        for row in self.engine.catalog.index():
            if name in ("", row.name):
                rows.setdefault(row.name, []).append(row)
        if name and name not in rows:
            raise InvalidRequest(f"no status available for unknown model '{name}'")
        total = await self.engine.whole.sum()
        server = ServerRow(
            self.server_id,
            inferd.__version__,
            perf_counter_ns() - self._began_ns,
            self.engine.readiness.state(),
            {} if name else total.calls(),
        )
        models: list[ModelRow] = []
        # There may be thousands of models: others get their turn in between.
        for group in groups(rows.items()):
            models += [self._model_row(name, entries, total) for name, entries in group]
            await asyncio.sleep(0)
        return await self._offload.run(Work.STATUS, trtis_status.server_status, server, models)

    def _model_row(self, name: str, entries: list[IndexEntry], total: Sum) -> ModelRow:
        model = self.engine.catalog.models.get(name)
        config = model.config if model is not None else None
        return ModelRow(name, config, [self._version_row(one, total) for one in entries])

    def _version_row(self, entry: IndexEntry, total: Sum) -> VersionRow:
        state = entry.state or ModelState.UNKNOWN
        version = int(entry.version) if entry.version else NO_VERSION
        row = VersionRow(version, state, entry.reason)
        if state is ModelState.READY:
            [observed] = total.observed(entry.name, entry.version)
            row.statistics = observed.counts.statistics(entry.name, entry.version)
            row.by_batch_size = observed.counts.by_batch_size()
        return row

    def refuse_profile(self, command: str) -> NoReturn:
        """Refuse Profile, which is not offered."""
        # An unknown command is the client's mistake, a known one is not offered.
        if command not in ("start", "stop"):
            msg = f"Unknown profile command '{command[:40]}', only start and stop are known"
            raise InvalidRequest(msg)
        raise Unsupported("Profile API not enabled: profiling by request is not offered here")

    async def load(self, model: str) -> None:
        """Load or reload a model. Raises Unavailable, and NotLoadable for any failure to load."""
        try:
            await self.engine.changes.load(LoadRequest(model))
        # The old API has one outcome for every failure to load.
        except LoadFailed as error:
            failed = [
                row.version
                for row in self.engine.catalog.index()
                # A model that has no versions has a row without one.
                if row.name == model and row.version and row.state is ModelState.UNAVAILABLE
            ]
            which = "no version is available"
            if failed:
                which = f"versions that are not available: {','.join(failed)}"
            raise NotLoadable(f"failed to load '{model}', {which}: {error.message}") from error
        except InvalidConfig as error:
            raise NotLoadable(error.message) from error

    async def unload(self, model: str) -> None:
        """Unload a model; an unknown one is not an error. Raises Unavailable."""
        await self.engine.changes.unload(UnloadRequest(model))

    async def index(self) -> object:
        """Return the ModelRepositoryIndex: all models in the repositories, loaded or not."""
        rows = await self.engine.control.index()
        return trtis_status.repository_index(sorted({row.name for row in rows}))

    def regions(self) -> list[JsonObject]:
        """Return the fields of a SharedMemoryRegion for each region."""
        regions = self.engine.regions
        return trtis_status.region_fields(regions.system_status(), regions.cuda_status())

    async def unregister(self, name: str) -> None:
        """Unregister a shared memory region; an unknown one is not an error."""
        if name:  # for the engine's regions "" means all of them
            await self._unregister(name)

    async def unregister_all(self) -> None:
        """Unregister all regions."""
        await self._unregister("")

    async def _unregister(self, name: str) -> None:
        self.engine.regions.check_allowed()
        # The old API has one namespace for both kinds of memory.
        for kind in ("system", "cuda"):
            await self.engine.changes.change(DropRegions(kind, name))


class TrtisMessage(Record):
    """What a request says beside its HTTP request or call; its `number` names it in the answer.

    `data` is a message of gRPC. Decoding fills in what follows: `header`, what the request is to
    be, `form`, which reads it, and `source`, the bytes of its inputs.
    """

    _fields = ("number", "model", "version", "data")
    form: Form
    header: InferHeader | None

    def __init__(self, number: int, model: str = "", version: str = "", data: Buffer = b"") -> None:
        self.number = number
        self.model = model
        self.version = version
        self.data = data
        self.header = None
        self.source: Any = None


@mypyc_attr(allow_interpreted_subclasses=True)
class TrtisCodec(InferCodec):
    """Decodes a TrtisMessage beside its call."""

    def __init__(self, trtis: Trtis) -> None:
        self._trtis = trtis
        self._resolve = trtis.engine.regions.span

    def decode_large(self, message: Any, call: Any, *, slowly: bool = False) -> InferRequest:
        """See InferCodec."""
        trtis_message: TrtisMessage = message
        assert trtis_message.header is not None
        # Decoding on the loop may have taken some inputs already.
        trtis_message.source.rewind()
        return trtis_message.form.decode_request(
            trtis_message.version,
            trtis_message.header,
            trtis_message.source,
            self._resolve,
            on_loop=False,
        )

    def encode(
        self,
        request: InferRequest,
        response: InferResponse,
        message: Any,
        call: Any,
        *,
        in_thread: bool = False,
    ) -> Any:
        """See InferCodec."""
        trtis_message: TrtisMessage = message
        form, header = trtis_message.form, trtis_message.header
        assert header is not None
        answer = form.encode_response(header, request, response, on_loop=not in_thread)
        return self.answered(answer, trtis_message, call)

    def answered(self, answer: Answer, message: TrtisMessage, call: Any) -> Any:
        """Return `answer` in the form that the transport sends."""
        raise NotImplementedError

    def body_of(self, message: Any, call: Any) -> Any:
        """See InferCodec."""
        return message.source.data
