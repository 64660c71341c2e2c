import json
from dataclasses import fields
from pathlib import Path

import pytest
from changed import change

from inferd.config.options.backends import NO_DELAY, DelayedStart, HostPolicy
from inferd.config.options.cache import LocalCacheSettings
from inferd.config.options.log import LogSettings
from inferd.config.options.option import options_of
from inferd.config.options.trace import TraceChange, TraceSettings
from inferd.config.ports import metrics_port
from inferd.config.server import ServerConfig
from inferd.core.processes import Processes
from inferd.errors import InvalidConfig
from inferd.server.crashes import Crashes
from inferd.server.log import server_log
from inferd.server.options import grpc_options, http_options, load_options, payload_log, tracer
from inferd.wire.v2.settings import encode_trace_settings

HTTP = {
    "http_max_header_bytes": ("max_header_bytes", 1),
    "http_max_body_bytes": ("max_body_bytes", 2),
    "http_max_input_size": ("max_input_bytes", 3),
    "http_max_connections": ("max_connections", 5),
    "http_idle_timeout_secs": ("idle_timeout_s", 6.5),
    "http_header_timeout_secs": ("header_timeout_s", 7.5),
    "http_body_timeout_secs": ("body_timeout_s", 8.5),
    "http_write_timeout_secs": ("write_timeout_s", 9.5),
    "http_max_connection_age": ("max_connection_age_ms", 7),
    "http_max_connection_requests": ("max_connection_requests", 8),
    "drain_window": ("drain_window_s", 2.5),
    "json_non_finite": ("non_finite", "null"),
    "not_ready_status": ("not_ready_status", 503),
    "http_header_forward_pattern": ("header_forward_pattern", "x-"),
    "http_cors_origin": ("cors_origins", frozenset(("https://a",))),
    "reuse_http_port": ("reuse_port", True),
}

GRPC = {
    "grpc_typed_answers": ("typed_answers", True),
    "reuse_grpc_port": ("reuse_port", True),
    "grpc_max_message_bytes": ("max_message_bytes", 1),
    "grpc_infer_response_compression_level": ("compression_level", "high"),
    "grpc_keepalive_time": ("keepalive_time_ms", 2),
    "grpc_keepalive_timeout": ("keepalive_timeout_ms", 3),
    "grpc_keepalive_permit_without_calls": ("keepalive_permit_without_calls", True),
    "grpc_http2_max_pings_without_data": ("http2_max_pings_without_data", 4),
    "grpc_http2_min_recv_ping_interval_without_data": (
        "http2_min_recv_ping_interval_without_data_ms",
        5,
    ),
    "grpc_http2_max_ping_strikes": ("http2_max_ping_strikes", 6),
    "grpc_max_connection_age": ("max_connection_age_ms", 7),
    "grpc_max_connection_age_grace": ("max_connection_age_grace_ms", 8),
    "grpc_use_ssl": ("use_ssl", True),
    "grpc_use_ssl_mutual": ("use_ssl_mutual", True),
    "grpc_server_cert": ("server_cert", "c"),
    "grpc_server_key": ("server_key", "k"),
    "grpc_root_cert": ("root_cert", "r"),
    "grpc_max_connections": ("max_connections", 9),
    "grpc_max_concurrent_streams": ("max_concurrent_streams", 10),
    "grpc_max_metadata_bytes": ("max_metadata_bytes", 11),
    "grpc_max_inflated_bytes": ("max_inflated_bytes", 14),
    "grpc_message_timeout_secs": ("message_timeout_s", 3.5),
    "grpc_write_timeout_secs": ("write_timeout_s", 1.5),
    "grpc_handshake_timeout_secs": ("handshake_timeout_s", 2.5),
    "grpc_header_forward_pattern": ("header_forward_pattern", "x-"),
    "drain_window": ("drain_window_s", 2.5),
    "grpc_max_connection_idle": ("max_connection_idle_ms", 13),
}

