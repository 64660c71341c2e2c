"""Turns the server's one configuration into the options of each of its parts."""

import itertools
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferd.config.names import is_model_name
from inferd.config.options.backends import (
    read_delayed_start,
    read_gpu_limits,
    read_host_policies,
    read_resources,
)
from inferd.config.options.browser import read_origins
from inferd.config.options.cache import LocalCacheSettings, read_cache_config
from inferd.config.options.log import STANDARD_ERROR, read_payload_config
from inferd.config.options.metrics import read_metrics_config
from inferd.config.options.trace import OPENTELEMETRY, in_effect, read_trace_config
from inferd.config.ports import is_one_port
from inferd.config.sections.logs import LogsSection
from inferd.config.server import ServerConfig
from inferd.core.confinement import confinement_of
from inferd.core.processes import ALONE, Processes
from inferd.engine.loading.load import LoadOptions
from inferd.errors import InvalidConfig
from inferd.observe.allowed import AllowedFolder
from inferd.observe.line_file import LineFile
from inferd.observe.payloads.files import EventFile, EventTable
from inferd.observe.payloads.log import PayloadLog, PayloadSink
from inferd.observe.payloads.receiver import EventSender
from inferd.observe.tracing.file import TraceWriter
from inferd.observe.tracing.spans import SpanSender
from inferd.observe.tracing.tracer import Tracer
from inferd.repository.fetch.settings import fetch_settings
from inferd.repository.signing.keys import TrustedKeys, read_keys

if TYPE_CHECKING:
    import ssl

    from inferd.api.access import KeyRing
    from inferd.api.v2.calls import Apis
    from inferd.http.request_log import RequestLog
    from inferd.server.crashes import Crashes
    from inferd.transport.grpc_options import GrpcOptions
    from inferd.transport.http_server import HttpOptions

SERVICE_NAME = "INFERENCE_SERVICE_NAME"
"""The variable in which KServe tells a container the name of its InferenceService."""

_GRPC_LARGEST_MESSAGE = 2**31 - 1  # gRPC core counts in int32
_METRICS_CONNECTIONS = 100
_METRICS_BODY_BYTES = 1000
_GENERATION_BITS = 32  # traces that a process makes, before their numbers could be another's


def tracer(config: ServerConfig, processes: Processes = ALONE) -> Tracer:
    """Return the tracer, which chooses the requests to trace and writes their traces.

    It is that of one of the `processes` of a server.
    """
    # Numbers of traces are unique in the server without a word between processes: each takes every
    # count-th.
    first = 1 + processes.number + (processes.generation << _GENERATION_BITS)
    numbers = itertools.count(first, processes.count)
    settings, collector = read_trace_config(config.trace_config)
    folder = Path(config.trace_directory) if config.trace_directory else None
    allowed = AllowedFolder(folder, "--trace-directory")
    if settings.mode == OPENTELEMETRY:
        # Clients are shown what counts, variables included.
        settings = replace(settings, collector=in_effect(collector, os.environ))
        sender = SpanSender(collector, config.id or "inferd")
        return Tracer(settings, sender, allowed, numbers)
    writer = TraceWriter(settings.file, is_shared=processes.count > 1)
    return Tracer(settings, writer, allowed, numbers)


def access_log_file(config: LogsSection) -> LineFile | None:
    """Return the file for lines about requests, None if there is to be none."""
    if not (name := config.access_log):
        return None
    return LineFile(None if name == STANDARD_ERROR else Path(name), "the access log")


def payload_log(config: LogsSection, processes: Processes = ALONE) -> PayloadLog | None:
    """Return the log of payloads, None if there is to be none. Raises InvalidConfig.

    Each of several processes has files of its own.
    """
    settings = read_payload_config(config.payload_log_config)
    if not (where := config.payload_log):
        return None
    if not settings.service:
        settings = replace(settings, service=os.environ.get(SERVICE_NAME, ""))
    sink: PayloadSink
    if "://" in where:
        sink = EventSender(where, settings)
    elif settings.has_tls_files:
        msg = f"--payload-log: ca-file and cert-file are for a URL with https, not for '{where}'"
        raise InvalidConfig(msg)
    else:
        path = Path(where)
        if processes.count > 1:
            # Two processes must not rotate the same files.
            path = path.with_stem(f"{path.stem}-{processes.number}")
        kind = EventTable if path.suffix == EventTable.suffix else EventFile
        sink = kind(path, settings.file_bytes, settings.file_count)
    return PayloadLog(settings, sink)


