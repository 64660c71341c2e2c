"""The interface that model.py imports as triton_python_backend_utils."""

from __future__ import annotations

from typing import Any

from .pb_utils.calls import current_calls
from .pb_utils.config import (
    TRITON_STRING_TO_NUMPY,
    ModelConfig,
    get_input_config_by_name,
    get_output_config_by_name,
    numpy_to_triton_type,
    triton_string_to_numpy,
    triton_to_numpy_type,
    using_decoupled_model_transaction_policy,
)
from .pb_utils.datatype import decode_strings, encode_strings
from .pb_utils.error import TritonError, TritonModelException
from .pb_utils.given import text_given
from .pb_utils.log import Logger
from .pb_utils.metric import Metric, MetricFamily
from .pb_utils.request import (
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_GPU,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    InferenceRequest,
    InferenceTrace,
    PreferredMemory,
    get_input_tensor_by_name,
)
from .pb_utils.response import (
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    InferenceResponse,
    InferenceResponseSender,
    get_output_tensor_by_name,
)
from .pb_utils.tensor import Tensor


def serialize_byte_tensor(input_tensor: object) -> object:
    """Return the elements of an array of strings, each preceded by its 4-byte length."""
    return encode_strings(input_tensor)


def deserialize_bytes_tensor(encoded_tensor: object) -> object:
    """Return the length-prefixed elements as a flat array of bytes objects."""
    return decode_strings(encoded_tensor)


# Triton's module has both spellings, and models use either.
deserialize_byte_tensor = deserialize_bytes_tensor


def get_model_dir() -> str:
    """Return the folder of the version being served."""
    return current_calls().version_folder


def load_model(model_name: str, config: str = "", files: dict[str, Any] | None = None) -> None:
    """Load or reload a model of this server; allowed only where clients may do so, too.

    `config` is JSON; `files` maps paths, with or without a "file:" prefix, to contents.
    """
    sent = {
        # As hex, since a packet's document is JSON; such files are small, and loads are rare.
        name.removeprefix("file:"): bytes(content).hex()
        for name, content in (files or {}).items()
    }
    current_calls().command(
        "load", text_given(model_name, "model_name"), text_given(config, "config"), sent
    )


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Unload a model of this server."""
    current_calls().command("unload", text_given(model_name, "model_name"), bool(unload_dependents))


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Return whether a model of this server, or a version of it, can be called."""
    name = text_given(model_name, "model_name")
    return bool(current_calls().command("is_ready", name, str(model_version)))


__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "Metric",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_byte_tensor",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]
