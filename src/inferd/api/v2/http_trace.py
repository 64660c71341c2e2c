"""The URLs of the trace extension."""

from inferd.engine.engine import Engine
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import Route
from inferd.wire.v2 import trace as v2_trace


class TraceRoutes:
    """Reports and changes the trace settings, of all models or of one (Trace extension)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(verb, f"/v2{of_model}/trace/setting", "trace", call)
            for of_model in ("", "/models/{model}")
            for verb, call in (("GET", self.settings), ("POST", self.change))
        ]

    async def settings(self, _request: HttpRequest, model: str = "") -> HttpAnswer:
        """Return the settings."""
        settings = self._engine.trace_settings(model)
        return HttpAnswer(200, [v2_trace.encode_trace_settings(settings)])

    async def change(self, request: HttpRequest, model: str = "") -> HttpAnswer:
        """Change the settings that the body names; return all."""
        change = v2_trace.decode_trace_request(request.body)
        settings = self._engine.trace_settings(model, change)
        return HttpAnswer(200, [v2_trace.encode_trace_settings(settings)])
