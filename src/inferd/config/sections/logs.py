"""Options of logs: of the server, of requests, and of what requests contain."""

from dataclasses import dataclass
from functools import partial

from inferd.config.options.access_log import ACCESS_LOG_FORMATS
from inferd.config.options.log import LOG_FORMATS
from inferd.config.options.option import option

_logging = partial(option, group="Logging")


@dataclass(frozen=True, kw_only=True)
class LogsSection:
    """The logs."""

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
