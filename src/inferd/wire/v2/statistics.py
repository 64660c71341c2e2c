"""V2's statistics extension over REST and gRPC, for server and client."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from inferd.aio.inline import groups
from inferd.errors import InferdError
from inferd.observe.statistics import (
    BatchStatistics,
    InferStatistics,
    MemoryUsage,
    ModelStatistics,
    ResponseStatistics,
)
from inferd.wire.proto import encode, parse, parse_answer

T = TypeVar("T", bound=msgspec.Struct)

_REQUEST = "inference.ModelStatisticsRequest"
_RESPONSE = "inference.ModelStatisticsResponse"


class _Rows(msgspec.Struct):
    model_stats: list[ModelStatistics]


def encode_statistics(rows: Iterable[ModelStatistics]) -> Iterator[bytes]:
    """Yield the JSON text of GET .../stats in pieces; each row is asked for when its piece is."""
    yield b'{"model_stats":['
    separator = b""
    for group in groups(rows):
        yield separator + msgspec.json.encode(group)[1:-1]
        separator = b","
    yield b"]}"


def decode_statistics(body: bytes) -> list[ModelStatistics]:
    """Decode a server's answer to GET .../stats. Raises InferdError when it is malformed."""
    try:
        return msgspec.json.decode(body, type=_Rows).model_stats
    except msgspec.MsgspecError as error:
        raise InferdError(f"the server's answer is malformed: {error}") from error


def decode_statistics_request(data: bytes) -> tuple[str, str]:
    """Return whose statistics are wanted; name "" means all models, version "" all versions.

    Raises InvalidRequest when `data` cannot be read.
    """
    message = parse(_REQUEST, data)
    return message.name, message.version


def encode_statistics_request(name: str = "", version: str = "") -> bytes:
    """Return a ModelStatisticsRequest."""
    return encode(_REQUEST, name=name, version=version)


def encode_statistics_message(rows: Iterable[ModelStatistics]) -> Iterator[bytes]:
    """Yield a ModelStatisticsResponse in pieces: messages one after the other are one."""
    for group in groups(rows):
        yield encode(_RESPONSE, model_stats=[msgspec.to_builtins(row) for row in group])


def decode_statistics_message(data: bytes) -> list[ModelStatistics]:
    """Decode a ModelStatisticsResponse. Raises InferdError when it is malformed."""
    return [_row(row) for row in parse_answer(_RESPONSE, data).model_stats]


def _row(row: Any) -> ModelStatistics:
    return ModelStatistics(
        row.name,
        row.version,
        row.last_inference,
        row.inference_count,
        row.execution_count,
        _read(row.inference_stats, InferStatistics),
        {index: _read(one, ResponseStatistics) for index, one in row.response_stats.items()},
        [_read(one, BatchStatistics) for one in row.batch_stats],
        [_read(one, MemoryUsage) for one in row.memory_usage],
    )


def _read(message: Any, kind: type[T]) -> T:
    return msgspec.convert(message, kind, from_attributes=True)
