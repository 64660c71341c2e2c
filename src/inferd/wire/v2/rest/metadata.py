"""V2 over JSON: the small calls for health and metadata."""

from collections.abc import Sequence

import msgspec
import orjson

from inferd.core.metadata import ModelMetadata, ReadyReport, ServerMetadata, TensorMetadata
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import datatype_named


def encode_live(*, live: bool) -> bytes:
    """Return $live_server_response."""
    return orjson.dumps({"live": live})


def encode_ready(found: ReadyReport) -> bytes:
    """Return $ready_model_response, or for the server both keys that the specs use.

    Each has an error text when not ready.
    """
    # The specifications name different keys for the same, so both are there.
    body: dict[str, object] = {"name": found.model} if found.model else {"live": found.is_ready}
    body["ready"] = found.is_ready
    if found.reason:
        body["error"] = found.reason
    return orjson.dumps(body)


def encode_server_metadata(metadata: ServerMetadata) -> bytes:
    """Return $metadata_server_response."""
    return msgspec.json.encode(metadata)


def encode_model_names(names: Sequence[str]) -> bytes:
    """Return the list of models, in KServe's format."""
    return orjson.dumps({"models": names})


def encode_model_metadata(metadata: ModelMetadata) -> bytes:
    """Return $metadata_model_response."""
    return msgspec.json.encode(metadata)


class _ServerDocument(msgspec.Struct):
    name: str
    version: str = ""
    extensions: list[str] | None = None


class _TensorDocument(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]


class _ModelDocument(msgspec.Struct):
    """What servers send as metadata of a model; some leave out all but the name."""

    name: str
    versions: list[str] | None = None
    platform: str | None = None
    inputs: list[_TensorDocument] | None = None
    outputs: list[_TensorDocument] | None = None


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def decode_server_metadata(body: memoryview | bytes) -> ServerMetadata:
    """Return the metadata in a server's answer. Raises InvalidRequest."""
    try:
        found = msgspec.json.decode(body, type=_ServerDocument)
    except _UNREADABLE as error:
        msg = f"not server metadata, so this may be another kind of server: {error}"
        raise InvalidRequest(msg) from None
    return ServerMetadata(found.name, found.version, found.extensions or [])


def decode_model_metadata(body: memoryview | bytes) -> ModelMetadata:
    """Return the metadata in a server's answer. Raises InvalidRequest."""
    try:
        found = msgspec.json.decode(body, type=_ModelDocument)
    except _UNREADABLE as error:
        raise InvalidRequest(f"not model metadata: {error}") from None
    return ModelMetadata(
        found.name,
        found.versions or [],
        found.platform or "",
        [_tensor(one) for one in found.inputs or []],
        [_tensor(one) for one in found.outputs or []],
    )


def _tensor(one: _TensorDocument) -> TensorMetadata:
    return TensorMetadata(one.name, datatype_named(one.datatype, one.name), tuple(one.shape))
