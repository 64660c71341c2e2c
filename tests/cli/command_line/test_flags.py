import pytest

from inferd.cli.command_line.flags import read_command_line
from inferd.config.options.option import options_of
from inferd.config.server import ServerConfig
from inferd.config.sources import read_settings
from inferd.errors import InvalidConfig

# Every flag tritonserver documents, with its default there and a value it may have.
TRITON_FLAGS = [
    ("--id", "id", "triton", "triton"),
    ("--exit-timeout-secs", "exit_timeout_secs", "60", 60),
    ("--exit-timeout-secs", "exit_timeout_secs", "0", 0),
    ("--log-verbose", "log_verbose", "2", 2),
    ("--log-info", "log_info", "false", False),
    ("--log-warning", "log_warning", "off", False),
    ("--log-error", "log_error", "0", False),
    ("--log-format", "log_format", "ISO8601", "ISO8601"),
    ("--log-file", "log_file", "/tmp/log", "/tmp/log"),
    ("--model-repository", "model_repository", "/models", ("/models",)),
    ("--model-store", "model_repository", "/models", ("/models",)),
    ("--exit-on-error", "exit_on_error", "TRUE", True),
    ("--disable-auto-complete-config", "disable_auto_complete_config", "true", True),
    ("--strict-readiness", "strict_readiness", "false", False),
    ("--model-control-mode", "model_control_mode", "explicit", "explicit"),
    ("--repository-poll-secs", "repository_poll_secs", "5", 5),
    ("--load-model", "load_model", "*", ("*",)),
    ("--model-config-name", "model_config_name", "h100", "h100"),
    ("--model-load-thread-count", "model_load_thread_count", "8", 8),
    ("--model-load-retry-count", "model_load_retry_count", "1", 1),
    ("--model-namespacing", "model_namespacing", "true", True),
    ("--enable-peer-access", "enable_peer_access", "false", False),
    ("--allow-http", "allow_http", "false", False),
    ("--http-address", "http_address", "::1", "::1"),
    ("--http-port", "http_port", "8080", 8080),
    ("--reuse-http-port", "reuse_http_port", "1", True),
    ("--http-header-forward-pattern", "http_header_forward_pattern", "x-.*", "x-.*"),
    ("--http-thread-count", "http_thread_count", "4", 4),
    ("--http-max-input-size", "http_max_input_size", "1024", 1024),
    ("--http-restricted-api", "http_restricted_api", "health:k=v", ("health:k=v",)),
    ("--allow-grpc", "allow_grpc", "false", False),
    ("--grpc-address", "grpc_address", "0.0.0.0", "0.0.0.0"),
    ("--grpc-port", "grpc_port", "9000", 9000),
    ("--reuse-grpc-port", "reuse_grpc_port", "true", True),
    ("--grpc-header-forward-pattern", "grpc_header_forward_pattern", "x-.*", "x-.*"),
    ("--grpc-infer-thread-count", "grpc_infer_thread_count", "3", 3),
    ("--grpc-infer-allocation-pool-size", "grpc_infer_allocation_pool_size", "16", 16),
    ("--grpc-max-response-pool-size", "grpc_max_response_pool_size", "100", 100),
    ("--grpc-use-ssl", "grpc_use_ssl", "true", True),
    ("--grpc-use-ssl-mutual", "grpc_use_ssl_mutual", "true", True),
    ("--grpc-server-cert", "grpc_server_cert", "cert.pem", "cert.pem"),
    ("--grpc-server-key", "grpc_server_key", "key.pem", "key.pem"),
    ("--grpc-root-cert", "grpc_root_cert", "root.pem", "root.pem"),
    (
        "--grpc-infer-response-compression-level",
        "grpc_infer_response_compression_level",
        "high",
        "high",
    ),
    ("--grpc-keepalive-time", "grpc_keepalive_time", "10000", 10000),
    ("--grpc-keepalive-timeout", "grpc_keepalive_timeout", "10000", 10000),
    (
        "--grpc-keepalive-permit-without-calls",
        "grpc_keepalive_permit_without_calls",
        "true",
        True,
    ),
    ("--grpc-http2-max-pings-without-data", "grpc_http2_max_pings_without_data", "0", 0),
    (
        "--grpc-http2-min-recv-ping-interval-without-data",
        "grpc_http2_min_recv_ping_interval_without_data",
        "1000",
        1000,
    ),
    ("--grpc-http2-max-ping-strikes", "grpc_http2_max_ping_strikes", "0", 0),
    ("--grpc-max-connection-age", "grpc_max_connection_age", "1000", 1000),
    ("--grpc-max-connection-age-grace", "grpc_max_connection_age_grace", "1000", 1000),
    ("--grpc-restricted-protocol", "grpc_restricted_protocol", "health:k=v", ("health:k=v",)),
    ("--allow-metrics", "allow_metrics", "false", False),
    ("--allow-gpu-metrics", "allow_gpu_metrics", "false", False),
    ("--allow-cpu-metrics", "allow_cpu_metrics", "false", False),
    ("--metrics-address", "metrics_address", "0.0.0.0", "0.0.0.0"),
    ("--metrics-port", "metrics_port", "9002", 9002),
    ("--metrics-interval-ms", "metrics_interval_ms", "500", 500),
    ("--metrics-config", "metrics_config", "summary_latencies=true", ("summary_latencies=true",)),
    ("--trace-config", "trace_config", "rate=100", ("rate=100",)),
    ("--backend-directory", "backend_directory", "/backends", "/backends"),
    ("--confine-workers", "confine_workers", "on", True),
    ("--worker-writable", "worker_writable", "/cache", ("/cache",)),
    (
        "--backend-config",
        "backend_config",
        "onnxruntime,default-max-batch-size=4",
        ("onnxruntime,default-max-batch-size=4",),
    ),
    ("--repoagent-directory", "repoagent_directory", "/agents", "/agents"),
    ("--cache-config", "cache_config", "local,size=1048576", ("local,size=1048576",)),
    ("--cache-directory", "cache_directory", "/caches", "/caches"),
    ("--rate-limit", "rate_limit", "execution_count", "execution_count"),
    ("--rate-limit-resource", "rate_limit_resource", "R1:4:0", ("R1:4:0",)),
    ("--pinned-memory-pool-byte-size", "pinned_memory_pool_byte_size", "0", 0),
    ("--cuda-memory-pool-byte-size", "cuda_memory_pool_byte_size", "0:67108864", ("0:67108864",)),
    ("--cuda-virtual-address-size", "cuda_virtual_address_size", "0:1024", ("0:1024",)),
    ("--min-supported-compute-capability", "min_supported_compute_capability", "7.5", 7.5),
    ("--buffer-manager-thread-count", "buffer_manager_thread_count", "2", 2),
    ("--host-policy", "host_policy", "gpu_0,numa-node=0", ("gpu_0,numa-node=0",)),
    ("--model-load-gpu-limit", "model_load_gpu_limit", "0:0.5", ("0:0.5",)),
    ("--allow-client-shm", "allow_client_shm", "true", True),
    ("--allow-sagemaker", "allow_sagemaker", "true", True),
    ("--sagemaker-port", "sagemaker_port", "8081", 8081),
    ("--sagemaker-safe-port-range", "sagemaker_safe_port_range", "8000-8100", "8000-8100"),
    ("--sagemaker-thread-count", "sagemaker_thread_count", "4", 4),
    ("--allow-vertex-ai", "allow_vertex_ai", "true", True),
    ("--vertex-ai-port", "vertex_ai_port", "8081", 8081),
    ("--vertex-ai-thread-count", "vertex_ai_thread_count", "4", 4),
    ("--vertex-ai-default-model", "vertex_ai_default_model", "m", "m"),
    ("--strict-model-config", "disable_auto_complete_config", "true", True),
    ("--response-cache-byte-size", "cache_config", "1024", ("local,size=1024",)),
    ("--trace-file", "trace_config", "t.json", ("triton,file=t.json",)),
    ("--trace-level", "trace_config", "TIMESTAMPS", ("level=TIMESTAMPS",)),
    ("--trace-rate", "trace_config", "100", ("rate=100",)),
    ("--trace-count", "trace_config", "-1", ("count=-1",)),
    ("--trace-log-frequency", "trace_config", "50", ("triton,log-frequency=50",)),
    # Those that only the TensorRT Inference Server had.
    ("--http-health-port", "http_health_port", "8005", 8005),
    ("--grpc-stream-infer-thread-count", "grpc_stream_infer_thread_count", "4", 4),
    ("--allow-profiling", "allow_profiling", "true", True),
    (
        "--tf-allow-soft-placement",
        "backend_config",
        "false",
        ("tensorflow,allow-soft-placement=false",),
    ),
    ("--tf-gpu-memory-fraction", "backend_config", "0.5", ("tensorflow,gpu-memory-fraction=0.5",)),
    ("--tf-add-vgpu", "tf_add_vgpu", "0;2;1024", ("0;2;1024",)),
]

