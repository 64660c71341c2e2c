"""The URLs of Google's Vertex AI: a health check and predictions, on a port of their own.

A prediction has V2's format. A header may redirect it to any other URL of V2, since the platform
has one URL for everything.
"""

import logging
from copy import copy

from inferd.api.cloud.port import CloudCalls
from inferd.api.routes import HttpRoutes, TableRoutes
from inferd.engine.engine import Engine
from inferd.errors import InferdError
from inferd.http.access import Access, Headers
from inferd.http.failure import FailureLog
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import Route, path_of
from inferd.wire.v2.content_type import BinaryType

log = logging.getLogger("inferd.vertex_ai")

BINARY_TYPE = BinaryType("application/vnd.vertex-ai-triton.binary+json")

REDIRECT = b"x-vertex-ai-triton-redirect"
"""The header with a path of V2, such as v2/models/m/config."""


class VertexAiRoutes(TableRoutes):
    """Answers Vertex AI's calls with those of `v2`, at the paths the platform has chosen.

    `default_model` is the model for predictions, "" for the only one there is.
    """

    def __init__(
        self,
        engine: Engine,
        v2: HttpRoutes,
        access: Access,
        default_model: str,
        health: str,
        predict: str,
    ) -> None:
        self._engine = engine
        self._v2 = v2
        self._predict_path = predict.encode()
        flag = "--vertex-ai-default-model"
        self._calls = CloudCalls(engine, v2, BINARY_TYPE, default_model, flag)
        routes = [
            Route("GET", health, "health", self.health),
            Route("POST", predict, "inference", self.predict),
        ]
        super().__init__(routes, v2.tracer, FailureLog(log), forward=v2.forward, access=access)

    async def health(self, _request: HttpRequest) -> HttpAnswer:
        """Answer a health check: whether the server is ready."""
        return self._calls.health(ready=self._engine.readiness.is_ready())

    async def predict(self, request: HttpRequest) -> HttpAnswer:
        """Run an inference of the default model."""
        return await self._calls.infer(request)

    # Else a redirect would be a way around the guards of V2's calls.
    def check_access(self, target: bytes, headers: Headers) -> None:
        """See Routes.check_access; a redirected prediction is checked as V2's target."""
        led_to = self._led_to(target, headers)
        if led_to is None:
            super().check_access(target, headers)
        else:
            self._v2.check_access(led_to, headers)

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer to `request`, whatever happens."""
        target = self._led_to(request.target, request.headers)
        if target is None:
            return await super().answer(request)
        verbs = self._v2.verbs(target)
        # The platform sends only POST, even for calls that V2 offers only as GET.
        method = b"GET" if b"GET" in verbs and b"POST" not in verbs else request.method
        passed_on = copy(request)
        passed_on.target, passed_on.method = target, method
        try:
            return await self._calls.of_v2(passed_on)
        except InferdError as error:
            return self.refusal(request, error)

    def _led_to(self, target: bytes, headers: Headers) -> bytes | None:
        """Return the V2 target that a prediction's header names, None if it names none."""
        path = headers.get(REDIRECT)
        if path is None or path_of(target).rstrip(b"/") != self._predict_path:
            return None
        # With and without the leading slash; one is what a path needs.
        return b"/" + path.strip().lstrip(b"/")