LOAD = {
    "model_name": ("model_name", "resnet"),
    "model_config_name": ("model_config_name", "h100"),
    "disable_auto_complete_config": ("disable_auto_complete_config", True),
    "model_load_thread_count": ("model_load_thread_count", 9),
    "model_load_retry_count": ("model_load_retry_count", 10),
    "model_load_timeout_secs": ("model_load_timeout_secs", 11.5),
    "model_unload_timeout_secs": ("model_unload_timeout_secs", 12.5),
    "model_upload_max_bytes": ("model_upload_max_bytes", 13),
    "model_repository_links": ("model_repository_links", "any"),
    "model_control_mode": ("model_control_mode", "explicit"),
    "load_model": ("load_model", ("m", "n")),
    "repository_poll_secs": ("repository_poll_secs", 0.5),
    "allow_empty": ("allow_empty", True),
    "backend_config": ("backend_config", ("python,a=b",)),
    "backend_directory": ("backend_directory", "/backends"),
}


@pytest.mark.parametrize(
    ("build", "table"), [(http_options, HTTP), (grpc_options, GRPC), (load_options, LOAD)]
)
def test_each_option_reaches_the_part_it_is_for_and_no_other(build, table):
    default = build(ServerConfig())
    for name, (field, value) in table.items():
        built = build(ServerConfig(**{name: value}))
        changed = {f for f in default.__struct_fields__ if getattr(built, f) != getattr(default, f)}
        assert changed == {field}
        assert getattr(built, field) == value


def test_what_is_known_of_crashes_reaches_the_loads():
    crashes = Crashes()
    crashes.isolated = frozenset({("m", "1")})
    options = load_options(ServerConfig(), crashes)
    assert (options.marks, options.isolated) == (crashes.marks, crashes.isolated)


def test_half_floats_in_json_are_accepted_unless_refused():
    assert http_options(ServerConfig()).half_floats_in_json is True
    assert http_options(ServerConfig(json_half_floats="refuse")).half_floats_in_json is False


def test_the_log_options_are_the_log_settings():
    config = ServerConfig(
        log_format="json",
        log_file="/l",
        log_verbose=2,
        log_info=False,
        log_warning=False,
        log_error=False,
    )
    assert server_log(config).settings == LogSettings("json", Path("/l"), 2, False, False, False)
    assert server_log(ServerConfig()).settings == LogSettings()


def test_what_is_traced_is_what_the_options_say():
    config = ServerConfig(
        trace_config=("rate=7", "level=TENSORS", "triton,file=/t"), trace_directory="/d"
    )
    found = tracer(config)
    assert found.settings() == TraceSettings(levels=("TENSORS",), rate=7, file=Path("/t"))
    change(found, TraceChange(file="x"))
    assert found.settings().file == Path("/d/x")
    assert not tracer(ServerConfig()).is_on
    url = "opentelemetry,url=http://there/v1/traces"
    spans = tracer(ServerConfig(trace_config=("mode=opentelemetry", "level=TIMESTAMPS", url)))
    assert spans.settings("m").collector.url == "http://there/v1/traces"
    assert spans.is_on
    assert spans.follows_clients


