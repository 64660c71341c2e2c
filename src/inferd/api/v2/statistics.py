"""The call of the statistics extension."""

from functools import partial

from inferd.api.call import ApiCall, Rest, Rpc
from inferd.wire.v2 import statistics as wire

_MODEL = "/v2/models/{model}[/versions/{version}]/stats"

_rest = partial(Rest, "GET", encode=wire.encode_statistics)

CALLS = (
    ApiCall(
        "statistics",
        "statistics",
        _rest("/v2/models/stats", "statistics", "What all models have done.", "Statistics"),
        _rest(_MODEL, "modelStatistics", "What a model has done.", "Statistics", errors=(400, 404)),
        Rpc("ModelStatistics", wire.decode_statistics_request, wire.encode_statistics_message),
        function=lambda engine, *wanted: engine.whole.all_statistics(*wanted),
    ),
)
