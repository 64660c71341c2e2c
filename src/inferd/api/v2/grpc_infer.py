"""ModelInfer: one request and one answer, given at once if the model need not be waited for."""

from collections.abc import Coroutine
from functools import partial
from time import monotonic_ns
from typing import Any

from inferd.aio.inline import NotFast
from inferd.aio.offload import Work
from inferd.api.copies import copied_bytes
from inferd.api.header_forward import add_forwarded
from inferd.api.tracing import OVER_GRPC, begin_grpc, until_sent
from inferd.core.request import InferRequest, InferResponse
from inferd.engine.engine import Engine
from inferd.engine.traced import TracedEngine
from inferd.errors import InferdError
from inferd.http.grpc.handler import Call
from inferd.http.header_forward import HeaderForward
from inferd.observe.trace import Trace
from inferd.wire.v2.grpc import codec as v2_grpc

Begun = list[Any] | Coroutine[Any, Any, list[Any]]
"""An answer as buffers, or a coroutine that returns it."""


class Inference:
    """The handler of ModelInfer (Open Inference Protocol, GRPCInferenceService)."""

    def __init__(
        self, engine: Engine, *, typed_answers: bool, forward: HeaderForward | None
    ) -> None:
        self._engine = engine
        self._tracer = engine.tracer
        self._typed_answers = typed_answers
        self._resolve = engine.regions.span
        self._forward = forward

    def model_infer(self, data: Any, call: Call) -> Begun:
        """See UnaryHandler; `data` is a view if the message is large."""
        try:
            request = v2_grpc.decode_infer_request(data, on_loop=True, resolve=self._resolve)
        except NotFast:
            return self._decode_and_infer(data, call)
        except InferdError:
            self._check_model(data)
            raise
        return self._infer(request, call)

    async def _decode_and_infer(self, data: Any, call: Call) -> list[Any]:
        decode = partial(v2_grpc.decode_infer_request, resolve=self._resolve)
        try:
            request: InferRequest = await self._engine.offload.run(Work.DECODE, decode, data)
        except InferdError:
            self._check_model(data)
            raise
        request.copied_bytes = copied_bytes(request, data)
        begun = self._infer(request, call)
        return begun if isinstance(begun, list) else await begun

    def _check_model(self, data: Any) -> None:
        """Check the model of an undecodable request: its error takes precedence."""
        model, version = v2_grpc.requested_model(data)
        if model:
            self._engine.check_model(model, version)

    def _infer(self, request: InferRequest, call: Call) -> Begun:
        request.arrived_ns = monotonic_ns()
        if self._forward is not None:
            add_forwarded(request, self._forward.chosen(call.metadata))
        if self._tracer.is_on and (trace := begin_grpc(self._tracer, request.model, call)):
            return self._infer_traced(request, trace)
        begun = self._engine.begin(request)
        if isinstance(begun, InferResponse):
            return v2_grpc.encode_infer_response(request, begun, mirror_typed=self._typed_answers)
        return self._answer_later(request, begun)

    async def _answer_later(
        self, request: InferRequest, running: Coroutine[Any, Any, InferResponse]
    ) -> list[Any]:
        response = await running
        return v2_grpc.encode_infer_response(request, response, mirror_typed=self._typed_answers)

    async def _infer_traced(self, request: InferRequest, trace: Trace) -> list[Any]:
        with until_sent(self._tracer, trace, OVER_GRPC):
            return await self._answer_later(
                request, TracedEngine(self._engine, trace).infer(request)
            )
