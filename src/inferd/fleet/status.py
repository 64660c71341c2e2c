"""What a supervisor tells of its server, to whoever asks at its control socket."""

import enum
from typing import Literal

import msgspec


class ReplacementState(enum.Enum):
    """How far it is."""

    RUNNING = "running"
    DONE = "done"
    """None of the processes from before is left."""
    FAILED = "failed"
    """A new process did not start, or the server ends; those not replaced serve on."""


class Replacement(msgspec.Struct):
    """The last time that all processes were replaced, the how many-th that was."""

    number: int
    process_count: int
    replaced_count: int = 0
    state: ReplacementState = ReplacementState.RUNNING


class ProcessStatus(msgspec.Struct, frozen=True):
    """One process, in a state of inferd.fleet.members; `restart_count` is that of its slot."""

    slot: int
    pid: int
    state: str
    connection_count: int
    restart_count: int
    uptime_s: float
    rss_bytes: int


class ServerStatus(msgspec.Struct, frozen=True):
    """The server whose supervisor is `pid`, started at `since_s`, in seconds since 1970.

    `ports` are the numbers of those that are open, by protocol, `sockets` the paths of Unix
    sockets. `model_counts` are the numbers of model versions by their state, None if no process
    told them.
    """

    version: str
    pid: int
    since_s: float
    ports: dict[str, int]
    sockets: list[str]
    process_count: int
    processes: list[ProcessStatus]
    is_stopping: bool = False
    restart_count: int = 0
    model_counts: dict[str, int] | None = None
    replacement: Replacement | None = None


class ControlRequest(msgspec.Struct, frozen=True):
    """What is wanted: to know the status, with or without models, or to replace all processes."""

    do: Literal["status", "reload"]
    with_models: bool = False


class ControlAnswer(msgspec.Struct, frozen=True):
    """The status after the request; `error` says why it was not done."""

    error: str = ""
    status: ServerStatus | None = None