TRITON_DEFAULTS = {
    "exit_timeout_secs": 30,
    "log_verbose": 0,
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_format": "default",
    "disable_auto_complete_config": False,
    "strict_readiness": True,
    "model_control_mode": "none",
    "repository_poll_secs": 15,
    "model_load_thread_count": 4,
    "model_load_retry_count": 0,
    "model_namespacing": False,
    "enable_peer_access": True,
    "allow_http": True,
    "http_port": 8000,
    "reuse_http_port": False,
    "http_thread_count": 8,
    "http_max_input_size": 67108864,
    "allow_grpc": True,
    "grpc_port": 8001,
    "reuse_grpc_port": False,
    "grpc_infer_thread_count": 2,
    "grpc_infer_allocation_pool_size": 8,
    "grpc_max_response_pool_size": 2147483647,
    "grpc_use_ssl": False,
    "grpc_use_ssl_mutual": False,
    "grpc_infer_response_compression_level": "none",
    "grpc_keepalive_time": 7200000,
    "grpc_keepalive_timeout": 20000,
    "grpc_keepalive_permit_without_calls": False,
    "grpc_http2_max_pings_without_data": 2,
    "grpc_http2_min_recv_ping_interval_without_data": 300000,
    "grpc_http2_max_ping_strikes": 2,
    "allow_metrics": True,
    "allow_gpu_metrics": True,
    "allow_cpu_metrics": True,
    "metrics_interval_ms": 2000,
    "rate_limit": "off",
    "pinned_memory_pool_byte_size": 268435456,
    "buffer_manager_thread_count": 0,
    "allow_sagemaker": False,
    "sagemaker_port": 8080,
    "sagemaker_thread_count": 8,
    "allow_vertex_ai": False,
    "vertex_ai_port": 8080,
    "vertex_ai_thread_count": 8,
}


