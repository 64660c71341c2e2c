"""The gRPC methods of the TensorRT Inference Server API.

The outcome of a request is reported inside its answer; for gRPC the call succeeds. A gRPC status
reports only denied access, and a stream whose requests take too much memory.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter_ns
from typing import Any

from inferd.api.header_forward import add_forwarded
from inferd.api.inference import GrpcInference
from inferd.api.trtis.trtis import (
    CONTROL,
    HEALTH,
    REPOSITORY,
    SHARED_MEMORY,
    STATUS,
    Trtis,
    TrtisCodec,
    TrtisMessage,
)
from inferd.api.v2.grpc_stream import InferStream, Outcome, StreamRequest
from inferd.core.change import AddCudaRegion, AddSystemRegion
from inferd.core.request import InferRequest
from inferd.errors import InferdError, InvalidRequest, UnknownCall, Unsupported
from inferd.http.access import Access
from inferd.http.failure import FailureLog
from inferd.http.grpc.handler import Call, Method, Stream, Unary
from inferd.http.grpc.status import status_of as status_of_grpc
from inferd.http.header_forward import HeaderForward
from inferd.memory.buffer import Buffer
from inferd.wire.trtis import grpc as trtis_grpc
from inferd.wire.trtis.answer import Answer
from inferd.wire.trtis.grpc import SERVICE, Statuses
from inferd.wire.trtis.infer import status_of

_APIS = {
    "Status": "metadata",
    "Health": "health",
    "Infer": "inference",
    "StreamInfer": "inference",
    "Profile": "trace",
    "ModelControl": "model-repository",
    "SharedMemoryControl": "shared-memory",
    "Repository": "model-repository",
}
TRTIS_API_OF = {f"/{SERVICE}/{rpc}": api for rpc, api in _APIS.items()}
"""The API group of each method, by path."""

_UNLOAD, _LOAD = 0, 1
_MAX_NUMBER = 2**63 - 1

Fields = dict[str, Any]


class TrtisMethods:
    """The handlers of nvidia.inferenceserver.GRPCService."""

    def __init__(self, trtis: Trtis, forward: HeaderForward | None, access: Access) -> None:
        self.trtis = trtis
        self.statuses = Statuses(trtis.server_id)
        self.failures = FailureLog(logging.getLogger("inferd.grpc"))
        self._engine = trtis.engine
        self._inference = GrpcInference(trtis.engine, TrtisGrpcCodec(trtis, self.statuses), forward)
        in_stream = TrtisGrpcCodec(trtis, self.statuses, in_stream=True)
        self.stream_inference = GrpcInference(trtis.engine, in_stream, forward)
        self._status_guards = trtis.status_guards(access)

    def methods(self) -> dict[str, Method]:
        """Return the methods by path."""
        calls = {
            "Status": (self.status, STATUS),
            "Health": (self.health, HEALTH),
            "Profile": (self.profile, ""),
            "ModelControl": (self.model_control, CONTROL),
            "SharedMemoryControl": (self.shared_memory_control, SHARED_MEMORY),
            "Repository": (self.repository, REPOSITORY),
        }
        handlers = {rpc: self._with_status(rpc, call, what) for rpc, (call, what) in calls.items()}
        handlers["Infer"] = self.infer
        methods: dict[str, Method] = {
            rpc: Unary(handler, refusal=partial(self.refusal, rpc))
            for rpc, handler in handlers.items()
        }
        methods["StreamInfer"] = Stream(self.stream_infer)
        return {f"/{SERVICE}/{rpc}": method for rpc, method in methods.items()}

    def _with_status(
        self, rpc: str, call: Callable[[object, Call], Awaitable[Fields]], what: str
    ) -> Callable[[bytes, Call], Awaitable[list[Buffer]]]:
        """Return a handler that answers with the fields `call` returns, and a status."""

        async def answer_with_status(data: bytes, about: Call) -> list[Buffer]:
            began_ns = perf_counter_ns()
            number = next(self.trtis.numbers)
            try:
                # Inside of the wall: even what cannot be parsed is answered with a status in the
                # message.
                fields = await call(trtis_grpc.decode_call(rpc, data), about)
                answer = trtis_grpc.encode_answer(rpc, self.statuses.success(number), **fields)
            # gRPC's own status stays OK: clients of this API look into the answer.
            except Exception as error:  # noqa: BLE001  the wall
                return [trtis_grpc.encode_answer(rpc, self.failure(rpc, error, number))]
            # Only successful calls are counted, as this API's statistics have it.
            if what:
                self.trtis.count(what, began_ns)
            return [answer]

        return answer_with_status

    def refusal(self, rpc: str, error: InferdError) -> list[Buffer]:
        """Return the answer to a request that is refused without being read."""
        status = self.failure(rpc, error, next(self.trtis.numbers))
        return [trtis_grpc.encode_answer(rpc, status)]

    def failure(self, rpc: str, error: Exception, number: int) -> bytes:
        """Log `error` unless it is the client's fault; return the status that reports it."""
        self.failures.note(rpc, error)
        return self.statuses.failure(*status_of(error), number)

    async def infer(self, data: bytes, call: Call) -> list[Buffer]:
        """Handle Infer."""
        message = TrtisMessage(next(self.trtis.numbers), data=data)
        try:
            answer = self._inference.begin(message, call)
            return answer if isinstance(answer, list) else await answer
        except Exception as error:  # noqa: BLE001  the wall
            return self.failed("Infer", message, error)

    def failed(self, rpc: str, message: TrtisMessage, error: Exception) -> list[Buffer]:
        """Return the answer to a failed inference; it echoes the id in its header, if any."""
        status = self.failure(rpc, error, message.number)
        header = message.header
        # Clients match answers to requests by it.
        return [trtis_grpc.encode_infer_failure(status, header.id if header else 0)]

    def stream_infer(
        self, messages: AsyncIterator[bytes], call: Call
    ) -> AsyncIterator[list[Buffer]]:
        """Answer the requests of a stream, each once and in order; failures do not end it."""
        return TrtisStream(self, messages, call).answers()

    async def status(self, request: Any, call: Call) -> Fields:
        """Handle Status, of all models or one."""
        headers = _headers(call)
        for guard in self._status_guards:
            guard.check(headers)
        return {"server_status": await self.trtis.status(request.model_name)}

    async def health(self, request: Any, call: Call) -> Fields:
        """Handle Health."""
        if request.mode not in ("live", "ready"):
            msg = f"unknown health mode '{request.mode[:40]}', only live and ready are known"
            raise UnknownCall(msg)
        return {"health": self.trtis.is_healthy(request.mode)}

    async def profile(self, request: Any, call: Call) -> Fields:
        """Refuse Profile, which is not offered."""
        self.trtis.refuse_profile(request.cmd)

    async def model_control(self, request: Any, call: Call) -> Fields:
        """Handle ModelControl."""
        # The schema's enum is open: clients may send any number.
        if request.type == _LOAD:
            await self.trtis.load(request.model_name)
        elif request.type == _UNLOAD:
            await self.trtis.unload(request.model_name)
        else:
            raise UnknownCall(f"there is no model control of type {request.type}")
        return {}

    async def shared_memory_control(self, request: Any, call: Call) -> Fields:
        """Handle SharedMemoryControl."""
        # A request without any of them is valid protobuf.
        kind = request.WhichOneof("shared_memory_control")
        if kind == "register":
            await self._register(request.register)
        elif kind == "unregister":
            await self.trtis.unregister(request.unregister.name)
        elif kind == "unregister_all":
            await self.trtis.unregister_all()
        elif kind == "status":
            return {"shared_memory_status": {"shared_memory_region": self.trtis.regions()}}
        else:
            msg = "unknown sharedmemorycontrol request type: the request says nothing to be done"
            raise UnknownCall(msg)
        return {}

    async def _register(self, wanted: Any) -> None:
        name, size_bytes = wanted.name, wanted.byte_size
        kind = wanted.WhichOneof("shared_memory_types")
        # uint64 in the messages; beyond 63 bits no offset of a file exists, and compiled code would
        # overflow.
        if wanted.byte_size > _MAX_NUMBER or wanted.system_shared_memory.offset > _MAX_NUMBER:
            raise InvalidRequest(f"region '{wanted.name}' is larger than any memory")
        if kind == "system_shared_memory":
            where = wanted.system_shared_memory
            key = where.shared_memory_key
            await self._engine.changes.change(AddSystemRegion(name, key, where.offset, size_bytes))
        elif kind == "cuda_shared_memory":
            gpu = wanted.cuda_shared_memory
            change = AddCudaRegion(name, gpu.raw_handle, gpu.device_id, size_bytes)
            await self._engine.changes.change(change)
        else:
            raise InvalidRequest(
                f"failed to register shared memory region: '{wanted.name}', improperly formed "
                f"request. It is neither of system nor of CUDA shared memory"
            )

    async def repository(self, request: Any, call: Call) -> Fields:
        """Handle Repository, index."""
        if request.WhichOneof("request_type") != "index":
            raise UnknownCall("request type is not specified: set index")
        return {"index": await self.trtis.index()}


