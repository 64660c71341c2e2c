"""V2's small calls over gRPC (live, ready and metadata), for server and client.

Open Inference Protocol: ServerLive, ServerReady, ModelReady, ServerMetadata, ModelMetadata.
"""

from typing import Any

import msgspec

from inferd.core.metadata import ModelMetadata, ReadyReport, ServerMetadata, TensorMetadata
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import datatype_named
from inferd.wire.proto import encode, malformed, parse, parse_answer


def decode_server_request(call: str, data: bytes) -> None:
    """Check the request of ServerLive, ServerReady or ServerMetadata, which has no fields.

    Raises InvalidRequest when `data` cannot be read.
    """
    parse(f"inference.{call}Request", data)


def decode_model_request(call: str, data: bytes) -> tuple[str, str]:
    """Return model and version that the request of ModelReady or ModelMetadata names.

    The version is "" for the server's choice. Raises InvalidRequest.
    """
    message = parse(f"inference.{call}Request", data)
    return message.name, message.version


def encode_model_request(call: str, name: str, version: str = "") -> bytes:
    """Return the request of ModelReady or ModelMetadata."""
    return encode(f"inference.{call}Request", name=name, version=version)


def encode_live(*, live: bool) -> bytes:
    """Return a ServerLiveResponse."""
    return encode("inference.ServerLiveResponse", live=live)


def decode_live(data: bytes) -> bool:
    """Decode a ServerLiveResponse. Raises InferdError when it is malformed."""
    return bool(parse_answer("inference.ServerLiveResponse", data).live)


def encode_ready(call: str, found: ReadyReport) -> bytes:
    """Return the answer of ServerReady or ModelReady."""
    return encode(f"inference.{call}Response", ready=found.is_ready)


def decode_ready(call: str, data: bytes) -> bool:
    """Decode the answer of ServerReady or ModelReady. Raises InferdError when it is malformed."""
    return bool(parse_answer(f"inference.{call}Response", data).ready)


def encode_server_metadata(metadata: ServerMetadata) -> bytes:
    """Return a ServerMetadataResponse."""
    return encode("inference.ServerMetadataResponse", **msgspec.to_builtins(metadata))


def decode_server_metadata(data: bytes) -> ServerMetadata:
    """Decode a ServerMetadataResponse. Raises InferdError when it is malformed."""
    message = parse_answer("inference.ServerMetadataResponse", data)
    return ServerMetadata(message.name, message.version, list(message.extensions))


def encode_model_metadata(metadata: ModelMetadata) -> bytes:
    """Return a ModelMetadataResponse, without properties, like Triton's."""
    return encode("inference.ModelMetadataResponse", **msgspec.to_builtins(metadata))


def decode_model_metadata(data: bytes) -> ModelMetadata:
    """Decode a ModelMetadataResponse. Raises InferdError when it is malformed."""
    message = parse_answer("inference.ModelMetadataResponse", data)
    return ModelMetadata(
        message.name,
        list(message.versions),
        message.platform,
        [_tensor(item) for item in message.inputs],
        [_tensor(item) for item in message.outputs],
    )


def _tensor(item: Any) -> TensorMetadata:
    try:
        datatype = datatype_named(item.datatype, item.name)
    except InvalidRequest as error:
        raise malformed(error) from error
    return TensorMetadata(item.name, datatype, tuple(item.shape))
