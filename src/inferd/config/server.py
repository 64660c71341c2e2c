"""ServerConfig: every option of the server, each declared once.

This declaration yields the flag (--http-port), the environment variable (INFERD_HTTP_PORT), the key
in a TOML file (http-port), the help and docs/reference/options.md. Names and defaults are Triton's
wherever Triton has the option. Where a default differs, a comment gives the reason.
"""

from dataclasses import dataclass
from functools import partial

from inferd.config.options.access_log import ACCESS_LOG_FORMATS
from inferd.config.options.log import LOG_FORMATS
from inferd.config.options.option import option

_PORT = {"minimum": 0, "maximum": 65535, "word": "PORT"}
_LONGEST = 2**31 - 1  # the limit of system timers and of Triton's options
_SECONDS = {"minimum": 0, "maximum": _LONGEST, "word": "SECONDS"}
_TIMEOUT = {"minimum": 0.1, "maximum": _LONGEST, "word": "SECONDS"}
_MILLISECONDS = {"minimum": 0, "maximum": _LONGEST, "word": "MILLISECONDS"}
_COUNT = {"minimum": 1}
# The least that clients send is some hundred bytes; HTTP/2 tells clients the limit in 32 bits.
_HEAD = {"minimum": 1024, "maximum": _LONGEST}
_PINGS = {"minimum": 0, "maximum": _LONGEST, "is_raised": True}

