"""Options of what is told of the server: logs, metrics and traces."""

from dataclasses import dataclass
from functools import partial

from inferd.config.options.log import ACCESS_LOG_FORMATS, LOG_FORMATS
from inferd.config.options.option import COUNT, MILLISECONDS, PORT, option

_logging = partial(option, group="Logging")
_observe = partial(option, group="Metrics and traces")


@dataclass(frozen=True, kw_only=True)
class LogsSection:
    """The logs, the metrics port, and traces."""

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
