"""ModelConfig in the layout of the TensorRT Inference Server API.

Both layouts have a common origin: a field in both has the same number, name and meaning. What the
old one lacks is left out.
"""

from collections.abc import Iterator
from typing import Any

from inferd.config.message import write_message
from inferd.config.model import ModelConfig
from inferd.config.platform import reported_platform
from inferd.wire.proto import message_class, serialized

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
    """Write `config` into `target`, an empty nvidia.inferenceserver.ModelConfig."""
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