def values(arguments):
    """What `arguments` set, by name; lists as tuples."""
    options = options_of(ServerConfig)
    found = {}
    for given in read_command_line(arguments).flags:
        value = options[given.name].read_text(given.text, given.spelling)
        if options[given.name].kind is tuple:
            value = (*found.get(given.name, ()), value)
        found[given.name] = value
    return found


@pytest.mark.parametrize(("flag", "name", "text", "value"), TRITON_FLAGS)
def test_every_flag_of_triton_is_read_in_both_syntaxes(flag, name, text, value):
    assert values([flag, text, "models"]) == (
        {name: (*value, "models")}
        if name == "model_repository"
        else {name: value, "model_repository": ("models",)}
    )
    assert values([f"{flag}={text}"]) == {name: value}


def test_defaults_are_those_of_triton():
    config = ServerConfig()
    assert {name: getattr(config, name) for name in TRITON_DEFAULTS} == TRITON_DEFAULTS


def test_models_that_fail_do_not_end_the_server_by_default():
    assert ServerConfig().exit_on_error is None


@pytest.mark.parametrize(
    "option",
    [each for each in options_of(ServerConfig).values() if each.kind is bool],
    ids=lambda option: option.flag,
)
def test_a_bare_boolean_is_true_and_leaves_a_path_alone(option):
    assert values([option.flag]) == {option.name: True}
    assert values([option.flag, "models/"]) == {
        option.name: True,
        "model_repository": ("models/",),
    }
    assert values([option.flag, "--http-port=1"])[option.name] is True


def test_the_bare_verbose_flag_means_1():
    assert values(["--log-verbose", "models"]) == {
        "log_verbose": 1,
        "model_repository": ("models",),
    }
    assert values(["--log-verbose=true"]) == {"log_verbose": 1}


