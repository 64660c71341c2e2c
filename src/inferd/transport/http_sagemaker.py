"""The URLs of Amazon SageMaker: what its containers answer on a port of their own.

A model is asked at /invocations, in the words of V2. SageMaker passes few headers on, so where
binary data begin is in the Content-Type.
"""

import logging

from inferd.engine.engine import Engine
from inferd.transport.access import Access
from inferd.transport.failure import FailureLog
from inferd.transport.http_cloud import CloudCalls
from inferd.transport.http_message import HttpAnswer, HttpRequest
from inferd.transport.http_router import Route
from inferd.transport.http_routes import HttpRoutes
from inferd.transport.http_table import TableRoutes
from inferd.wire.v2_content_type import BinaryType

log = logging.getLogger("inferd.sagemaker")

BINARY_TYPE = BinaryType("application/vnd.sagemaker-triton.binary+json")


class SagemakerRoutes(TableRoutes):
    """Answers SageMaker's calls by those of `v2`.

    `default_model` is asked by /invocations, "" for the only one there is, with `verb` of V2:
    infer, generate or generate_stream.
    """

    def __init__(
        self, engine: Engine, v2: HttpRoutes, access: Access, default_model: str, verb: str
    ) -> None:
        self._engine = engine
        self._verb = verb
        flag = "--sagemaker-default-model"
        self._calls = CloudCalls(engine, v2, BINARY_TYPE, default_model, flag)
        routes = [
            Route("GET", "/ping", "health", self.ping),
            Route("POST", "/invocations", "inference", self.invoke),
        ]
        super().__init__(routes, v2.tracer, FailureLog(log), forward=v2.forward, access=access)

    async def ping(self, _request: HttpRequest) -> HttpAnswer:
        """Whether requests may be sent."""
        return self._calls.health(ready=self._engine.is_ready())

    async def invoke(self, request: HttpRequest) -> HttpAnswer:
        """Ask the default model."""
        return await self._calls.infer(request, verb=self._verb)
