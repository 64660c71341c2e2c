"""The URLs of the trace extension."""

from inferd.engine.engine import Engine
from inferd.transport.http_message import HttpAnswer, HttpRequest
from inferd.transport.http_router import Route
from inferd.wire import v2_trace


class TraceRoutes:
    """Tells and changes the trace settings, all models' or one's (Trace extension)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes(self) -> list[Route]:
        """Return the lines of the URL table."""
        return [
            Route(verb, f"/v2{of_model}/trace/setting", "trace", call)
            for of_model in ("", "/models/{model}")
            for verb, call in (("GET", self.settings), ("POST", self.change))
        ]

    async def settings(self, _request: HttpRequest, model: str = "") -> HttpAnswer:
        """Tell the settings."""
        settings = self._engine.trace_settings(model)
        return HttpAnswer(200, [v2_trace.encode_trace_settings(settings)])

    async def change(self, request: HttpRequest, model: str = "") -> HttpAnswer:
        """Change those the body names, and tell all."""
        change = v2_trace.decode_trace_request(request.body)
        settings = self._engine.trace_settings(model, change)
        return HttpAnswer(200, [v2_trace.encode_trace_settings(settings)])
