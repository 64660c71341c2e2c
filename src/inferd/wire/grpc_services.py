"""The server's side of gRPC's own services: grpc.health.v1, grpc.reflection.v1 and v1alpha."""

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.descriptor import FileDescriptor

from inferd.wire.proto import encode, message_class, parse, pool, serialized

VERSIONS = ("v1", "v1alpha")
"""The two packages of server reflection; their messages have the same layout."""

_NOT_FOUND = 5
_UNIMPLEMENTED = 12


class Serving(enum.Enum):
    """HealthCheckResponse.ServingStatus."""

    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


def decode_check_request(data: bytes) -> str:
    """Return the service that a HealthCheckRequest asks about, "" for the server as a whole.

    Raises InvalidRequest.
    """
    service: str = parse("grpc.health.v1.HealthCheckRequest", data).service
    return service


def decode_list_request(data: bytes) -> None:
    """Check a HealthListRequest, which has no fields. Raises InvalidRequest."""
    parse("grpc.health.v1.HealthListRequest", data)


def encode_check_response(status: Serving) -> bytes:
    """Return a HealthCheckResponse."""
    return encode("grpc.health.v1.HealthCheckResponse", status=status.value)


def encode_list_response(statuses: Mapping[str, Serving]) -> bytes:
    """Return a HealthListResponse with the status of each service by name."""
    rows = {service: {"status": status.value} for service, status in statuses.items()}
    return encode("grpc.health.v1.HealthListResponse", statuses=rows)


def answer_reflection(version: str, data: bytes, services: Iterable[str]) -> bytes:
    """Return the ServerReflectionResponse to one ServerReflectionRequest.

    `services` are the full names of the services that the server offers. Unknown names are reported
    inside the message, as the protocol requires. Raises InvalidRequest when `data` cannot be read.
    """
    request = parse(f"grpc.reflection.{version}.ServerReflectionRequest", data)
    response = message_class(f"grpc.reflection.{version}.ServerReflectionResponse")(
        valid_host=request.host, original_request=request
    )
    question = request.WhichOneof("message_request")
    name: Any = getattr(request, question) if question else None
    if question == "list_services":
        for service in services:
            response.list_services_response.service.add(name=service)
    elif question == "all_extension_numbers_of_type":
        _answer_extensions(response, name)
    elif question in ("file_by_filename", "file_containing_symbol"):
        _answer_file(response, question, name)
    else:
        # proto3 has no extensions to find; an unset question is one we do not know.
        code = _NOT_FOUND if question else _UNIMPLEMENTED
        _set_error(response, code, f"no answer to {question or 'a request that asks nothing'}")
    return serialized(response)


def _answer_file(response: Any, question: str, name: str) -> None:
    try:
        found = pool().FindFileByName(name) if question == "file_by_filename" else _file_of(name)
    except KeyError:
        _set_error(response, _NOT_FOUND, f"there is no descriptor of '{name}'")
        return
    # A client that gets a file asks for its imports next; sent along, they cost no round trip.
    for file in _with_imports(found):
        response.file_descriptor_response.file_descriptor_proto.append(file.serialized_pb)


def _file_of(symbol: str) -> FileDescriptor:
    """Return the file that defines `symbol`. Raises KeyError."""
    try:
        return pool().FindFileContainingSymbol(symbol)
    except KeyError:
        # The pool does not treat methods as symbols.
        service, _, method = symbol.rpartition(".")
        found = pool().FindServiceByName(service)
        # Raises KeyError for a method that is not there.
        found.FindMethodByName(method)
        return found.file


def _answer_extensions(response: Any, name: str) -> None:
    try:
        pool().FindMessageTypeByName(name)
    except KeyError:
        _set_error(response, _NOT_FOUND, f"there is no message '{name}'")
        return
    response.all_extension_numbers_response.base_type_name = name


def _with_imports(file: FileDescriptor) -> list[FileDescriptor]:
    """Return `file` and the files it imports, which a client would ask for next."""
    return [file, *(one for direct in file.dependencies for one in _with_imports(direct))]


def _set_error(response: Any, code: int, text: str) -> None:
    response.error_response.error_code = code
    response.error_response.error_message = text