_models = partial(option, group="Models")
_server = partial(option, group="Server")
_http = partial(option, group="HTTP")
_http_limits = partial(option, group="HTTP limits")
_grpc = partial(option, group="gRPC")
_details = partial(option, group="Protocol details")
_logging = partial(option, group="Logging")
_observe = partial(option, group="Metrics and traces")
_backends = partial(option, group="Backends, devices and caches")
_cloud = partial(option, group="Cloud platforms")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The options. None and () mean "not set"."""

    # Models

    model_repository: tuple[str, ...] = _models(
        (),
        "Folder of model folders, or the same in a cloud (s3://, gs://, as://), a hub (hf://), a "
        "registry (oci://) or at a link (https://...#sha256=...); or one model: its folder, or its "
        "file. Same as PATH. May be repeated.",
        word="PATH",
        aliases=("model-store", "model-dir"),
        also="MODELS_DIR",  # of MLServer's image
    )
    model_name: str | None = _models(
        None,
        "Name of the model, if PATH is one model and not a folder of several.",
        shown="that of its configuration; of a folder INFERENCE_SERVICE_NAME, else its own",
    )
    model_control_mode: str = _models(
        "none",
        "none: all models load at start. explicit: those of --load-model load at start, others "
        "when a client asks. poll: all load at start, and changes in the repository are followed.",
        choices=("none", "poll", "explicit"),
        old_switches={"allow-poll-model-repository": "poll", "allow-model-control": "explicit"},
    )
    load_model: tuple[str, ...] = _models(
        (), "Model to load at start in explicit mode; * alone means all. May be repeated."
    )
    repository_poll_secs: float = _models(
        15.0, "How often poll mode checks the repository; 0: never.", **_SECONDS
    )
    model_repository_links: str = _models(
        "inside",
        "Links that a load by request may follow: only those that stay inside the repository, or "
        "any. Models loaded at start or by polling may link anywhere.",
        choices=("inside", "any"),
    )
    model_upload_max_bytes: int = _models(
        1073741824,
        "Limit on the model files that clients send with load requests, for all models together.",
        minimum=0,
    )
    require_signatures: tuple[str, ...] = _models(
        (),
        "PEM file of a public key, or of the certificate of an authority: only models that it has "
        "signed are loaded, and clients send no configurations and files. May be repeated.",
        word="FILE",
    )
    fetch_directory: str | None = _models(
        None,
        "Folder in which models of hubs, registries and links are stored.",
        shown="~/.cache/inferd/models",
    )
    fetch_max_bytes: int = _models(
        200 << 30,
        "Limit on one model of a hub, a registry or a link, as it is fetched and unpacked.",
        minimum=1,
    )
    offline: bool = _models(
        False, "Serve models of hubs, registries and links only if they are in --fetch-directory."
    )
    # Triton exits; here the healthy models are served, and readiness shows that others failed.
    exit_on_error: bool | None = _models(
        None,
        "End with code 1 when a model fails to load at start. If false, the server also stays up, "
        "but is not live, when a model repository is missing.",
        shown="only when a model repository is missing",
    )
    strict_readiness: bool = _models(True, "The server is ready only when all its models are.")
    # Triton is ready without a model; then a wrong path, or an empty mount, takes traffic.
    allow_empty: bool = _models(
        False,
        "The server is ready even if it has no model. In explicit mode, where clients load models, "
        "it always is.",
    )
    disable_auto_complete_config: bool = _models(
        False,
        "Use config.pbtxt as it is; fill in nothing from the model file.",
        # The old flag has the same meaning and is not inverted.
        old_flags={"strict-model-config": "{}"},
    )
    model_config_name: str | None = _models(
        None, "Use the model's configs/NAME.pbtxt instead of config.pbtxt, if it exists."
    )
    model_load_thread_count: int = _models(
        4,
        "Number of model versions that load at the same time, and of instances of each.",
        is_raised=True,  # as in Triton
        **_COUNT,
    )
    model_load_retry_count: int = _models(
        0, "Number of times a failed load is tried again.", minimum=0
    )
    model_load_timeout_secs: float = _models(
        3600.0, "A load of a model version that takes longer fails.", **_TIMEOUT
    )
    model_unload_timeout_secs: float = _models(
        300.0,
        "How long running requests may take to finish when their version is unloaded or replaced.",
        **_SECONDS,
    )
    model_namespacing: bool = _models(
        False,
        "Load models of the same name from several repositories; here none of them is served.",
        acted_on=False,
    )

    # Server

    config: str | None = _server(
        None, "TOML file of options; flags and variables override it.", word="FILE"
    )
    id: str | None = _server(
        None, "Server name shown in the metadata.", word="NAME", shown="inferd"
    )
    workers: str = _server(
        "1",
        "Number of processes that together are the server; auto: one for each processor that it "
        "may use. A process that ends is started again, and the others go on meanwhile.",
        word="N|auto",
    )
    workers_hang_secs: int = _server(
        60,
        "With several processes: one whose event loop has not run for so long is ended and started "
        "again. Must be longer than any model runs there; 0: never.",
        **_SECONDS,
    )
    exit_timeout_secs: int = _server(
        30,
        "After SIGTERM the process ends within this time; requests not finished by then are cut "
        "off. 0: requests in flight are cut off at once.",
        is_raised=True,  # as in Triton
        **_SECONDS,
    )
    isolate_crashed: bool = _server(
        True,
        "Run a model version in a worker process from the next start on, if the server has crashed "
        "twice within an hour while it ran it. A model that says where it runs stays there.",
    )
    crash_record: str | None = _server(
        None,
        "Folder for the record of what runs in the server, from which the next start tells what "
        "ended this one; off: none.",
        word="FOLDER",
        shown="inferd in $XDG_RUNTIME_DIR, else in the folder for temporary files",
    )
    max_inflight_requests: int = _server(
        20000,
        "Limit on inferences under way, over all protocols; more are refused. Twice what one model "
        "may have waiting, so that one model alone cannot block the others.",
        **_COUNT,
    )
    max_inflight_bytes: int = _server(
        4294967296,
        "Limit on request data in memory, over all protocols; more is refused. Counts bodies, gRPC "
        "messages, and their inflated or parsed form.",
        **_COUNT,
    )
    drain_delay: float = _server(
        0.0,
        "After SIGTERM, accept new connections for this long while reporting not ready, so that "
        "load balancers can notice. Counts towards --exit-timeout-secs.",
        **_SECONDS,
    )
    drain_window: float = _server(
        1.0,
        "Then, for connections that clients keep: how long each may have no request before it is "
        "closed. A request that comes within this time is answered, and the answer says that the "
        "connection ends.",
        **_SECONDS,
    )
    api_key_file: str | None = _server(
        None,
        "HTTP and gRPC calls need an API key. The file has NAME:HASH lines, which inferd key "
        "writes; it is read again when it changes.",
    )
    api_key_for_health: bool = _server(
        False, "Health checks need an API key, too; by default they are open to all."
    )

    # HTTP

    allow_http: bool = _http(True, "Serve HTTP.")
    http_address: str | None = _http(
        None, "Address the HTTP port binds.", shown="127.0.0.1; 0.0.0.0 in a container"
    )
    http_port: int = _http(
        8000, "Port of HTTP; 0 lets the system choose.", also="MLSERVER_HTTP_PORT", **_PORT
    )
    http_health_port: int | None = _http(
        None,
        "Extra port for health checks only, without TLS; --http-port answers them, too.",
        **_PORT,
    )
    http_unix_socket: str | None = _http(None, "Serve HTTP on this Unix socket too.", word="PATH")
    http_use_ssl: bool = _http(False, "Serve HTTPS instead of HTTP.")
    http_server_cert: str | None = _http(None, "PEM file of the server's certificate chain.")
    http_server_key: str | None = _http(None, "PEM file of the server's private key.")
    http_use_ssl_mutual: bool = _http(
        False, "Clients must show a certificate signed by --http-root-cert. Implies --http-use-ssl."
    )
    http_root_cert: str | None = _http(
        None, "PEM file of the authorities that sign client certificates."
    )
    reuse_http_port: bool = _http(False, "Share the port with other processes (SO_REUSEPORT).")
    http_thread_count: int = _http(
        8,
        "Threads of Triton's HTTP server; here one event loop serves all connections.",
        **_COUNT,
        acted_on=False,
    )
    http_header_forward_pattern: str | None = _http(
        None,
        "Regular expression; headers whose names it matches somewhere become request parameters.",
    )
    http_restricted_api: tuple[str, ...] = _http(
        (),
        "APIS:HEADER=VALUE: only requests with this header may call these APIs. APIS is a list of "
        "health, metadata, inference, shared-memory, model-config, model-repository, statistics, "
        "trace and logging, separated by commas. May be repeated.",
    )

    http_cors_origin: tuple[str, ...] = _http(
        (),
        "Web pages of this origin, such as https://example.org, may call the server; * means all "
        "pages. May be repeated.",
        word="ORIGIN",
    )
    ui: str = _http(
        "read",
        "The dashboard at /ui. read: it shows the server. full: who opens the link that the server "
        "prints may also load and unload models, and change what is logged and traced. off: none.",
        choices=("off", "read", "full"),
    )
    ui_hosts: tuple[str, ...] = _http(
        (),
        "Names by which browsers may reach the dashboard, separated by commas, beside localhost, "
        "IP addresses, this machine's name and those of the certificate; *.example.org is any "
        "name below example.org. May be repeated.",
        word="NAMES",
    )

    # HTTP limits

    http_max_header_bytes: int = _http_limits(65536, "Largest request line and headers.", **_HEAD)
    http_max_body_bytes: int = _http_limits(2147483648, "Largest body of a request.", **_COUNT)
    http_max_input_size: int = _http_limits(
        67108864, "Largest JSON, raw or inflated body of a request.", word="BYTES", **_COUNT
    )
    http_max_connections: int = _http_limits(
        10000, "Most connections open at the same time.", **_COUNT
    )
    http_max_connection_age: int | None = _http_limits(
        None, "Close connections at this age.", shown="never", **_MILLISECONDS
    )
    http_max_connection_requests: int | None = _http_limits(
        None,
        "Close a connection after this many requests; from 100 on, up to a tenth earlier.",
        shown="no limit",
        **_COUNT,
    )
    http_idle_timeout_secs: float = _http_limits(
        300.0, "How long a connection may have no request.", **_TIMEOUT
    )
    http_header_timeout_secs: float = _http_limits(
        60.0, "Time from a request's first byte to its whole head.", **_TIMEOUT
    )
    http_body_timeout_secs: float = _http_limits(
        60.0,
        "How long a body may make no progress. A body that trickles in is ended, too.",
        **_TIMEOUT,
    )
    http_write_timeout_secs: float = _http_limits(
        60.0, "How long a client may pause reading its answer.", **_TIMEOUT
    )

    # gRPC

    allow_grpc: bool = _grpc(True, "Serve gRPC.")
    grpc_address: str | None = _grpc(
        None, "Address the gRPC port binds.", shown="127.0.0.1; 0.0.0.0 in a container"
    )
    grpc_port: int = _grpc(
        8001, "Port of gRPC; 0 lets the system choose.", also="MLSERVER_GRPC_PORT", **_PORT
    )
    grpc_unix_socket: str | None = _grpc(None, "Serve gRPC on this Unix socket too.", word="PATH")
    grpc_transport: str = _grpc(
        "own",
        "own: HTTP/2 on the server's own event loop. grpcio: the gRPC project's library, which "
        "takes several times the CPU.",
        choices=("own", "grpcio"),
    )
    grpc_use_ssl: bool = _grpc(False, "TLS for gRPC.")
    grpc_server_cert: str | None = _grpc(None, "PEM file of the server's certificate chain.")
    grpc_server_key: str | None = _grpc(None, "PEM file of the server's private key.")
    grpc_use_ssl_mutual: bool = _grpc(
        False, "Clients must show a certificate signed by --grpc-root-cert. Implies --grpc-use-ssl."
    )
    grpc_root_cert: str | None = _grpc(
        None, "PEM file of the authorities that sign client certificates."
    )
    grpc_infer_response_compression_level: str = _grpc(
        "none", "How hard answers are compressed.", choices=("none", "low", "medium", "high")
    )
    grpc_keepalive_time: int = _grpc(
        7200000, "Idle time after which the client is pinged.", **_MILLISECONDS
    )
    grpc_keepalive_timeout: int = _grpc(
        20000, "How long the answer to that ping may take.", **_MILLISECONDS
    )
    grpc_keepalive_permit_without_calls: bool = _grpc(False, "Ping even if no call is running.")
    grpc_http2_max_pings_without_data: int = _grpc(
        2, "How many pings to send without data between them; 0: no limit.", **_PINGS
    )
    grpc_http2_min_recv_ping_interval_without_data: int = _grpc(
        300000,
        "Least time between two pings of a client without data between them.",
        **_MILLISECONDS,
    )
    grpc_http2_max_ping_strikes: int = _grpc(
        2, "How many pings a client may send too early; 0: no limit.", **_PINGS
    )
    grpc_max_connection_age: int | None = _grpc(
        None, "Close connections at this age.", shown="never", **_MILLISECONDS
    )
    grpc_max_connection_age_grace: int | None = _grpc(
        None,
        "How long calls may go on after --grpc-max-connection-age.",
        shown="no limit",
        **_MILLISECONDS,
    )
    grpc_max_connection_idle: int | None = _grpc(
        None,
        "Close connections that have had no call for this long.",
        shown="never",
        **_MILLISECONDS,
    )
    grpc_max_message_bytes: int = _grpc(
        2147483647, "Largest message accepted from a client.", minimum=1, maximum=2147483647
    )
    grpc_max_inflated_bytes: int = _grpc(
        67108864,
        "Largest compressed message from a client, once inflated. With grpcio, the limit of all "
        "messages is --grpc-max-message-bytes, inflated or not.",
        **_COUNT,
    )
    grpc_max_metadata_bytes: int = _grpc(
        16384, "Largest metadata of a call from a client.", **_HEAD
    )
    grpc_max_connections: int = _grpc(10000, "Most connections open at the same time.", **_COUNT)
    grpc_max_concurrent_streams: int = _grpc(
        1000, "Most calls open at the same time on one connection.", maximum=_LONGEST, **_COUNT
    )
    grpc_handshake_timeout_secs: float = _grpc(
        20.0, "Time from a connection's start until it speaks HTTP/2.", **_TIMEOUT
    )
    grpc_message_timeout_secs: float = _grpc(
        60.0,
        "How long a message may make no progress. One that trickles in is ended, too.",
        **_TIMEOUT,
    )
    grpc_write_timeout_secs: float = _grpc(
        60.0, "How long a client may pause reading its answer.", **_TIMEOUT
    )
    reuse_grpc_port: bool = _grpc(False, "Share the port with other processes (SO_REUSEPORT).")
    grpc_header_forward_pattern: str | None = _grpc(
        None,
        "Regular expression; metadata whose keys it matches somewhere become request parameters.",
    )
    grpc_restricted_protocol: tuple[str, ...] = _grpc(
        (),
        "APIS:KEY=VALUE: like --http-restricted-api; the metadata is called "
        "triton-grpc-protocol-KEY. May be repeated.",
    )
    grpc_stream_infer_thread_count: int = _grpc(
        2, "Threads of the TensorRT Inference Server for gRPC streams.", **_COUNT, acted_on=False
    )
    grpc_infer_thread_count: int = _grpc(
        2, "Threads of Triton's gRPC server.", minimum=2, maximum=128, acted_on=False
    )
    grpc_infer_allocation_pool_size: int = _grpc(
        8, "Request objects that Triton keeps for reuse.", minimum=0, acted_on=False
    )
    grpc_max_response_pool_size: int = _grpc(
        2147483647, "Response objects that Triton keeps for reuse.", minimum=0, acted_on=False
    )

    # Protocol details: where the specifications leave a choice

    allow_trtis: bool = _details(
        True,
        "Serve the API of the TensorRT Inference Server, Triton's predecessor, on the same ports.",
    )

    api_version: int | None = _details(
        None,
        "API that the last TensorRT Inference Servers should serve, 1 or 2; here always both.",
        choices=(1, 2),
        acted_on=False,
    )
    allow_profiling: bool = _details(
        False,
        "Whether clients may use the TensorRT Inference Server's profiler, at /api/profile.",
        acted_on=False,
    )
    json_half_floats: str = _details(
        "accept",
        "FP16 and BF16 tensors in JSON: accept them as numbers, or refuse them.",
        choices=("accept", "refuse"),
    )
    json_non_finite: str = _details(
        "tokens",
        "NaN and infinities in JSON answers: the words NaN and Infinity (not strict JSON, but what "
        "Triton's clients read), null, or an error.",
        choices=("tokens", "null", "error"),
    )
    not_ready_status: int = _details(
        400,
        "HTTP status of failed readiness checks: Triton's 400, or KServe's 503.",
        choices=(400, 503),
    )
    grpc_typed_answers: bool = _details(
        False,
        "Answer gRPC requests that have typed contents in typed contents, not raw_output_contents.",
    )

    # Logging

    log_format: str = _logging(
        "default", "Text, text with UTC times, or one JSON object per line.", choices=LOG_FORMATS
    )
    log_file: str | None = _logging(None, "Append the log to this file.", shown="standard error")
    log_directory: str | None = _logging(
        None,
        "Folder in which clients may choose a log file, by name, while the server runs.",
        shown="clients may not",
    )
    log_verbose: int = _logging(
        0,
        "1 and above also logs details; the flag alone means 1.",
        minimum=0,
        maximum=2**32 - 1,  # gRPC's log settings carry it as uint32
        bare="1",
    )
    log_info: bool = _logging(True, "Log what happens.")
    log_warning: bool = _logging(True, "Log warnings.")
    log_error: bool = _logging(True, "Log errors.")
    payload_log: str | None = _logging(
        None,
        "Log what inferences contain: send it as CloudEvents to this URL, or append it to this "
        "file, as lines of JSON, or as a table if its name ends in .parquet.",
        word="URL|FILE",
        shown="none",
    )
    payload_log_config: tuple[str, ...] = _logging(
        (),
        "[MODEL,]SETTING=VALUE: which payloads are logged, and how. May be repeated.",
    )
    access_log: str | None = _logging(
        None,
        "Append a line for each request to this file; - means standard error.",
        word="FILE",
        shown="none",
    )
    access_log_format: str = _logging(
        "text",
        "Text, one JSON object per line, or the Common Log Format of web servers.",
        choices=ACCESS_LOG_FORMATS,
    )

    # Metrics and traces

    allow_metrics: bool = _observe(
        True, "Serve Prometheus metrics at /metrics, on a port of their own or on that of HTTP."
    )
    allow_gpu_metrics: bool = _observe(True, "Metrics of the GPUs.")
    allow_cpu_metrics: bool = _observe(True, "Metrics of the processors and the memory.")
    metrics_address: str | None = _observe(
        None, "Address the metrics port binds.", shown="that of HTTP"
    )
    metrics_port: int | None = _observe(
        None,
        "Port of the metrics. That of --http-port puts them on the HTTP port, with its TLS and API "
        "keys.",
        shown="8002; if --http-port or --grpc-port is 0, one that is free",
        also="MLSERVER_METRICS_PORT",
        **_PORT,
    )
    metrics_interval_ms: int = _observe(
        2000, "How often GPUs, processors and memory are measured.", **(_MILLISECONDS | _COUNT)
    )
    metrics_config: tuple[str, ...] = _observe(
        (), "SETTING=VALUE: which metrics to serve besides the counts. May be repeated."
    )
    trace_config: tuple[str, ...] = _observe(
        (),
        "[MODE,]SETTING=VALUE: which requests to trace, and where traces go. May be repeated.",
        old_flags={
            "trace-file": "triton,file={}",
            "trace-level": "level={}",
            "trace-rate": "rate={}",
            "trace-count": "count={}",
            "trace-log-frequency": "triton,log-frequency={}",
        },
    )

    trace_directory: str | None = _observe(
        None,
        "Folder in which clients may choose trace files, by name, while the server runs.",
        shown="clients may not",
    )

    # Backends, devices and caches

    backend_config: tuple[str, ...] = _backends(
        (),
        "[BACKEND,]SETTING=VALUE: a setting of one backend, or of all. May be repeated.",
        old_flags={
            "tf-allow-soft-placement": "tensorflow,allow-soft-placement={}",
            "tf-gpu-memory-fraction": "tensorflow,gpu-memory-fraction={}",
        },
    )
    tf_add_vgpu: tuple[str, ...] = _backends(
        (),
        "GPU;COUNT;MEGABYTES: virtual GPUs of the TensorRT Inference Server's TensorFlow.",
        acted_on=False,
    )
    backend_directory: str | None = _backends(
        None,
        "Folder of Python-based backends: NAME/model.py in it runs the models of backend NAME.",
    )
    repoagent_directory: str | None = _backends(
        None, "Folder of Triton's compiled repository agents.", acted_on=False
    )
    cache_config: tuple[str, ...] = _backends(
        (),
        "CACHE,SETTING=VALUE: the response cache, for models whose configuration has "
        "response_cache { enable: true }. local,size=BYTES keeps answers in memory; "
        "redis,host=HOST with redis,port=PORT keeps them in Redis. May be repeated.",
        old_flags={"response-cache-byte-size": "local,size={}"},
    )
    cache_directory: str | None = _backends(
        None, "Folder of Triton's compiled caches.", acted_on=False
    )
    # Not set: clients on the same machine may, clients over the network may not.
    allow_client_shm: bool | None = _backends(
        None,
        "Clients may register shared memory, which the server reads and writes as its own user.",
        shown="only when all ports bind this machine alone",
    )
    rate_limit: str = _backends(
        "off",
        "execution_count: hold back executions whose resources are in use.",
        choices=("off", "execution_count"),
    )
    rate_limit_resource: tuple[str, ...] = _backends(
        (), "NAME:COUNT[:DEVICE]: amount of a resource for --rate-limit. May be repeated."
    )
    host_policy: tuple[str, ...] = _backends(
        (),
        "POLICY,SETTING=VALUE: which processors instances run on. POLICY is the host_policy of an "
        "instance_group, otherwise cpu, model or gpu_0 and so on. SETTING is numa-node or "
        "cpu-cores. May be repeated.",
    )
    buffer_manager_thread_count: int = _backends(
        0, "Threads that copy tensors.", minimum=0, acted_on=False
    )
    pinned_memory_pool_byte_size: int = _backends(
        268435456, "Pinned memory for copies to GPUs.", word="BYTES", minimum=0, acted_on=False
    )
    cuda_memory_pool_byte_size: tuple[str, ...] = _backends(
        (), "GPU:BYTES: memory reserved for tensors. May be repeated.", acted_on=False
    )
    cuda_virtual_address_size: tuple[str, ...] = _backends(
        (), "GPU:BYTES: address space for growing tensors. May be repeated.", acted_on=False
    )
    min_supported_compute_capability: float | None = _backends(
        None, "GPUs below this are not used.", acted_on=False
    )
    enable_peer_access: bool = _backends(True, "GPUs may copy to each other.", acted_on=False)
    model_load_gpu_limit: tuple[str, ...] = _backends(
        (),
        "DEVICE:FRACTION: no model is loaded onto this GPU while more of its memory is in use. "
        "May be repeated.",
    )

    # Cloud platforms

    allow_sagemaker: bool = _cloud(False, "Serve SageMaker's /ping and /invocations.")
    sagemaker_address: str | None = _cloud(
        None, "Address SageMaker's port binds.", shown="that of HTTP"
    )
    sagemaker_port: int = _cloud(
        8080, "Port of SageMaker's calls.", also="SAGEMAKER_BIND_TO_PORT", **_PORT
    )
    sagemaker_safe_port_range: str | None = _cloud(
        None,
        "LOW-HIGH: all ports of the server must be in this range.",
        also="SAGEMAKER_SAFE_PORT_RANGE",
    )
    sagemaker_default_model: str | None = _cloud(
        None,
        "Model that /invocations calls.",
        shown="the only model",
        also="SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
    )
    sagemaker_inference_type: str = _cloud(
        "infer",
        "What /invocations does: V2 inference, or a call of the generate extension.",
        choices=("infer", "generate", "generate_stream"),
        also="SAGEMAKER_TRITON_INFERENCE_TYPE",
    )
    sagemaker_multi_model: bool = _cloud(
        False,
        "SageMaker decides which models are loaded; --model-control-mode is then explicit.",
        also="SAGEMAKER_MULTI_MODEL",
    )
    sagemaker_thread_count: int = _cloud(
        8, "Threads of SageMaker's calls.", **_COUNT, acted_on=False
    )
    # Vertex AI sets AIP_MODE=PREDICTION; see vertex_ai_defaults in config/sources.py.
    allow_vertex_ai: bool = _cloud(
        False,
        "Serve Vertex AI's calls. AIP_MODE=PREDICTION sets this; HTTP and gRPC are then off unless "
        "you ask for them.",
    )
    vertex_ai_address: str | None = _cloud(
        None,
        "Address Vertex AI's port binds.",
        shown="that of HTTP; 0.0.0.0 with AIP_MODE=PREDICTION",
    )
    vertex_ai_port: int = _cloud(8080, "Port of Vertex AI's calls.", also="AIP_HTTP_PORT", **_PORT)
    vertex_ai_health_route: str = _cloud(
        "/health", "Path of Vertex AI's health checks.", word="PATH", also="AIP_HEALTH_ROUTE"
    )
    vertex_ai_predict_route: str = _cloud(
        "/predict", "Path of Vertex AI's predictions.", word="PATH", also="AIP_PREDICT_ROUTE"
    )
    vertex_ai_default_model: str | None = _cloud(
        None, "Model that Vertex AI's calls use if they name none.", shown="the only model"
    )
    vertex_ai_thread_count: int = _cloud(
        8, "Threads of Vertex AI's calls.", **_COUNT, acted_on=False
    )
