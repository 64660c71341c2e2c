"""The calls that describe the server and its models."""

from functools import partial

from inferd.api.call import ApiCall, Rest, Rpc
from inferd.engine.engine import Engine
from inferd.wire.v2.grpc import metadata as grpc_wire
from inferd.wire.v2.rest import metadata as rest_wire

_SECTION = "The protocol itself"

CALLS = (
    ApiCall(
        "metadata",
        _SECTION,
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
        _SECTION,
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
        _SECTION,
        Rest(
            "GET",
            "/v2/models/{model}[/versions/{version}]",
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
)
