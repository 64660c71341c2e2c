"""The gRPC method of the trace extension."""

from typing import Any

from inferd.engine.engine import Engine
from inferd.http.grpc.handler import Call, Method, Unary
from inferd.wire.v2 import trace as v2_trace


class TraceMethods:
    """Reports and changes the trace settings, of all models or of one (Trace extension)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def methods(self) -> dict[str, Method]:
        """Return the methods by name."""
        return {"TraceSetting": Unary(self.trace_setting)}

    async def trace_setting(self, data: bytes, call: Call) -> list[Any]:
        """Change the settings that the message names, if any; return all."""
        model, change = v2_trace.decode_trace_message(data)
        settings = self._engine.trace_settings(model, change)
        return [v2_trace.encode_trace_message(settings)]
