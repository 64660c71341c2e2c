"""ServerStatus and ModelRepositoryIndex of the TensorRT Inference Server API."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from google.protobuf import json_format, text_format

from inferd.config.model import ModelConfig
from inferd.core.metadata import (
    CudaRegionStatus,
    ModelState,
    ServerState,
    SystemRegionStatus,
)
from inferd.observe.statistics import Duration, InferStatistics, ModelStatistics
from inferd.wire.proto import message_class
from inferd.wire.trtis.config import write_config

PACKAGE = "nvidia.inferenceserver"

NO_VERSION = -1
"""Stands in a status for the versions of a model that failed before they were known.

Only a version can have a reason.
"""


class VersionRow(msgspec.Struct):
    """One version of a model; only one that serves has `statistics` and `by_batch_size`."""

    version: int
    state: ModelState
    reason: str = ""
    statistics: ModelStatistics | None = None
    by_batch_size: Mapping[int, InferStatistics] = {}


class ModelRow(msgspec.Struct):
    """One model; its configuration is None if it could not be read."""

    name: str
    config: ModelConfig | None
    versions: Sequence[VersionRow]


class ServerRow(msgspec.Struct):
    """The server itself; `durations` are those of its small calls, by field of ServerStatus."""

    id: str
    version: str
    uptime_ns: int
    state: ServerState
    durations: Mapping[str, Duration] = {}


def server_status(server: ServerRow, models: Iterable[ModelRow]) -> Any:
    """Return the ServerStatus message."""
    message = message_class(f"{PACKAGE}.ServerStatus")(
        id=server.id,
        version=server.version,
        uptime_ns=server.uptime_ns,
        ready_state=f"SERVER_{server.state.name}",  # the old API's name for it
    )
    for field, duration in server.durations.items():
        _write_duration(getattr(message, field).success, duration)
    for model in models:
        _write_model(model, message.model_status[model.name])
    return message


def repository_index(names: Iterable[str]) -> Any:
    """Return the ModelRepositoryIndex message."""
    models = [{"name": name} for name in names]
    return message_class(f"{PACKAGE}.ModelRepositoryIndex")(models=models)


def shared_memory_status(regions: list[dict[str, Any]]) -> Any:
    """Return the SharedMemoryStatus message with these regions."""
    return message_class(f"{PACKAGE}.SharedMemoryStatus")(shared_memory_region=regions)


def region_fields(
    system: Iterable[SystemRegionStatus], cuda: Iterable[CudaRegionStatus]
) -> list[dict[str, Any]]:
    """Return the fields of a SharedMemoryRegion for each region."""
    fields: list[dict[str, Any]] = []
    for one in system:
        place = {"shared_memory_key": one.key, "offset": one.offset}
        fields.append(
            {"name": one.name, "byte_size": one.size_bytes, "system_shared_memory": place}
        )
    for gpu in cuda:
        device = {"device_id": gpu.device_id}
        fields.append({"name": gpu.name, "byte_size": gpu.size_bytes, "cuda_shared_memory": device})
    return fields


def as_text(message: Any) -> bytes:
    """Return `message` as protobuf text, in ASCII."""
    return text_format.MessageToString(message, as_utf8=False).encode("ascii")


def as_json(message: Any) -> bytes:
    """Return `message` as protobuf JSON with the original field names."""
    return json_format.MessageToJson(message, preserving_proto_field_name=True).encode()


def _write_model(row: ModelRow, target: Any) -> None:
    target.config.name = row.name
    if row.config is not None:
        write_config(row.config, target.config)
    for version in row.versions:
        _write_version(version, target.version_status[version.version])


def _write_version(row: VersionRow, target: Any) -> None:
    target.ready_state = f"MODEL_{row.state.name}"
    if row.reason:
        target.ready_state_reason.message = row.reason
    if row.statistics is not None:
        target.model_execution_count = row.statistics.execution_count
        target.model_inference_count = row.statistics.inference_count
        target.last_inference_timestamp_milliseconds = row.statistics.last_inference
    for batch_size, stats in row.by_batch_size.items():
        _write_stats(stats, target.infer_stats[batch_size])


def _write_stats(stats: InferStatistics, target: Any) -> None:
    parts = (stats.compute_input, stats.compute_infer, stats.compute_output)
    # The old API has one time for all of computing.
    compute = Duration(stats.success.count, sum(part.ns for part in parts))
    _write_duration(target.success, stats.success)
    _write_duration(target.failed, stats.fail)
    _write_duration(target.compute, compute)
    _write_duration(target.queue, stats.queue)
    _write_duration(target.compute_input, stats.compute_input)
    _write_duration(target.compute_infer, stats.compute_infer)
    _write_duration(target.compute_output, stats.compute_output)


def _write_duration(target: Any, duration: Duration) -> None:
    # Else a count of 0 would leave the whole message out.
    target.SetInParent()
    target.count = duration.count
    target.total_time_ns = duration.ns