def test_paths_and_repository_flags_make_one_list_in_their_order():
    assert values(["a", "--model-store=b", "c", "--model-repository", "d"]) == {
        "model_repository": ("a", "b", "c", "d")
    }


def test_after_two_dashes_everything_is_a_path():
    assert values(["--exit-on-error", "--", "--odd-name", "b"]) == {
        "exit_on_error": True,
        "model_repository": ("--odd-name", "b"),
    }


def test_the_command_line_of_a_triton_container_works():
    line = "--model-store=/mnt/models --grpc-port=9000 --http-port=8080 --allow-grpc=true"
    settings = read_settings(read_command_line([*line.split(), "--allow-http=true"]).flags, {})
    assert settings.config == ServerConfig(
        model_repository=("/mnt/models",), grpc_port=9000, http_port=8080
    )
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--http-prot=1"], "there is no option --http-prot, did you mean --http-port?"),
        (["--qqq"], "there is no option --qqq"),
        (["-p", "8000"], "there is no option -p"),
        (["--http-port"], "--http-port needs a value: --http-port PORT"),
        (["--id", "--http-port=1"], "--id needs a value: --id NAME"),
    ],
)
def test_what_cannot_be_read_is_refused(arguments, complaint):
    with pytest.raises(InvalidConfig) as caught:
        read_command_line(arguments)
    assert caught.value.message == complaint


def test_deprecated_flags_say_what_to_use():
    line = read_command_line(["--trace-rate=10", "--strict-model-config", "--model-store=m"])
    assert line.warnings == [
        "--trace-rate is deprecated, use --trace-config=rate=10",
        "--strict-model-config is deprecated, use --disable-auto-complete-config=true",
    ]


@pytest.mark.parametrize(
    ("arguments", "mode"),
    [
        (["--allow-poll-model-repository"], "poll"),
        (["--allow-poll-model-repository=true"], "poll"),
        (["--allow-poll-model-repository", "on"], "poll"),
        (["--allow-poll-model-repository=false"], "none"),
        (["--allow-model-control", "models"], "explicit"),
        (["--allow-model-control=1", "--allow-poll-model-repository=false"], "explicit"),
        (["--allow-model-control=false", "--allow-poll-model-repository=true"], "poll"),
    ],
)
def test_the_switches_of_trtis_say_the_control_mode(arguments, mode):
    line = read_command_line(arguments)
    assert read_settings(line.flags, {}).config.model_control_mode == mode
    assert line.warnings[0].startswith(f"{arguments[0].partition('=')[0]} is deprecated, ")


def test_the_advice_for_an_old_switch_that_is_false_does_not_turn_it_on():
    line = read_command_line(["--allow-poll-model-repository=false", "--allow-model-control=true"])
    assert line.warnings == [
        "--allow-poll-model-repository is deprecated, leave it out where it is false",
        "--allow-model-control is deprecated, use --model-control-mode=explicit",
    ]


def test_a_switch_of_trtis_is_true_or_false():
    with pytest.raises(InvalidConfig, match=r"^--allow-model-control: 'yes' is not true or false"):
        read_command_line(["--allow-model-control=yes"])


def test_both_versions_of_the_api_may_be_requested():
    settings = read_settings(read_command_line(["--api-version=2"]).flags, {})
    assert settings.warnings == ("accepted, but without effect in this version: --api-version",)
    with pytest.raises(InvalidConfig, match=r"^--api-version: 3 is none of 1, 2$"):
        read_settings(read_command_line(["--api-version", "3"]).flags, {})


@pytest.mark.parametrize(
    ("begun", "name", "value"),
    [
        ("--model-repo=m", "model_repository", ("m",)),  # and --model-repository-links
        ("--model-s=m", "model_repository", ("m",)),
        ("--model-control=explicit", "model_control_mode", "explicit"),
        ("--strict-model=true", "disable_auto_complete_config", True),
        ("--log-verb=1", "log_verbose", 1),
        ("--exit-timeout=5", "exit_timeout_secs", 5),
        ("--allow-poll=true", "model_control_mode", "poll"),
        ("--tf-gpu=0.5", "backend_config", ("tensorflow,gpu-memory-fraction=0.5",)),
    ],
)
def test_the_beginning_of_a_flag_that_no_other_has_is_enough(begun, name, value):
    assert values([begun]) == {name: value}
    assert values(begun.split("=")) == {name: value}


