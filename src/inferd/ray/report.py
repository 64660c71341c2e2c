"""What a replica tells its controller, and what both call its states."""

import enum
import re
from collections import defaultdict

import msgspec

# As much of Prometheus' text format as our own /metrics writes.
_LINE = re.compile(r"^(\w+)(?:\{.*\})? (\S+)", re.MULTILINE)
"""A line of metrics."""


class ServingState(enum.Enum):
    """How far the server process of a replica is."""

    LOADING = "loading"
    READY = "ready"
    ENDING = "ending"
    ENDED = "ended"


class ReplicaLoad(msgspec.Struct, frozen=True):
    """What a server has had to do since it started, and `inflight`: what is under way."""

    inflight: float = 0.0
    request_count: float = 0.0
    duration_us: float = 0.0
    cpu_s: float = 0.0


class ReplicaReport(msgspec.Struct, frozen=True, kw_only=True):
    """One replica now. `reason` is why it has ended, or what it waits for.

    `models` are those that are ready, None if the server does not tell. `reconnect_s` is how long
    its node does without Ray's head. `at_s` is when `load` was read, on the replica's own clock.
    """

    state: ServingState
    node: str = ""
    host: str = ""
    http_port: int = 0
    grpc_port: int = 0
    is_tls: bool = False
    models: tuple[str, ...] | None = None
    pid: int = 0
    reason: str = ""
    load: ReplicaLoad = ReplicaLoad()
    at_s: float = 0.0
    reconnect_s: float = 60.0


def read_load(text: str) -> ReplicaLoad:
    """Return the load that the metrics of a server tell: sums over its models.

    The steps of an ensemble are requests, too.
    """
    sums: defaultdict[str, float] = defaultdict(float)
    for found in _LINE.finditer(text):
        sums[found[1]] += float(found[2])
    return ReplicaLoad(
        inflight=sums["inferd_inflight_requests"],
        request_count=sums["nv_inference_request_success"],
        duration_us=sums["nv_inference_request_duration_us"],
        cpu_s=sums["process_cpu_seconds_total"],
    )
