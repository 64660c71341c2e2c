"""The calls that tell whether the server is live, and whether it or a model is ready."""

from functools import partial

from inferd.api.call import ApiCall, Rest, Rpc
from inferd.api.health_service import HEALTH_SERVICE
from inferd.core.metadata import ReadyReport
from inferd.engine.engine import Engine
from inferd.errors import ModelNotFound
from inferd.wire.v2.grpc import metadata as grpc_wire
from inferd.wire.v2.rest import metadata as rest_wire

_SECTION = "The protocol itself"


async def server_ready(engine: Engine) -> ReadyReport:
    """Return whether the server is ready for inference, as far as its models say so, too."""
    ready = await engine.readiness.all_say_ready()
    return ReadyReport(ready, reason="" if ready else _why_not(engine))


def _why_not(engine: Engine) -> str:
    reason = "the server is not ready for inference"
    return f"{reason}: it has no model to serve" if engine.readiness.lacks_models() else reason


async def model_ready(engine: Engine, model: str, version: str = "") -> ReadyReport:
    """Return whether a model is ready; that it is unknown is no error."""
    try:
        if await engine.catalog.says_ready(model, version):
            return ReadyReport(is_ready=True, model=model)
    except ModelNotFound as error:
        # Clients ask before they load a model, so this is Triton's answer.
        return ReadyReport(is_ready=False, model=model, reason=error.message, is_known=False)
    return ReadyReport(is_ready=False, model=model, reason=f"model '{model}' is not ready")


def _status(found: ReadyReport, not_ready_status: int) -> int:
    if not found.is_known:
        return 404
    return 200 if found.is_ready else not_ready_status


CALLS = (
    ApiCall(
        "health",
        _SECTION,
        Rest(
            "GET",
            "/v2/health/live",
            "live",
            "Whether the process answers.",
            "Live",
            encode=lambda live: rest_wire.encode_live(live=live),
            status=lambda live, not_ready_status: 200 if live else not_ready_status,
        ),
        Rpc(
            "ServerLive",
            partial(grpc_wire.decode_server_request, "ServerLive"),
            lambda live: grpc_wire.encode_live(live=live),
        ),
        function=lambda engine: engine.readiness.is_live(),
        answers="whether the process is alive",
    ),
    ApiCall(
        "health",
        _SECTION,
        Rest(
            "GET",
            "/v2/health/ready",
            "ready",
            "Whether models can be asked.",
            "Ready",
            errors=(400, 503),
            encode=rest_wire.encode_ready,
            status=_status,
        ),
        Rpc(
            "ServerReady",
            partial(grpc_wire.decode_server_request, "ServerReady"),
            partial(grpc_wire.encode_ready, "ServerReady"),
        ),
        # gRPC's health service is in the same API group.
        *(Rpc(name, services=(HEALTH_SERVICE,)) for name in ("Check", "List", "Watch")),
        function=server_ready,
        answers="whether models can be called",
    ),
    ApiCall(
        "health",
        _SECTION,
        Rest(
            "GET",
            "/v2/models/{model}[/versions/{version}]/ready",
            "modelReady",
            "Whether a model can be asked.",
            "ModelReady",
            errors=(400, 404, 503),
            encode=rest_wire.encode_ready,
            status=_status,
        ),
        Rpc(
            "ModelReady",
            partial(grpc_wire.decode_model_request, "ModelReady"),
            partial(grpc_wire.encode_ready, "ModelReady"),
        ),
        function=model_ready,
        answers="whether this model can be called",
    ),
)