class TrtisGrpcCodec(TrtisCodec):
    """The codec of the old API over gRPC; `in_stream`, decoupled models are refused."""

    def __init__(self, trtis: Trtis, statuses: Statuses, *, in_stream: bool = False) -> None:
        super().__init__(trtis)
        self._statuses = statuses
        self._in_stream = in_stream

    def decode(self, message: TrtisMessage, call: Call) -> InferRequest:
        """See InferCodec."""
        wanted = trtis_grpc.decode_infer_request(message.data)
        message.header, message.version, message.source = wanted.header, wanted.version, wanted.raw
        message.form = form = self._trtis.form(wanted.model, wanted.version)
        # One answer per request is all that this stream can carry.
        if self._in_stream and form.config.decoupled:
            msg = f"model '{wanted.model}' may give any number of answers; ask it through V2"
            raise Unsupported(msg)
        return form.decode_request(wanted.version, wanted.header, wanted.raw, self._resolve)

    def answered(self, answer: Answer, message: TrtisMessage, call: Any) -> list[Buffer]:
        """See TrtisCodec."""
        return trtis_grpc.encode_infer_response(self._statuses.success(message.number), answer)


class TrtisStream(InferStream):
    """One call of StreamInfer: ModelStreamInfer in the old API, each request answered once."""

    def __init__(self, owner: TrtisMethods, messages: AsyncIterator[bytes], call: Call) -> None:
        super().__init__(owner.stream_inference, owner.failures, messages, call)
        self._owner = owner

    async def decode(self, data: bytes, pending: StreamRequest) -> InferRequest:
        """See InferStream."""
        owner = self._owner
        pending.message = message = TrtisMessage(next(owner.trtis.numbers), data=data)
        request: InferRequest = await self.inference.decode(message, self._call)
        if self.forwarded:
            add_forwarded(request, self.forwarded)
        pending.request = request
        self.begin_trace(pending, request)
        return request

    async def answer_once(self, pending: StreamRequest, request: InferRequest) -> Outcome:
        """See InferStream."""
        try:
            response = await pending.engine.infer(request)
            pending.version = response.version
            answer: list[Buffer] = await self.inference.encode(
                request, response, pending.message, self._call
            )
            return answer
        except Exception as error:  # noqa: BLE001  the client gets it
            return self.fail(pending, error)

    def fail(self, pending: StreamRequest, error: Exception, *, is_final: bool = True) -> Outcome:
        """See InferStream."""
        if pending.trace is not None:
            pending.trace.fail(error)
        pending.status = status_of_grpc(error)[0]
        return self._owner.failed("StreamInfer", pending.message, error)


def _headers(call: Call) -> Mapping[bytes, bytes]:
    """Return the metadata in the form guards expect."""
    return {
        key.encode(): value if isinstance(value, bytes) else value.encode()
        for key, value in call.metadata
    }