def test_the_collector_of_the_environment_is_reported(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:word@there:4318")
    spans = tracer(ServerConfig(trace_config=("mode=opentelemetry",)))
    reported = json.loads(encode_trace_settings(spans.settings()))
    assert reported["url"] == "http://there:4318/v1/traces"
    assert reported["bsp_schedule_delay"] == "5000"


def test_clients_may_put_the_log_where_the_options_say():
    assert server_log(ServerConfig(log_directory="/l"))._folder.path == Path("/l")
    assert server_log(ServerConfig())._folder.path is None


def test_every_option_acted_on_is_mapped_or_used_by_the_server_itself():
    own = {
        "model_repository",
        "require_signatures",
        "fetch_directory",
        "fetch_max_bytes",
        "offline",
        "exit_on_error",
        "workers",
        "workers_hang_secs",
        "strict_readiness",
        "config",
        "id",
        "exit_timeout_secs",
        "drain_delay",
        "max_inflight_requests",
        "max_inflight_bytes",
        "api_key_file",
        "api_key_for_health",
        "allow_http",
        "http_address",
        "http_port",
        "http_unix_socket",
        "http_use_ssl",
        "http_server_cert",
        "http_server_key",
        "http_use_ssl_mutual",
        "http_root_cert",
        "http_restricted_api",
        "allow_grpc",
        "grpc_address",
        "grpc_port",
        "grpc_unix_socket",
        "grpc_transport",
        "grpc_restricted_protocol",
        "isolate_crashed",
        "crash_record",
        "json_half_floats",
        "allow_client_shm",
        "allow_trtis",
        "log_format",
        "log_file",
        "log_directory",
        "trace_config",
        "trace_directory",
        "log_verbose",
        "log_info",
        "log_warning",
        "log_error",
        "allow_sagemaker",
        "sagemaker_address",
        "sagemaker_port",
        "sagemaker_safe_port_range",
        "sagemaker_default_model",
        "sagemaker_inference_type",
        "sagemaker_multi_model",
        "allow_vertex_ai",
        "vertex_ai_address",
        "vertex_ai_port",
        "vertex_ai_health_route",
        "vertex_ai_predict_route",
        "vertex_ai_default_model",
        "http_health_port",
        "allow_metrics",
        "allow_cpu_metrics",
        "allow_gpu_metrics",
        "metrics_address",
        "metrics_port",
        "metrics_interval_ms",
        "metrics_config",
        "rate_limit",
        "rate_limit_resource",
        "model_load_gpu_limit",
        "cache_config",
        "host_policy",
        "confine_workers",
        "worker_writable",
        "access_log",
        "access_log_format",
        "payload_log",
        "payload_log_config",
        "ui",
        "ui_hosts",
    }
    acted_on = {each.name for each in options_of(ServerConfig).values() if each.acted_on}
    assert acted_on == own | set(HTTP) | set(GRPC) | set(LOAD)
    assert acted_on <= {each.name for each in fields(ServerConfig)}


@pytest.mark.parametrize(
    ("given", "port"),
    [
        ({}, 8002),
        ({"http_port": 9000, "grpc_port": 9001}, 8002),
        ({"http_port": 0}, 0),
        ({"grpc_port": 0}, 0),
        ({"http_port": 0, "metrics_port": 9002}, 9002),
        ({"metrics_port": 0}, 0),
    ],
)
def test_the_metrics_port_is_fixed_where_the_others_are(given, port):
    assert metrics_port(ServerConfig(**given)) == port


def test_summaries_are_a_matter_of_loading():
    config = ServerConfig(metrics_config=("summary_latencies=true",))
    assert load_options(config).summary_latencies is True


def test_a_cache_is_a_matter_of_loading():
    assert load_options(ServerConfig()).cache is None
    built = load_options(ServerConfig(cache_config=("local,size=7",)))
    assert built.cache == LocalCacheSettings(7)


def test_host_policies_are_a_matter_of_loading():
    built = load_options(ServerConfig(host_policy=("cpu,numa-node=1",)))
    assert built.host_policies == {"cpu": HostPolicy(node=1)}


def test_the_hooks_for_tests_are_read_from_the_environment_when_the_server_is_made(monkeypatch):
    assert load_options(ServerConfig()).delayed_start == NO_DELAY
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "5")
    assert load_options(ServerConfig()).delayed_start == DelayedStart(5)


def test_resources_are_limited_when_executions_are_counted():
    given = ("R:4", "R:2:1")
    assert load_options(ServerConfig(rate_limit_resource=given)).rate_limits is None
    config = ServerConfig(rate_limit="execution_count", rate_limit_resource=given)
    assert load_options(config).rate_limits == {("R", None): 4, ("R", 1): 2}


def test_no_two_processes_of_a_server_give_traces_the_same_number(tmp_path):
    config = ServerConfig(
        trace_config=(f"triton,file={tmp_path / 'x'}", "level=TIMESTAMPS", "rate=1")
    )
    slots = [Processes(0, 2), Processes(1, 2), Processes(0, 2, "", 1), Processes(1, 2, "", 2)]
    ids = [one.begin("m").id for one in [tracer(config, slot) for slot in slots] for _ in range(9)]
    assert len(set(ids)) == len(ids)
    assert sorted(ids)[:18] == list(range(1, 19))
    assert max(ids) < 2**53  # as JSON has them


def test_certificates_are_not_for_a_payload_log_in_files(tmp_path):
    given = ("ca-file=ca.pem",)
    with pytest.raises(InvalidConfig, match=r"are for a URL with https, not for '.*log\.jsonl'"):
        payload_log(ServerConfig(payload_log=f"{tmp_path}/log.jsonl", payload_log_config=given))
