"""CALLS: every call of V2, in the order in which their URLs are matched; Apis: those of a port."""

from functools import partial
from typing import NamedTuple

import msgspec

from inferd.api.call import EVENTS, TEXT, ApiCall, Rest, Rpc
from inferd.api.grpc_services import HEALTH_SERVICE, REFLECTION_SERVICES
from inferd.api.mount import Mount
from inferd.api.v2 import repository, shared_memory
from inferd.config.options.log import LogChange, LogSettings
from inferd.config.options.trace import TraceChange
from inferd.core.change import ChangeLog
from inferd.core.metadata import ReadyReport
from inferd.engine.engine import Engine
from inferd.errors import DocumentNotFound, ModelNotFound
from inferd.http.router import Route
from inferd.wire import documents
from inferd.wire.v2 import settings as settings_wire
from inferd.wire.v2 import statistics as stats_wire
from inferd.wire.v2.grpc import metadata as grpc_wire
from inferd.wire.v2.rest import metadata as rest_wire

_PROTOCOL = "The protocol itself"
_DESCRIBING = "Describing itself"
_MODEL = "/v2/models/{model}[/versions/{version}]"
_TRACE = "/v2[/models/{model}]/trace/setting"
_MANY = "Run a model that answers any number of times: an event for each answer."


async def server_ready(engine: Engine) -> ReadyReport:
    """Return whether the server is ready for inference, as far as its models say so, too."""
    if await engine.readiness.all_say_ready():
        return ReadyReport(is_ready=True)
    reason = "the server is not ready for inference"
    if engine.readiness.lacks_models():
        reason += ": it has no model to serve"
    return ReadyReport(is_ready=False, reason=reason)


async def model_ready(engine: Engine, model: str, version: str = "") -> ReadyReport:
    """Return whether a model is ready; that it is unknown is no error."""
    try:
        if await engine.readiness.says_ready(model, version):
            return ReadyReport(is_ready=True, model=model)
    except ModelNotFound as error:
        # Clients ask before they load a model, so this is Triton's answer.
        return ReadyReport(is_ready=False, model=model, reason=error.message, is_known=False)
    return ReadyReport(is_ready=False, model=model, reason=f"model '{model}' is not ready")


def _status(found: ReadyReport, not_ready_status: int) -> int:
    if not found.is_known:
        return 404
    return 200 if found.is_ready else not_ready_status


def protos(_engine: Engine) -> bytes:
    """Return the names of the .proto files."""
    return msgspec.json.encode({"files": list(documents.proto_files())})


def proto(_engine: Engine, file: str) -> bytes:
    """Return one .proto file. Raises DocumentNotFound."""
    known = documents.proto_files()
    # Only names that are there are looked up, so no path leads out of the package.
    if file not in known:
        msg = f"there is no file '{file[:200]}' here, expected one of {', '.join(known)}"
        raise DocumentNotFound(msg)
    return known[file]


async def log_settings(engine: Engine, change: LogChange | None = None) -> LogSettings:
    """Return all settings, after making `change`."""
    if change is not None:
        await engine.changes.change(ChangeLog(change))
    return engine.log.settings


def _trace_change(body: memoryview, model: str = "") -> tuple[str, TraceChange]:
    return model, settings_wire.decode_trace_request(body)


_statistics = partial(Rest, "GET", encode=stats_wire.encode_statistics)
_inference = partial(Rest, "POST", errors=(400, 404, 500, 501, 503), may_be_empty=False)

