"""The calls in which the server describes itself: its OpenAPI document, and gRPC's .proto files."""

import msgspec

from inferd.api.call import TEXT, ApiCall, Rest, Rpc
from inferd.api.reflection import REFLECTION_SERVICES
from inferd.engine.engine import Engine
from inferd.errors import DocumentNotFound
from inferd.wire import documents

_SECTION = "Describing itself"


def openapi(_engine: Engine) -> bytes:
    """Return the OpenAPI document."""
    return documents.openapi()


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


CALLS = (
    ApiCall(
        "metadata",
        _SECTION,
        Rest("GET", "/v2/openapi.json", "openapi", "This document.", "Anything", encode=bytes),
        function=openapi,
        answers="the REST surface as an OpenAPI 3.1 document",
    ),
    ApiCall(
        "metadata",
        _SECTION,
        Rest(
            "GET", "/v2/protos", "protos", "The .proto files of gRPC.", "ProtoFiles", encode=bytes
        ),
        function=protos,
        answers="the names of the `.proto` files",
    ),
    ApiCall(
        "metadata",
        _SECTION,
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
        _SECTION,
        Rpc("ServerReflectionInfo", services=REFLECTION_SERVICES),
        answers="the same for tools like grpcurl, in the versions v1 and v1alpha",
    ),
)
