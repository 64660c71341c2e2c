"""Replica: what it tells its controller, what that knows of it, and where it is on its way."""

import enum
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

# As much of Prometheus' text format as our own /metrics writes.
_LINE = re.compile(r"^(\w+)(?:\{.*\})? (\S+)", re.MULTILINE)
"""A line of metrics."""

SILENT_S = 5.0
"""A replica that has said nothing for so long is shown as silent, and its place looked at."""


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


class Phase(enum.Enum):
    """Where a replica is, from its order to its end."""

    PLACING = "placing"
    """Ray looks for a node, or starts the process there."""
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    """Fronts hear that it will end; it goes on serving."""
    STOPPING = "stopping"
    """It has SIGTERM, and finishes what is under way."""


class RecentLoad(NamedTuple):
    """What a replica had to do lately: `rate` is answers, `cores` CPU time per second."""

    pending: float = 0.0
    rate: float = 0.0
    latency_ms: float = 0.0
    cores: float = 0.0


@dataclass(slots=True)
class Replica:
    """One replica of a group; `number` is greater than those of all before it. Times in seconds."""

    number: int
    group: str
    revision: str
    since_s: float
    """When its phase began."""
    began_s: float
    """When it was ordered."""
    heard_s: float
    """When it last said something."""
    phase: Phase = Phase.PLACING
    report: ReplicaReport = field(default_factory=lambda: ReplicaReport(state=ServingState.LOADING))
    load: RecentLoad = field(default_factory=RecentLoad)
    measured: ReplicaReport | None = None
    """The last report whose load has been taken into account."""
    ready_s: float | None = None
    """When it became ready."""
    is_unheard: bool = False
    """It says nothing, and its server does not answer either."""
    is_silent: bool = False
    """It is unheard, and that is believed."""
    is_lost: bool = False
    """Ray says that it has ended; its server may still answer, until it has drained."""
    reason: str = ""
    """Why it is to end, or what it waits for."""

    @property
    def name(self) -> str:
        """Its name among all of its deployment."""
        return f"{self.group}-{self.number}"

    @property
    def is_leaving(self) -> bool:
        """Whether it is on its way out."""
        # A lost one counts as leaving, so that its successor is started while its server drains.
        return self.phase in (Phase.DRAINING, Phase.STOPPING) or self.is_lost

    @property
    def is_ready(self) -> bool:
        """Whether it serves, and will go on."""
        return self.phase is Phase.READY and not self.is_silent and not self.is_lost

    def enter(self, phase: Phase, now: float) -> None:
        """Begin a phase."""
        self.phase = phase
        self.since_s = now

    def served_s(self, now: float) -> float:
        """Return for how long it has been ready."""
        return 0.0 if self.ready_s is None else now - self.ready_s

    def measure(self) -> None:
        """Compute the recent load, if a report has come with a later one than the last time.

        How many requests were under way on average follows from how long they took (Little's law):
        what is under way at the time of a look misses those that are quick.
        """
        before, report = self.measured, self.report
        if before is not None and report.at_s > before.at_s:
            elapsed_s = report.at_s - before.at_s
            duration_us = report.load.duration_us - before.load.duration_us
            count = report.load.request_count - before.load.request_count
            self.load = RecentLoad(
                # A request that takes longer than the time between two looks has
                # no duration yet, but is under way.
                pending=max(report.load.inflight, duration_us / 1e6 / elapsed_s),
                rate=count / elapsed_s,
                latency_ms=duration_us / count / 1e3 if count > 0 else 0.0,
                cores=(report.load.cpu_s - before.load.cpu_s) / elapsed_s,
            )
        if before is None or report.at_s > before.at_s:
            self.measured = report
