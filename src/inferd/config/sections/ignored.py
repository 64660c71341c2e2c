"""Options that Triton and its predecessor have, and that mean nothing here.

They are accepted for the sake of existing command lines. Each is listed after another option.
"""

from dataclasses import dataclass
from functools import partial

from inferd.config.options.option import COUNT, option

ignored = partial(option, group="", acted_on=False)


@dataclass(frozen=True, kw_only=True)
class IgnoredSection:
    """What is read and checked as any option, and then left aside."""

    model_namespacing: bool = ignored(
        False,
        "Load models of the same name from several repositories; here none of them is served.",
        after="model_unload_timeout_secs",
    )
    http_thread_count: int = ignored(
        8,
        "Threads of Triton's HTTP server; here one event loop serves all connections.",
        **COUNT,
        after="reuse_http_port",
    )
    grpc_stream_infer_thread_count: int = ignored(
        2,
        "Threads of the TensorRT Inference Server for gRPC streams.",
        **COUNT,
        after="grpc_restricted_protocol",
    )
    grpc_infer_thread_count: int = ignored(
        2,
        "Threads of Triton's gRPC server.",
        minimum=2,
        maximum=128,
        after="grpc_stream_infer_thread_count",
    )
    grpc_infer_allocation_pool_size: int = ignored(
        8,
        "Request objects that Triton keeps for reuse.",
        minimum=0,
        after="grpc_infer_thread_count",
    )
    grpc_max_response_pool_size: int = ignored(
        2147483647,
        "Response objects that Triton keeps for reuse.",
        minimum=0,
        after="grpc_infer_allocation_pool_size",
    )
    api_version: int | None = ignored(
        None,
        "API that the last TensorRT Inference Servers should serve, 1 or 2; here always both.",
        choices=(1, 2),
        after="allow_trtis",
    )
    allow_profiling: bool = ignored(
        False,
        "Whether clients may use the TensorRT Inference Server's profiler, at /api/profile.",
        after="api_version",
    )
    tf_add_vgpu: tuple[str, ...] = ignored(
        (),
        "GPU;COUNT;MEGABYTES: virtual GPUs of the TensorRT Inference Server's TensorFlow.",
        after="backend_config",
    )
    repoagent_directory: str | None = ignored(
        None, "Folder of Triton's compiled repository agents.", after="backend_directory"
    )
    cache_directory: str | None = ignored(
        None, "Folder of Triton's compiled caches.", after="cache_config"
    )
    buffer_manager_thread_count: int = ignored(
        0, "Threads that copy tensors.", minimum=0, after="host_policy"
    )
    pinned_memory_pool_byte_size: int = ignored(
        268435456,
        "Pinned memory for copies to GPUs.",
        word="BYTES",
        minimum=0,
        after="buffer_manager_thread_count",
    )
    cuda_memory_pool_byte_size: tuple[str, ...] = ignored(
        (),
        "GPU:BYTES: memory reserved for tensors. May be repeated.",
        after="pinned_memory_pool_byte_size",
    )
    cuda_virtual_address_size: tuple[str, ...] = ignored(
        (),
        "GPU:BYTES: address space for growing tensors. May be repeated.",
        after="cuda_memory_pool_byte_size",
    )
    min_supported_compute_capability: float | None = ignored(
        None, "GPUs below this are not used.", after="cuda_virtual_address_size"
    )
    enable_peer_access: bool = ignored(
        True, "GPUs may copy to each other.", after="min_supported_compute_capability"
    )
    sagemaker_thread_count: int = ignored(
        8, "Threads of SageMaker's calls.", **COUNT, after="sagemaker_multi_model"
    )
    vertex_ai_thread_count: int = ignored(
        8, "Threads of Vertex AI's calls.", **COUNT, after="vertex_ai_default_model"
    )
