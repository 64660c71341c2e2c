"""ServerStatus and ModelRepositoryIndex of the TensorRT Inference Server API, and ModelConfig."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from google.protobuf import json_format, text_format

from inferd.config.message import write_message
from inferd.config.model import ModelConfig
from inferd.config.platform import reported_platform
from inferd.core.metadata import CudaRegionStatus, ModelState, ServerState, SystemRegionStatus
from inferd.observe.statistics import Duration, InferStatistics, ModelStatistics
from inferd.wire.proto import message_class, serialized

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


_PLATFORMS = {
    "tensorrt_plan": "tensorrt_plan",
    "tensorflow_graphdef": "tensorflow_graphdef",
    "tensorflow_savedmodel": "tensorflow_savedmodel",
    "caffe2_netdef": "caffe2_netdef",
    "onnx_onnxv1": "onnxruntime_onnx",
    "onnxruntime_onnx": "onnxruntime_onnx",
    "pytorch_torchscript": "pytorch_libtorch",
    "pytorch_libtorch": "pytorch_libtorch",
    "ensemble": "ensemble",
}
_OTHER_PLATFORM = "custom"
_BF16, _INVALID = 14, 0  # the old API has no BF16
_MOST_LEVELS = (1 << 32) - 1
_FILLED_SIZES = (4, 8)
"""The preferred batch sizes that the old API shows where none are configured."""


def write_config(config: ModelConfig, target: Any) -> None:
    """Write `config` into `target`, an empty nvidia.inferenceserver.ModelConfig.

    Both layouts have a common origin: a field in both has the same number, name and meaning. What
    the old one lacks is left out.
    """
    message = message_class("inference.ModelConfig")()
    write_message(config, message)
    _leave_out_wide_levels(message.dynamic_batching)
    # The same numbers and meanings, so that the bytes of one are read as the other.
    target.MergeFromString(serialized(message))
    # Fields that only the newer layout has.
    target.DiscardUnknownFields()
    for tensor in _tensors(target):
        if tensor.data_type == _BF16:
            tensor.data_type = _INVALID
    target.platform = _PLATFORMS.get(reported_platform(config), _OTHER_PLATFORM)
    if config.dynamic_batching is not None and config.dynamic_batching.is_filled:
        sizes = [size for size in _FILLED_SIZES if size <= config.max_batch_size]
        target.dynamic_batching.preferred_batch_size[:] = sizes


def _leave_out_wide_levels(batching: Any) -> None:
    """Leave out priority levels that have no place in the 32 bits of the old layout."""
    for name in ("priority_levels", "default_priority_level"):
        if getattr(batching, name) > _MOST_LEVELS:
            batching.ClearField(name)
    policies = batching.priority_queue_policy
    for level in [level for level in policies if level > _MOST_LEVELS]:
        del policies[level]


def _tensors(target: Any) -> Iterator[Any]:
    """Yield everything in a ModelConfig that has a datatype."""
    yield from target.input
    yield from target.output
    for control_input in target.sequence_batching.control_input:
        yield from control_input.control
    for warmup in target.model_warmup:
        yield from warmup.inputs.values()