def test_underscores_may_take_the_place_of_hyphens():
    """As KServe starts its own servers."""
    line = ["--model_name=iris", "--model_dir=/mnt/models", "--http_port=8080", "--grpc_p", "9000"]
    assert values(line) == {
        "model_name": "iris",
        "model_repository": ("/mnt/models",),
        "http_port": 8080,
        "grpc_port": 9000,
    }
    assert values(["--id=a_b", "--model_repository", "my_models"]) == {
        "id": "a_b",
        "model_repository": ("my_models",),
    }
    assert values(["--model-namespacing"]) == {"model_namespacing": True}


def test_a_deprecated_flag_is_named_whole_by_its_beginning():
    line = read_command_line(["--strict-model=true"])
    assert line.warnings == [
        "--strict-model-config is deprecated, use --disable-auto-complete-config=true"
    ]


def test_a_beginning_of_several_flags_names_them():
    with pytest.raises(InvalidConfig) as caught:
        read_command_line(["--http-thre=1", "--metrics-p=1", "--log-f=x"])
    assert caught.value.message == "--log-f may be --log-file, --log-format: write more of it"
    with pytest.raises(InvalidConfig, match=r"^--grpc may be --grpc-address, .* and \d+ more: "):
        read_command_line(["--grpc"])


@pytest.mark.parametrize("argument", ["-log-file", "--http-port8", "---", "--="])
def test_what_begins_no_flag_is_none(argument):
    with pytest.raises(InvalidConfig, match=f"^there is no option {argument.rstrip('=')}"):
        read_command_line([argument, "1"])


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--model-control-mode=POLL"], "model_control_mode", "poll"),
        (["--log-format=iso8601"], "log_format", "ISO8601"),
        (["--rate-limit=Execution_Count"], "rate_limit", "execution_count"),
    ],
)
def test_choices_are_known_in_any_case(arguments, name, value):
    assert values(arguments) == {name: value}


def test_the_command_line_of_a_trtis_container_works():
    line = (
        "--model-store=/models --http-port=8000 --http-health-port=8000 --grpc-port=8001 "
        "--metrics-port=8002 --allow-metrics=1 --allow-profiling=True --strict-model-config=False "
        "--exit-on-error=false --allow-poll-model-repository=1 --repository-poll-secs=60 "
        "--tf-allow-soft-placement=true --tf-gpu-memory-fraction=0.25 --exit-timeout-secs=10"
    )
    read = read_command_line(line.split())
    assert read_settings(read.flags, {}).config == ServerConfig(
        exit_on_error=False,
        model_repository=("/models",),
        http_health_port=8000,
        metrics_port=8002,
        allow_profiling=True,
        model_control_mode="poll",
        repository_poll_secs=60,
        backend_config=(
            "tensorflow,allow-soft-placement=true",
            "tensorflow,gpu-memory-fraction=0.25",
        ),
        exit_timeout_secs=10,
    )


@pytest.mark.parametrize("strict", ["true", "false"])
@pytest.mark.parametrize("disable", ["true", "false"])
def test_a_deprecated_flag_yields_to_the_new_one(strict, disable):
    flags = [f"--strict-model-config={strict}", f"--disable-auto-complete-config={disable}"]
    for arguments in (flags, flags[::-1]):
        config = read_settings(read_command_line(arguments).flags, {}).config
        assert config.disable_auto_complete_config is (disable == "true")


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--exit-timeout-secs=-1"], "exit_timeout_secs", 0),
        (["--model-load-thread-count", "0"], "model_load_thread_count", 1),
    ],
)
def test_numbers_that_triton_raises_to_the_least_are_raised(arguments, name, value):
    assert values(arguments) == {name: value}


@pytest.mark.parametrize("text", ["1", "129"])
def test_threads_of_grpc_are_as_many_as_triton_may_have(text):
    with pytest.raises(InvalidConfig, match=r"^--grpc-infer-thread-count: "):
        values(["--grpc-infer-thread-count", text])


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--he"], ["--id", "1", "m", "--help"]])
def test_help_may_stand_anywhere(arguments):
    assert read_command_line(arguments).wants_help
