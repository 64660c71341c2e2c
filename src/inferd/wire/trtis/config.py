"""ModelConfig in the layout of the TensorRT Inference Server API.

Both layouts have a common origin: a field in both has the same name and meaning. What the old one
lacks is left out.
"""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from inferd.config.message import is_map, value_field, write_message
from inferd.config.model import ModelConfig
from inferd.config.platform import reported_platform
from inferd.wire.proto import message_class

_PLATFORMS = {"onnx_onnxv1": "onnxruntime_onnx", "pytorch_torchscript": "pytorch_libtorch"}
_KNOWN = frozenset(
    (
        "tensorrt_plan",
        "tensorflow_graphdef",
        "tensorflow_savedmodel",
        "caffe2_netdef",
        "onnxruntime_onnx",
        "pytorch_libtorch",
        "ensemble",
    )
)
_OTHER = "custom"
_FILLED_SIZES = (4, 8)
"""The preferred batch sizes that the old API shows where none are configured."""


def write_config(config: ModelConfig, target: Any) -> None:
    """Write `config` into `target`, an empty nvidia.inferenceserver.ModelConfig."""
    message = message_class("inference.ModelConfig")()
    write_message(config, message)
    _copy(message, target)
    target.platform = old_platform(config)
    if config.dynamic_batching is not None and config.dynamic_batching.is_filled:
        sizes = [size for size in _FILLED_SIZES if size <= config.max_batch_size]
        target.dynamic_batching.preferred_batch_size[:] = sizes


def old_platform(config: ModelConfig) -> str:
    """Return the old API's name for the platform of a model."""
    platform = reported_platform(config)
    platform = _PLATFORMS.get(platform, platform)
    return platform if platform in _KNOWN else _OTHER


def _copy(source: Any, target: Any) -> None:
    """Copy the set fields that both messages have."""
    known = target.DESCRIPTOR.fields_by_name
    for field, value in source.ListFields():
        there = known.get(field.name)
        if there is not None:
            _copy_field(field, value, there, target)


def _copy_field(field: FieldDescriptor, value: Any, there: FieldDescriptor, target: Any) -> None:
    if is_map(field):
        values = getattr(target, there.name)
        for key, one in value.items():
            if value_field(field).message_type is None:
                values[key] = one
            else:
                _copy(one, values[key])
    elif field.is_repeated:
        values = getattr(target, there.name)
        for one in value:
            if field.message_type is None:
                values.append(_number(field, one, there))
            else:
                _copy(one, values.add())
    elif field.message_type is not None:
        inner = getattr(target, there.name)
        inner.SetInParent()
        _copy(value, inner)
    else:
        setattr(target, there.name, _number(field, value, there))


def _number(field: FieldDescriptor, value: Any, there: FieldDescriptor) -> Any:
    if field.enum_type is None or there.enum_type is None:
        return value
    named = field.enum_type.values_by_number[value].name
    known = there.enum_type.values_by_name.get(named)  # the old layout has no BF16, for example
    return known.number if known is not None else 0