def load_options(
    config: ServerConfig,
    crashes: "Crashes | None" = None,
    process_count: int = 1,
    folder: Path | None = None,
) -> LoadOptions:
    """Return the options for loading models; `crashes` is what the process knows of its crashes.

    Each of the server's processes has a share of the local response cache. `folder` is private to
    them, None if there is one process.
    """
    cache = read_cache_config(config.cache_config, os.environ)
    if isinstance(cache, LocalCacheSettings):
        cache = LocalCacheSettings(cache.size_bytes // process_count)
    resources = read_resources(config.rate_limit_resource)
    same = _same_named(config, LoadOptions.__struct_fields__)
    same["model_name"] = config.model_name or ""
    service = os.environ.get(SERVICE_NAME, "")
    # KServe's name of the service becomes the model's, if it can be one.
    same["service_name"] = service if is_model_name(service) else ""
    same["model_config_name"] = config.model_config_name or ""
    if crashes is not None:
        same |= {"marks": crashes.marks, "isolated": crashes.isolated}
    metrics = read_metrics_config(config.metrics_config)
    return LoadOptions(
        **same,
        summary_latencies=metrics.summary_latencies,
        histogram_latencies=metrics.histogram_latencies,
        rate_limits=resources if config.rate_limit != "off" else None,
        cache=cache,
        delayed_start=read_delayed_start(os.environ),
        host_policies=read_host_policies(config.host_policy),
        gpu_limits=read_gpu_limits(config.model_load_gpu_limit),
        signature_keys=_signature_keys(config),
        confinement=confinement_of(is_on=config.confine_workers, writable=config.worker_writable),
        fetching=fetch_settings(
            os.environ,
            config.fetch_directory,
            is_offline=config.offline,
            max_bytes=config.fetch_max_bytes,
            pins=folder,
        ),
    )


def _signature_keys(config: ServerConfig) -> TrustedKeys | None:
    """Return the keys that models have to be signed with, if they have to. Raises InvalidConfig."""
    keys = read_keys(config.require_signatures, "--require-signatures")
    if keys is not None:
        # What Python writes beside a model's code was not signed: neither here nor in workers.
        sys.dont_write_bytecode = True
        os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    return keys


def grpc_options(
    config: ServerConfig,
    ring: "KeyRing | None" = None,
    apis: "Apis | None" = None,
    log: "RequestLog | None" = None,
) -> "GrpcOptions":
    """Return the options of the gRPC server; `ring` has the API keys, if any are needed.

    `apis` are those to be offered, without them V2. `log` is for lines about requests.
    """
    from inferd.api.v2.calls import V2_ALONE
    from inferd.server.access import grpc_access
    from inferd.transport.grpc_options import GrpcOptions

    return GrpcOptions(
        **_same_named(config, GrpcOptions.__struct_fields__, "grpc_"),
        reuse_port=config.reuse_grpc_port,
        max_send_bytes=_GRPC_LARGEST_MESSAGE,
        drain_window_s=config.drain_window,
        compression_level=config.grpc_infer_response_compression_level,
        access=grpc_access(config, ring),
        apis=apis or V2_ALONE,
        request_log=log,
    )


def http_options(
    config: ServerConfig,
    ring: "KeyRing | None" = None,
    tls: "ssl.SSLContext | None" = None,
    apis: "Apis | None" = None,
    log: "RequestLog | None" = None,
) -> "HttpOptions":
    """Return the options of the HTTP server; `ring` has the API keys, if any are needed.

    `apis` are those to be offered, without them V2. `log` is for lines about requests.
    """
    from inferd.api.v2.calls import V2_ALONE
    from inferd.server.access import http_access
    from inferd.transport.http_server import HttpOptions

    return HttpOptions(
        **_same_named(config, HttpOptions.__struct_fields__, "http_"),
        drain_window_s=config.drain_window,
        max_input_bytes=config.http_max_input_size,
        half_floats_in_json=config.json_half_floats == "accept",
        non_finite=config.json_non_finite,
        not_ready_status=config.not_ready_status,
        ssl_context=tls,
        access=http_access(config, ring),
        cors_origins=read_origins(config.http_cors_origin),
        apis=apis or V2_ALONE,
        # A port shared with gRPC also follows gRPC's option.
        reuse_port=config.reuse_http_port or (is_one_port(config) and config.reuse_grpc_port),
        request_log=log,
    )


def metrics_options(config: ServerConfig) -> "HttpOptions":
    """Return the options of the metrics port: no TLS, no keys, few and small requests."""
    from inferd.transport.http_server import HttpOptions

    # Scrapers are few, and send nothing: they cannot use up what clients need.
    few = {
        "max_body_bytes": _METRICS_BODY_BYTES,
        "max_connections": _METRICS_CONNECTIONS,
        "header_forward_pattern": None,
    }
    return HttpOptions(
        **(_same_named(config, HttpOptions.__struct_fields__, "http_") | few),
        drain_window_s=config.drain_window,
        max_input_bytes=_METRICS_BODY_BYTES,
        half_floats_in_json=False,
        non_finite="error",
        not_ready_status=config.not_ready_status,
        ssl_context=None,
    )


def _same_named(config: object, names: Iterable[str], prefix: str = "") -> dict[str, Any]:
    """Return the fields of these names that are options, called `prefix` and the field's name.

    What ends in `_s` in a field ends in `_secs` in an option, and `_ms` is left out there.
    """
    found = {}
    for name in names:
        option = prefix + re.sub("_s$", "_secs", name).removesuffix("_ms")
        # Fields without an option of that name are given by the caller.
        if hasattr(config, option):
            found[name] = getattr(config, option)
    return found
