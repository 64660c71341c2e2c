"""V2 over JSON: the small calls for health and metadata."""

from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

from inferd.core.metadata import ModelMetadata, ReadyReport, ServerMetadata
from inferd.errors import InvalidRequest


def encode_live(*, live: bool) -> bytes:
    """Return $live_server_response."""
    return orjson.dumps({"live": live})


def encode_ready(found: ReadyReport) -> bytes:
    """Return $ready_model_response, or for the server both keys that the specs use.

    Each has an error text when not ready.
    """
    body: dict[str, Any] = {"name": found.model} if found.model else {"live": found.is_ready}
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


def decode_model_metadata(body: bytes) -> ModelMetadata:
    """Return the metadata in a server's answer. Raises InvalidRequest."""
    try:
        return msgspec.json.decode(body, type=ModelMetadata)
    except msgspec.MsgspecError as error:
        msg = f"not model metadata: {error}"
        raise InvalidRequest(msg) from None
