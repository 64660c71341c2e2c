"""Options of the server as a whole: its processes, its end, limits over all protocols, keys."""

from dataclasses import dataclass
from functools import partial

from inferd.config.options.option import COUNT, SECONDS, option

_server = partial(option, group="Server")


@dataclass(frozen=True, kw_only=True)
class ProcessSection:
    """What the server is as a whole."""

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
        **SECONDS,
    )
    exit_timeout_secs: int = _server(
        30,
        "After SIGTERM the process ends within this time; requests not finished by then are cut "
        "off. 0: requests in flight are cut off at once.",
        is_raised=True,  # as in Triton
        **SECONDS,
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
        **COUNT,
    )
    max_inflight_bytes: int = _server(
        4294967296,
        "Limit on request data in memory, over all protocols; more is refused. Counts bodies, gRPC "
        "messages, and their inflated or parsed form.",
        **COUNT,
    )
    drain_delay: float = _server(
        0.0,
        "After SIGTERM, accept new connections for this long while reporting not ready, so that "
        "load balancers can notice. Counts towards --exit-timeout-secs.",
        **SECONDS,
    )
    drain_window: float = _server(
        1.0,
        "Then, for connections that clients keep: how long each may have no request before it is "
        "closed. A request that comes within this time is answered, and the answer says that the "
        "connection ends.",
        **SECONDS,
    )
    api_key_file: str | None = _server(
        None,
        "HTTP and gRPC calls need an API key. The file has NAME:HASH lines, which inferd key "
        "writes; it is read again when it changes.",
    )
    api_key_for_health: bool = _server(
        False, "Health checks need an API key, too; by default they are open to all."
    )
