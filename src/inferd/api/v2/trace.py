"""The call of the trace extension: reports and changes the settings, of all models or of one."""

from inferd.api.call import ApiCall, Rest, Rpc
from inferd.config.options.trace import TraceChange
from inferd.wire.v2 import trace as wire

_PATH = "/v2[/models/{model}]/trace/setting"


def _decode(body: memoryview, model: str = "") -> tuple[str, TraceChange]:
    return model, wire.decode_trace_request(body)


CALLS = (
    ApiCall(
        "trace",
        "trace",
        Rest(
            "GET",
            _PATH,
            "traceSettings",
            "Which requests are traced.",
            "TraceSettings",
            encode=wire.encode_trace_settings,
        ),
        Rest(
            "POST",
            _PATH,
            "changeTraceSettings",
            "Change which requests are traced.",
            "TraceSettings",
            "TraceChange",
            (400, 501),
            may_be_empty=False,
            decode=_decode,
            encode=wire.encode_trace_settings,
        ),
        Rpc("TraceSetting", wire.decode_trace_message, wire.encode_trace_message),
        function=lambda engine, *wanted: engine.changes.trace_settings(*wanted),
    ),
)
