"""Options of metrics and traces."""

from dataclasses import dataclass
from functools import partial

from inferd.config.options.option import option
from inferd.config.sections.units import COUNT, MILLISECONDS, PORT

_observe = partial(option, group="Metrics and traces")


@dataclass(frozen=True, kw_only=True)
class MetricsSection:
    """The metrics port, and traces."""

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
        **PORT,
    )
    metrics_interval_ms: int = _observe(
        2000, "How often GPUs, processors and memory are measured.", **(MILLISECONDS | COUNT)
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
