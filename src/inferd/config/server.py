"""ServerConfig: every option of the server, each declared once.

This declaration yields the flag (--http-port), the environment variable (INFERD_HTTP_PORT), the key
in a TOML file (http-port), the help and docs/reference/options.md. Names and defaults are Triton's
wherever Triton has the option. Where a default differs, a comment gives the reason.
"""

from dataclasses import dataclass

from inferd.config.options.log import LOG_FORMATS
from inferd.config.options.option import option

GROUPS = (
    "Models",
    "Server",
    "HTTP",
    "HTTP limits",
    "gRPC",
    "Protocol details",
    "Logging",
    "Metrics and traces",
    "Backends, devices and caches",
    "Cloud platforms",
)

_PORT = {"minimum": 0, "maximum": 65535, "word": "PORT"}
_LONGEST = 2**31 - 1  # the limit of system timers and of Triton's options
_SECONDS = {"minimum": 0, "maximum": _LONGEST, "word": "SECONDS"}
_TIMEOUT = {"minimum": 0.1, "maximum": _LONGEST, "word": "SECONDS"}
_MILLISECONDS = {"minimum": 0, "maximum": _LONGEST, "word": "MILLISECONDS"}
_COUNT = {"minimum": 1}
# The least that clients send is some hundred bytes; HTTP/2 tells clients the limit in 32 bits.
_HEAD = {"minimum": 1024, "maximum": _LONGEST}
_PINGS = {"minimum": 0, "maximum": _LONGEST, "is_raised": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The options. None and () mean "not set"."""

    # Models

    model_repository: tuple[str, ...] = option(
        (),
        "Folder of model folders, or the same in a cloud (s3://, gs://, as://). Same as PATH. May "
        "be repeated.",
        group="Models",
        word="PATH",
        aliases=("model-store",),
    )
    model_control_mode: str = option(
        "none",
        "none: all models load at start. explicit: those of --load-model load at start, others "
        "when a client asks. poll: all load at start, and changes in the repository are followed.",
        group="Models",
        choices=("none", "poll", "explicit"),
        old_switches={"allow-poll-model-repository": "poll", "allow-model-control": "explicit"},
    )
    load_model: tuple[str, ...] = option(
        (),
        "Model to load at start in explicit mode; * alone means all. May be repeated.",
        group="Models",
        word="NAME",
    )
    repository_poll_secs: float = option(
        15.0, "How often poll mode checks the repository; 0: never.", group="Models", **_SECONDS
    )
    model_repository_links: str = option(
        "inside",
        "Links that a load by request may follow: only those that stay inside the repository, or "
        "any. Models loaded at start or by polling may link anywhere.",
        group="Models",
        choices=("inside", "any"),
    )
    model_upload_max_bytes: int = option(
        1073741824,
        "Limit on the model files that clients send with load requests, for all models together.",
        group="Models",
        word="BYTES",
        minimum=0,
    )
    # Triton exits; here the healthy models are served, and readiness shows that others failed.
    exit_on_error: bool = option(
        False, "End with code 1 when a model fails to load at start.", group="Models"
    )
    strict_readiness: bool = option(
        True, "The server is ready only when all its models are.", group="Models"
    )
    disable_auto_complete_config: bool = option(
        False,
        "Use config.pbtxt as it is; fill in nothing from the model file.",
        group="Models",
        # The old flag has the same meaning and is not inverted.
        old_flags={"strict-model-config": "{}"},
    )
    model_config_name: str | None = option(
        None,
        "Use the model's configs/NAME.pbtxt instead of config.pbtxt, if it exists.",
        group="Models",
        word="NAME",
    )
    model_load_thread_count: int = option(
        4,
        "Number of model versions that load at the same time.",
        group="Models",
        is_raised=True,  # as in Triton
        **_COUNT,
    )
    model_load_retry_count: int = option(
        0, "Number of times a failed load is tried again.", group="Models", minimum=0
    )
    model_load_timeout_secs: float = option(
        3600.0, "A load of a model version that takes longer fails.", group="Models", **_TIMEOUT
    )
    model_unload_timeout_secs: float = option(
        300.0,
        "How long running requests may take to finish when their version is unloaded or replaced.",
        group="Models",
        **_SECONDS,
    )
    model_namespacing: bool = option(
        False,
        "Load models of the same name from several repositories; here none of them is served.",
        group="Models",
        acted_on=False,
    )

    # Server

    config: str | None = option(
        None, "TOML file of options; flags and variables override it.", group="Server", word="FILE"
    )
    id: str | None = option(
        None, "Server name shown in the metadata.", group="Server", word="NAME", shown="inferd"
    )
    exit_timeout_secs: int = option(
        30,
        "After SIGTERM the process ends within this time; requests not finished by then are cut "
        "off. 0: requests in flight are cut off at once.",
        group="Server",
        is_raised=True,  # as in Triton
        **_SECONDS,
    )
    max_inflight_requests: int = option(
        20000,
        "Limit on inferences under way, over all protocols; more are refused. Twice what one model "
        "may have waiting, so that one model alone cannot block the others.",
        group="Server",
        **_COUNT,
    )
    max_inflight_bytes: int = option(
        4294967296,
        "Limit on request data in memory, over all protocols; more is refused. Counts bodies, gRPC "
        "messages, and their inflated or parsed form.",
        group="Server",
        word="BYTES",
        **_COUNT,
    )
    drain_delay: float = option(
        0.0,
        "After SIGTERM, accept new connections for this long while reporting not ready, so that "
        "load balancers can notice. Counts towards --exit-timeout-secs.",
        group="Server",
        **_SECONDS,
    )

    api_key_file: str | None = option(
        None,
        "HTTP and gRPC calls need an API key. The file has NAME:HASH lines, which inferd key "
        "writes; it is read again when it changes.",
        group="Server",
        word="FILE",
    )
    api_key_for_health: bool = option(
        False,
        "Health checks need an API key, too; by default they are open to all.",
        group="Server",
    )

    # HTTP

    allow_http: bool = option(True, "Serve HTTP.", group="HTTP")
    http_address: str | None = option(
        None,
        "Address the HTTP port binds.",
        group="HTTP",
        word="ADDRESS",
        shown="127.0.0.1; 0.0.0.0 in a container",
    )
    http_port: int = option(
        8000,
        "Port of HTTP; 0 lets the system choose.",
        group="HTTP",
        also="MLSERVER_HTTP_PORT",
        **_PORT,
    )
    http_health_port: int | None = option(
        None,
        "Extra port for health checks only, without TLS; --http-port answers them, too.",
        group="HTTP",
        **_PORT,
    )
    http_unix_socket: str | None = option(
        None, "Serve HTTP on this Unix socket too.", group="HTTP", word="PATH"
    )
    http_use_ssl: bool = option(False, "Serve HTTPS instead of HTTP.", group="HTTP")
    http_server_cert: str | None = option(
        None, "PEM file of the server's certificate chain.", group="HTTP", word="FILE"
    )
    http_server_key: str | None = option(
        None, "PEM file of the server's private key.", group="HTTP", word="FILE"
    )
    http_use_ssl_mutual: bool = option(
        False,
        "Clients must show a certificate signed by --http-root-cert. Implies --http-use-ssl.",
        group="HTTP",
    )
    http_root_cert: str | None = option(
        None,
        "PEM file of the authorities that sign client certificates.",
        group="HTTP",
        word="FILE",
    )
    reuse_http_port: bool = option(
        False, "Share the port with other processes (SO_REUSEPORT).", group="HTTP"
    )
    http_thread_count: int = option(
        8,
        "Threads of Triton's HTTP server; here one event loop serves all connections.",
        group="HTTP",
        **_COUNT,
        acted_on=False,
    )
    http_header_forward_pattern: str | None = option(
        None,
        "Regular expression; headers whose names it matches somewhere become request parameters.",
        group="HTTP",
        word="REGEX",
    )
    http_restricted_api: tuple[str, ...] = option(
        (),
        "APIS:HEADER=VALUE: only requests with this header may call these APIs. APIS is a list of "
        "health, metadata, inference, shared-memory, model-config, model-repository, statistics, "
        "trace and logging, separated by commas. May be repeated.",
        group="HTTP",
    )

    http_cors_origin: tuple[str, ...] = option(
        (),
        "Web pages of this origin, such as https://example.org, may call the server; * means all "
        "pages. May be repeated.",
        group="HTTP",
        word="ORIGIN",
    )

    # HTTP limits

    http_max_header_bytes: int = option(
        65536, "Largest request line and headers.", group="HTTP limits", word="BYTES", **_HEAD
    )
    http_max_body_bytes: int = option(
        2147483648, "Largest body of a request.", group="HTTP limits", word="BYTES", **_COUNT
    )
    http_max_input_size: int = option(
        67108864,
        "Largest JSON, raw or inflated body of a request.",
        group="HTTP limits",
        word="BYTES",
        **_COUNT,
    )
    http_max_connections: int = option(
        10000, "Most connections open at the same time.", group="HTTP limits", **_COUNT
    )
    http_idle_timeout_secs: float = option(
        300.0, "How long a connection may have no request.", group="HTTP limits", **_TIMEOUT
    )
    http_header_timeout_secs: float = option(
        60.0, "Time from a request's first byte to its whole head.", group="HTTP limits", **_TIMEOUT
    )
    http_body_timeout_secs: float = option(
        60.0,
        "How long a body may make no progress. A body that trickles in is ended, too.",
        group="HTTP limits",
        **_TIMEOUT,
    )
    http_write_timeout_secs: float = option(
        60.0, "How long a client may pause reading its answer.", group="HTTP limits", **_TIMEOUT
    )

    # gRPC

    allow_grpc: bool = option(True, "Serve gRPC.", group="gRPC")
    grpc_address: str | None = option(
        None,
        "Address the gRPC port binds.",
        group="gRPC",
        word="ADDRESS",
        shown="127.0.0.1; 0.0.0.0 in a container",
    )
    grpc_port: int = option(
        8001,
        "Port of gRPC; 0 lets the system choose.",
        group="gRPC",
        also="MLSERVER_GRPC_PORT",
        **_PORT,
    )
    grpc_transport: str = option(
        "own",
        "own: HTTP/2 on the server's own event loop. grpcio: the gRPC project's library, which "
        "takes several times the CPU.",
        group="gRPC",
        choices=("own", "grpcio"),
    )
    grpc_use_ssl: bool = option(False, "TLS for gRPC.", group="gRPC")
    grpc_server_cert: str | None = option(
        None, "PEM file of the server's certificate chain.", group="gRPC", word="FILE"
    )
    grpc_server_key: str | None = option(
        None, "PEM file of the server's private key.", group="gRPC", word="FILE"
    )
    grpc_use_ssl_mutual: bool = option(
        False,
        "Clients must show a certificate signed by --grpc-root-cert. Implies --grpc-use-ssl.",
        group="gRPC",
    )
    grpc_root_cert: str | None = option(
        None,
        "PEM file of the authorities that sign client certificates.",
        group="gRPC",
        word="FILE",
    )
    grpc_infer_response_compression_level: str = option(
        "none",
        "How hard answers are compressed.",
        group="gRPC",
        choices=("none", "low", "medium", "high"),
    )
    grpc_keepalive_time: int = option(
        7200000, "Idle time after which the client is pinged.", group="gRPC", **_MILLISECONDS
    )
    grpc_keepalive_timeout: int = option(
        20000, "How long the answer to that ping may take.", group="gRPC", **_MILLISECONDS
    )
    grpc_keepalive_permit_without_calls: bool = option(
        False, "Ping even if no call is running.", group="gRPC"
    )
    grpc_http2_max_pings_without_data: int = option(
        2, "How many pings to send without data between them; 0: no limit.", group="gRPC", **_PINGS
    )
    grpc_http2_min_recv_ping_interval_without_data: int = option(
        300000,
        "Least time between two pings of a client without data between them.",
        group="gRPC",
        **_MILLISECONDS,
    )
    grpc_http2_max_ping_strikes: int = option(
        2, "How many pings a client may send too early; 0: no limit.", group="gRPC", **_PINGS
    )
    grpc_max_connection_age: int | None = option(
        None, "Close connections at this age.", group="gRPC", shown="never", **_MILLISECONDS
    )
    grpc_max_connection_age_grace: int | None = option(
        None,
        "How long calls may go on after --grpc-max-connection-age.",
        group="gRPC",
        shown="no limit",
        **_MILLISECONDS,
    )
    grpc_max_connection_idle: int | None = option(
        None,
        "Close connections that have had no call for this long.",
        group="gRPC",
        shown="never",
        **_MILLISECONDS,
    )
    grpc_max_message_bytes: int = option(
        2147483647,
        "Largest message accepted from a client.",
        group="gRPC",
        word="BYTES",
        minimum=1,
        maximum=2147483647,
    )
    grpc_max_inflated_bytes: int = option(
        67108864,
        "Largest compressed message from a client, once inflated. With grpcio, the limit of all "
        "messages is --grpc-max-message-bytes, inflated or not.",
        group="gRPC",
        word="BYTES",
        **_COUNT,
    )
    grpc_max_metadata_bytes: int = option(
        16384,
        "Largest metadata of a call from a client.",
        group="gRPC",
        word="BYTES",
        **_HEAD,
    )
    grpc_max_connections: int = option(
        10000, "Most connections open at the same time.", group="gRPC", **_COUNT
    )
    grpc_max_concurrent_streams: int = option(
        1000,
        "Most calls open at the same time on one connection.",
        group="gRPC",
        maximum=_LONGEST,
        **_COUNT,
    )
    grpc_handshake_timeout_secs: float = option(
        20.0, "Time from a connection's start until it speaks HTTP/2.", group="gRPC", **_TIMEOUT
    )
    grpc_message_timeout_secs: float = option(
        60.0,
        "How long a message may make no progress. One that trickles in is ended, too.",
        group="gRPC",
        **_TIMEOUT,
    )
    grpc_write_timeout_secs: float = option(
        60.0, "How long a client may pause reading its answer.", group="gRPC", **_TIMEOUT
    )
    reuse_grpc_port: bool = option(
        False, "Share the port with other processes (SO_REUSEPORT).", group="gRPC"
    )
    grpc_header_forward_pattern: str | None = option(
        None,
        "Regular expression; metadata whose keys it matches somewhere become request parameters.",
        group="gRPC",
        word="REGEX",
    )
    grpc_restricted_protocol: tuple[str, ...] = option(
        (),
        "APIS:KEY=VALUE: like --http-restricted-api; the metadata is called "
        "triton-grpc-protocol-KEY. May be repeated.",
        group="gRPC",
    )
    grpc_stream_infer_thread_count: int = option(
        2,
        "Threads of the TensorRT Inference Server for gRPC streams.",
        group="gRPC",
        **_COUNT,
        acted_on=False,
    )
    grpc_infer_thread_count: int = option(
        2, "Threads of Triton's gRPC server.", group="gRPC", minimum=2, maximum=128, acted_on=False
    )
    grpc_infer_allocation_pool_size: int = option(
        8, "Request objects that Triton keeps for reuse.", group="gRPC", minimum=0, acted_on=False
    )
    grpc_max_response_pool_size: int = option(
        2147483647,
        "Response objects that Triton keeps for reuse.",
        group="gRPC",
        minimum=0,
        acted_on=False,
    )

    # Protocol details: where the specifications leave a choice

    allow_trtis: bool = option(
        True,
        "Serve the API of the TensorRT Inference Server, Triton's predecessor, on the same ports.",
        group="Protocol details",
    )

    api_version: int | None = option(
        None,
        "API that the last TensorRT Inference Servers should serve, 1 or 2; here always both.",
        group="Protocol details",
        choices=(1, 2),
        acted_on=False,
    )
    allow_profiling: bool = option(
        False,
        "Whether clients may use the TensorRT Inference Server's profiler, at /api/profile.",
        group="Protocol details",
        acted_on=False,
    )
    json_half_floats: str = option(
        "accept",
        "FP16 and BF16 tensors in JSON: accept them as numbers, or refuse them.",
        group="Protocol details",
        choices=("accept", "refuse"),
    )
    json_non_finite: str = option(
        "tokens",
        "NaN and infinities in JSON answers: the words NaN and Infinity (not strict JSON, but what "
        "Triton's clients read), null, or an error.",
        group="Protocol details",
        choices=("tokens", "null", "error"),
    )
    not_ready_status: int = option(
        400,
        "HTTP status of failed readiness checks: Triton's 400, or KServe's 503.",
        group="Protocol details",
        choices=(400, 503),
    )
    grpc_typed_answers: bool = option(
        False,
        "Answer gRPC requests that have typed contents in typed contents, not raw_output_contents.",
        group="Protocol details",
    )

    # Logging

    log_format: str = option(
        "default",
        "Text, text with UTC times, or one JSON object per line.",
        group="Logging",
        choices=LOG_FORMATS,
    )
    log_file: str | None = option(
        None, "Append the log to this file.", group="Logging", word="FILE", shown="standard error"
    )
    log_directory: str | None = option(
        None,
        "Folder in which clients may choose a log file, by name, while the server runs.",
        group="Logging",
        word="PATH",
        shown="clients may not",
    )
    log_verbose: int = option(
        0,
        "1 and above also logs details; the flag alone means 1.",
        group="Logging",
        minimum=0,
        maximum=2**32 - 1,  # gRPC's log settings carry it as uint32
        bare="1",
    )
    log_info: bool = option(True, "Log what happens.", group="Logging")
    log_warning: bool = option(True, "Log warnings.", group="Logging")
    log_error: bool = option(True, "Log errors.", group="Logging")

    # Metrics and traces

    allow_metrics: bool = option(
        True,
        "Serve Prometheus metrics at /metrics, on their own port.",
        group="Metrics and traces",
    )
    allow_gpu_metrics: bool = option(True, "Metrics of the GPUs.", group="Metrics and traces")
    allow_cpu_metrics: bool = option(
        True, "Metrics of the processors and the memory.", group="Metrics and traces"
    )
    metrics_address: str | None = option(
        None,
        "Address the metrics port binds.",
        group="Metrics and traces",
        word="ADDRESS",
        shown="that of HTTP",
    )
    metrics_port: int | None = option(
        None,
        "Port of the metrics.",
        group="Metrics and traces",
        shown="8002; if --http-port or --grpc-port is 0, one that is free",
        **_PORT,
    )
    metrics_interval_ms: int = option(
        2000,
        "How often GPUs, processors and memory are measured.",
        group="Metrics and traces",
        **(_MILLISECONDS | _COUNT),
    )
    metrics_config: tuple[str, ...] = option(
        (),
        "SETTING=VALUE: which metrics to serve besides the counts. May be repeated.",
        group="Metrics and traces",
        word="SETTING",
    )
    trace_config: tuple[str, ...] = option(
        (),
        "[MODE,]SETTING=VALUE: which requests to trace, and where traces go. May be repeated.",
        group="Metrics and traces",
        word="SETTING",
        old_flags={
            "trace-file": "triton,file={}",
            "trace-level": "level={}",
            "trace-rate": "rate={}",
            "trace-count": "count={}",
            "trace-log-frequency": "triton,log-frequency={}",
        },
    )

    trace_directory: str | None = option(
        None,
        "Folder in which clients may choose trace files, by name, while the server runs.",
        group="Metrics and traces",
        word="PATH",
        shown="clients may not",
    )

    # Backends, devices and caches

    backend_config: tuple[str, ...] = option(
        (),
        "[BACKEND,]SETTING=VALUE: a setting of one backend, or of all. May be repeated.",
        group="Backends, devices and caches",
        word="SETTING",
        old_flags={
            "tf-allow-soft-placement": "tensorflow,allow-soft-placement={}",
            "tf-gpu-memory-fraction": "tensorflow,gpu-memory-fraction={}",
        },
    )
    tf_add_vgpu: tuple[str, ...] = option(
        (),
        "GPU;COUNT;MEGABYTES: virtual GPUs of the TensorRT Inference Server's TensorFlow.",
        group="Backends, devices and caches",
        acted_on=False,
    )
    backend_directory: str | None = option(
        None,
        "Folder of Python-based backends: NAME/model.py in it runs the models of backend NAME.",
        group="Backends, devices and caches",
        word="PATH",
    )
    repoagent_directory: str | None = option(
        None,
        "Folder of Triton's compiled repository agents.",
        group="Backends, devices and caches",
        word="PATH",
        acted_on=False,
    )
    cache_config: tuple[str, ...] = option(
        (),
        "CACHE,SETTING=VALUE: the response cache, for models whose configuration has "
        "response_cache { enable: true }. local,size=BYTES keeps answers in memory; "
        "redis,host=HOST with redis,port=PORT keeps them in Redis. May be repeated.",
        group="Backends, devices and caches",
        word="SETTING",
        old_flags={"response-cache-byte-size": "local,size={}"},
    )
    cache_directory: str | None = option(
        None,
        "Folder of Triton's compiled caches.",
        group="Backends, devices and caches",
        word="PATH",
        acted_on=False,
    )
    # Not set: clients on the same machine may, clients over the network may not.
    allow_client_shm: bool | None = option(
        None,
        "Clients may register shared memory, which the server reads and writes as its own user.",
        group="Backends, devices and caches",
        shown="only when all ports bind this machine alone",
    )
    rate_limit: str = option(
        "off",
        "execution_count: hold back executions whose resources are in use.",
        group="Backends, devices and caches",
        choices=("off", "execution_count"),
    )
    rate_limit_resource: tuple[str, ...] = option(
        (),
        "NAME:COUNT[:DEVICE]: amount of a resource for --rate-limit. May be repeated.",
        group="Backends, devices and caches",
    )
    host_policy: tuple[str, ...] = option(
        (),
        "POLICY,SETTING=VALUE: which processors instances run on. POLICY is the host_policy of an "
        "instance_group, otherwise cpu, model or gpu_0 and so on. SETTING is numa-node or "
        "cpu-cores. May be repeated.",
        group="Backends, devices and caches",
    )
    buffer_manager_thread_count: int = option(
        0,
        "Threads that copy tensors.",
        group="Backends, devices and caches",
        minimum=0,
        acted_on=False,
    )
    pinned_memory_pool_byte_size: int = option(
        268435456,
        "Pinned memory for copies to GPUs.",
        group="Backends, devices and caches",
        word="BYTES",
        minimum=0,
        acted_on=False,
    )
    cuda_memory_pool_byte_size: tuple[str, ...] = option(
        (),
        "GPU:BYTES: memory reserved for tensors. May be repeated.",
        group="Backends, devices and caches",
        acted_on=False,
    )
    cuda_virtual_address_size: tuple[str, ...] = option(
        (),
        "GPU:BYTES: address space for growing tensors. May be repeated.",
        group="Backends, devices and caches",
        acted_on=False,
    )
    min_supported_compute_capability: float | None = option(
        None,
        "GPUs below this are not used.",
        group="Backends, devices and caches",
        acted_on=False,
    )
    enable_peer_access: bool = option(
        True,
        "GPUs may copy to each other.",
        group="Backends, devices and caches",
        acted_on=False,
    )
    model_load_gpu_limit: tuple[str, ...] = option(
        (),
        "DEVICE:FRACTION: no model is loaded onto this GPU while more of its memory is in use. "
        "May be repeated.",
        group="Backends, devices and caches",
    )

    # Cloud platforms

    allow_sagemaker: bool = option(
        False, "Serve SageMaker's /ping and /invocations.", group="Cloud platforms"
    )
    sagemaker_address: str | None = option(
        None,
        "Address SageMaker's port binds.",
        group="Cloud platforms",
        word="ADDRESS",
        shown="that of HTTP",
    )
    sagemaker_port: int = option(
        8080,
        "Port of SageMaker's calls.",
        group="Cloud platforms",
        also="SAGEMAKER_BIND_TO_PORT",
        **_PORT,
    )
    sagemaker_safe_port_range: str | None = option(
        None,
        "LOW-HIGH: all ports of the server must be in this range.",
        group="Cloud platforms",
        also="SAGEMAKER_SAFE_PORT_RANGE",
    )
    sagemaker_default_model: str | None = option(
        None,
        "Model that /invocations calls.",
        group="Cloud platforms",
        word="NAME",
        shown="the only model",
        also="SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
    )
    sagemaker_inference_type: str = option(
        "infer",
        "What /invocations does: V2 inference, or a call of the generate extension.",
        group="Cloud platforms",
        choices=("infer", "generate", "generate_stream"),
        also="SAGEMAKER_TRITON_INFERENCE_TYPE",
    )
    sagemaker_multi_model: bool = option(
        False,
        "SageMaker decides which models are loaded; --model-control-mode is then explicit.",
        group="Cloud platforms",
        also="SAGEMAKER_MULTI_MODEL",
    )
    sagemaker_thread_count: int = option(
        8, "Threads of SageMaker's calls.", group="Cloud platforms", **_COUNT, acted_on=False
    )
    # Vertex AI sets AIP_MODE=PREDICTION; see vertex_ai_defaults in config/sources.py.
    allow_vertex_ai: bool = option(
        False,
        "Serve Vertex AI's calls. AIP_MODE=PREDICTION sets this; HTTP and gRPC are then off unless "
        "you ask for them.",
        group="Cloud platforms",
    )
    vertex_ai_address: str | None = option(
        None,
        "Address Vertex AI's port binds.",
        group="Cloud platforms",
        word="ADDRESS",
        shown="that of HTTP; 0.0.0.0 with AIP_MODE=PREDICTION",
    )
    vertex_ai_port: int = option(
        8080,
        "Port of Vertex AI's calls.",
        group="Cloud platforms",
        also="AIP_HTTP_PORT",
        **_PORT,
    )
    vertex_ai_health_route: str = option(
        "/health",
        "Path of Vertex AI's health checks.",
        group="Cloud platforms",
        word="PATH",
        also="AIP_HEALTH_ROUTE",
    )
    vertex_ai_predict_route: str = option(
        "/predict",
        "Path of Vertex AI's predictions.",
        group="Cloud platforms",
        word="PATH",
        also="AIP_PREDICT_ROUTE",
    )
    vertex_ai_default_model: str | None = option(
        None,
        "Model that Vertex AI's calls use if they name none.",
        group="Cloud platforms",
        word="NAME",
        shown="the only model",
    )
    vertex_ai_thread_count: int = option(
        8, "Threads of Vertex AI's calls.", group="Cloud platforms", **_COUNT, acted_on=False
    )