CALLS = (
    # First: one of its paths could be that of a model's metadata.
    ApiCall(
        "statistics",
        "statistics",
        _statistics("/v2/models/stats", "statistics", "What all models have done.", "Statistics"),
        _statistics(
            f"{_MODEL}/stats",
            "modelStatistics",
            "What a model has done.",
            "Statistics",
            errors=(400, 404),
        ),
        Rpc(
            "ModelStatistics",
            stats_wire.decode_statistics_request,
            stats_wire.encode_statistics_message,
        ),
        function=lambda engine, *wanted: engine.whole.all_statistics(*wanted),
    ),
    ApiCall(
        "health",
        _PROTOCOL,
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
        _PROTOCOL,
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
        _PROTOCOL,
        Rest(
            "GET",
            f"{_MODEL}/ready",
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
    ApiCall(
        "metadata",
        _PROTOCOL,
        Rest(
            "GET",
            "/v2",
            "serverMetadata",
            "What the server is.",
            "ServerMetadata",
            encode=rest_wire.encode_server_metadata,
        ),
        Rpc(
            "ServerMetadata",
            partial(grpc_wire.decode_server_request, "ServerMetadata"),
            grpc_wire.encode_server_metadata,
        ),
        function=Engine.server_metadata,
        answers="name, version, extensions",
    ),
    ApiCall(
        "metadata",
        _PROTOCOL,
        Rest(
            "GET",
            "/v2/models",
            "models",
            "The names of the ready models.",
            "ModelNames",
            encode=rest_wire.encode_model_names,
        ),
        function=lambda engine: engine.catalog.names(),
        answers="the names of the ready models, as KServe lists them",
    ),
    ApiCall(
        "metadata",
        _PROTOCOL,
        Rest(
            "GET",
            _MODEL,
            "modelMetadata",
            "What a model takes and gives.",
            "ModelMetadata",
            errors=(404, 503),
            encode=rest_wire.encode_model_metadata,
        ),
        Rpc(
            "ModelMetadata",
            partial(grpc_wire.decode_model_request, "ModelMetadata"),
            grpc_wire.encode_model_metadata,
        ),
        function=lambda engine, model, version="": engine.catalog.metadata(model, version),
        answers="inputs, outputs, versions, platform",
    ),
    ApiCall(
        "inference",
        _PROTOCOL,
        _inference(
            f"{_MODEL}/infer",
            "infer",
            "Run a model. In application/octet-stream the header "
            "Inference-Header-Content-Length says where JSON like the other content ends and "
            "the bytes of tensors begin.",
            "InferResponse",
            "InferRequest",
        ),
        Rpc("ModelInfer"),
        Rpc("ModelStreamInfer"),
        answers="an inference",
    ),
    ApiCall(
        "metadata",
        _DESCRIBING,
        Rest("GET", "/v2/openapi.json", "openapi", "This document.", "Anything", encode=bytes),
        function=lambda _engine: documents.openapi(),
        answers="the REST surface as an OpenAPI 3.1 document",
    ),
    ApiCall(
        "metadata",
        _DESCRIBING,
        Rest(
            "GET", "/v2/protos", "protos", "The .proto files of gRPC.", "ProtoFiles", encode=bytes
        ),
        function=protos,
        answers="the names of the `.proto` files",
    ),
    ApiCall(
        "metadata",
        _DESCRIBING,
        Rest(
            "GET",
            "/v2/protos/{file}",
            "proto",
            "One .proto file.",
            "Text",
            errors=(404,),
            type=TEXT,
            encode=bytes,
        ),
        function=proto,
        answers="one of them, such as grpc_service.proto",
    ),
    ApiCall(
        "metadata",
        _DESCRIBING,
        Rpc("ServerReflectionInfo", services=REFLECTION_SERVICES),
        answers="the same for tools like grpcurl, in the versions v1 and v1alpha",
    ),
    ApiCall(
        "inference",
        "generate",
        _inference(
            f"{_MODEL}/generate",
            "generate",
            "Run a model that answers once, with flat objects.",
            "GenerateResponse",
            "GenerateRequest",
        ),
        _inference(
            f"{_MODEL}/generate_stream",
            "generateStream",
            _MANY,
            "Events",
            "GenerateRequest",
            type=EVENTS,
        ),
        _inference(
            f"{_MODEL}/infer_stream",
            "inferStream",
            _MANY,
            "InferEvents",
            "InferRequest",
            type=EVENTS,
        ),
    ),
    *repository.CALLS,
    ApiCall(
        "logging",
        "logging",
        Rest(
            "GET",
            "/v2/logging",
            "logSettings",
            "What is logged.",
            "LogSettings",
            encode=settings_wire.encode_log_settings,
        ),
        Rest(
            "POST",
            "/v2/logging",
            "changeLogSettings",
            "Change what is logged.",
            "LogSettings",
            "LogChange",
            (400, 501),
            may_be_empty=False,
            decode=settings_wire.decode_log_request,
            encode=settings_wire.encode_log_settings,
        ),
        Rpc("LogSettings", settings_wire.decode_log_message, settings_wire.encode_log_message),
        function=log_settings,
    ),
    ApiCall(
        "trace",
        "trace",
        Rest(
            "GET",
            _TRACE,
            "traceSettings",
            "Which requests are traced.",
            "TraceSettings",
            encode=settings_wire.encode_trace_settings,
        ),
        Rest(
            "POST",
            _TRACE,
            "changeTraceSettings",
            "Change which requests are traced.",
            "TraceSettings",
            "TraceChange",
            (400, 501),
            may_be_empty=False,
            decode=_trace_change,
            encode=settings_wire.encode_trace_settings,
        ),
        Rpc("TraceSetting", settings_wire.decode_trace_message, settings_wire.encode_trace_message),
        function=lambda engine, *wanted: engine.changes.trace_settings(*wanted),
    ),
    *shared_memory.CALLS,
)


class Apis(NamedTuple):
    """The calls of V2, the APIs beside it, and what else the HTTP port has: `routes`."""

    calls: tuple[ApiCall, ...] = CALLS
    mounts: tuple[Mount, ...] = ()
    routes: tuple[Route, ...] = ()


V2_ALONE = Apis()
