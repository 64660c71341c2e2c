"""The text of HAProxy's configuration: haproxy.cfg, filled in."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

from inferd.config.workers import processor_count
from inferd.route.arrangement import (
    ALL,
    DIFFER,
    NEEDS_MODEL,
    Arrangement,
    ModelKind,
    SlotContent,
    SlotUse,
)
from inferd.server.address import host_and_port

# HAProxy looks for a model's name and a sequence's id in what fits into one buffer.
BUFSIZE = 32768

CONTROL_PATHS = ("/v2/models", "/v2/models/stats")
"""The exact paths of REST that concern all places."""
CONTROL_PREFIXES = (
    "/v2/repository/",
    "/v2/logging",
    "/v2/trace/",
    "/v2/systemsharedmemory/",
    "/v2/cudasharedmemory/",
    "/api/modelcontrol/",
    "/api/sharedmemorycontrol/",
)
V2_SERVICE = "/inference.GRPCInferenceService/"
CONTROL_METHODS = (
    *(
        V2_SERVICE + name
        for name in (
            "ModelStatistics",
            "RepositoryIndex",
            "RepositoryModelLoad",
            "RepositoryModelUnload",
            "SystemSharedMemoryStatus",
            "SystemSharedMemoryRegister",
            "SystemSharedMemoryUnregister",
            "CudaSharedMemoryStatus",
            "CudaSharedMemoryRegister",
            "CudaSharedMemoryUnregister",
            "TraceSetting",
            "LogSettings",
        )
    ),
    "/nvidia.inferenceserver.GRPCService/ModelControl",
    "/nvidia.inferenceserver.GRPCService/SharedMemoryControl",
)

# One connection that fails takes a place out at once, before the next check.
_OBSERVE = "observe layer4 error-limit 1 on-error mark-down"

_MARK = re.compile(r"@([a-z_-]+)@")
_FILES = 100_000
_STREAMS = 1000

_LOAD_LUA = """\
    # Finds the id of a sequence in a gRPC message, and a large one in JSON.
    lua-load-per-thread {}"""
_NO_LUA = (
    "    # This HAProxy has no Lua: gRPC clients have to send the metadata inferd-sequence-id."
)
_LUA_RULES = """\
    http-request set-var(txn.sequence) lua.sequence_id if sequence message !stream !known_sequence
    http-request set-var(txn.sequence) lua.json_id if sequence rest_model !known_sequence"""
_NO_LUA_RULES = """\
    # Rounded to six digits: each sequence is at one place, but many are at the same.
    http-request set-var(txn.sequence) req.body,json_query('$.parameters.sequence_id') if sequence \
rest_model !known_sequence
    http-request set-var(txn.sequence) req.body,json_query('$.sequence_id') if sequence rest_model \
!known_sequence"""


@dataclass(frozen=True, slots=True)
class Paths:
    """The files that HAProxy uses: its runtime socket, its map of models, and two more sockets.

    We listen at the `control_socket`, HAProxy at the `front_socket`, for us.
    """

    runtime_socket: str
    map: str
    control_socket: str
    front_socket: str


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """The options of `inferd route`; docs/guide/scaling.md says what they mean.

    Ports of 0 are chosen by the system. `grpc_port` equal to `http_port`, if not 0: one port for
    everything. `tls_cert` has the certificate and those that signed it, `tls_key` its key,
    `tls_client_ca` those that sign the certificates of clients.
    """

    address: str
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    threads: int = 0
    max_places: int = 32
    max_groups: int = 8
    check_timeout_ms: int = 2000
    exit_timeout_secs: int = 30
    key_file: str | None = None
    haproxy: str | None = None


def configuration(
    binds: Sequence[str],
    paths: Paths,
    settings: RouteSettings,
    arrangement: Arrangement,
    *,
    has_lua: bool,
) -> str:
    """Return the whole configuration; `binds` are what follows the word bind."""
    folder = files("inferd.route")
    values = {
        "runtime_socket": paths.runtime_socket,
        "map": paths.map,
        "control_socket": paths.control_socket,
        "front_socket": paths.front_socket,
        "threads": str(settings.threads or processor_count()),
        "files": str(_FILES),
        "bufsize": str(BUFSIZE),
        "streams": str(_STREAMS),
        "grace_s": str(settings.exit_timeout_secs),
        "check_ms": str(settings.check_timeout_ms),
        "groups": str(settings.max_groups),
        "binds": "\n".join(f"    bind {one}" for one in binds),
        "control_paths": " ".join((*CONTROL_PATHS, *CONTROL_METHODS)),
        "control_prefixes": " ".join(CONTROL_PREFIXES),
        "lua": _LOAD_LUA.format(folder / "sequence_id.lua") if has_lua else _NO_LUA,
        "sequence_rules": _LUA_RULES if has_lua else _NO_LUA_RULES,
        "group_backends": "\n".join(_groups(arrangement, settings.max_groups)),
    }
    for kind in (CHECKS, *_KINDS):
        values[f"{kind}-slots"] = "\n".join(_slots(arrangement, kind, ALL))
    return _MARK.sub(lambda found: values[found[1]], (folder / "haproxy.cfg").read_text())


ASLEEP = "asleep"
"""What the map has in place of a group for models whose places sleep."""

CHECKS = "checks"
"""The kind of the one backend that nothing is sent to: sequences look at its checks."""

_KINDS = ("rest", "grpc", "sequences", "grpc-sequences")
_FOR_ANY_PLACE = ("rest", "grpc")
"""The kinds that may send a request to any place: they check places themselves, so that a place
which takes no connection of a request is left at once, and they have a last resort."""


class SlotServer(NamedTuple):
    """One of the servers of a slot: the kind of its backend, and BACKEND/SERVER."""

    kind: str
    name: str
    is_last_resort: bool = False

    @property
    def has_check_port(self) -> bool:
        """Whether it is checked at another port than requests are sent to."""
        return self.kind == "grpc" and not self.is_last_resort


def servers_of(group: str, slot: int) -> Iterator[SlotServer]:
    """Yield the servers of a slot in a group."""
    usual, last_resort = slot_names(slot)
    # Only the group of all has checks: one for each slot, whatever its groups.
    for kind in (CHECKS, *_KINDS) if group == ALL else _KINDS:
        yield SlotServer(kind, f"{kind}-{group}/{usual}")
        if kind in _FOR_ANY_PLACE:
            yield SlotServer(kind, f"{kind}-{group}/{last_resort}", is_last_resort=True)


def slot_names(slot: int) -> tuple[str, str]:
    """Return the names of a slot's servers: the usual one, and the last resort."""
    return f"p{slot + 1}", f"p{slot + 1}-unchecked"


def port_of(kind: str, content: SlotContent) -> int:
    """Return the port of a place that a kind of backend sends to."""
    return content.grpc_port if kind.startswith("grpc") else content.http_port


def map_lines(arrangement: Arrangement) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of the map of models."""
    for model, (group, kind) in arrangement.models.items():
        yield model, f"{group}.{kind.value}"
    for model in arrangement.asleep:
        # What wakes a place is not repeated: the client asks again.
        yield model, f"{ASLEEP}.{ModelKind.ONCE.value}"
    kinds = {kind for _, kind in arrangement.models.values()}
    if any(group != ALL for model, (group, _) in arrangement.models.items() if "/" not in model):
        yield DIFFER, "differ"
    if arrangement.groups or arrangement.asleep or ModelKind.SEQUENCE in kinds:
        yield NEEDS_MODEL, "needs-model"


def use_in(content: SlotContent, members: frozenset[int] | None, number: int) -> SlotUse:
    """Return what a slot is given by a group with these `members`, None for all."""
    return content.use if members is None or number in members else SlotUse.UNUSED


def _slots(arrangement: Arrangement, kind: str, group: str) -> Iterator[str]:
    members = arrangement.members(group)
    for number, content in enumerate(arrangement.slots):
        name, last_resort = slot_names(number)
        words = [host_and_port(content.address, port_of(kind, content))]
        if kind.startswith("grpc"):
            words.append("proto h2")
        use = use_in(content, members, number)
        if use is SlotUse.UNUSED:
            # In maintenance from the start, until the runtime socket says otherwise.
            words.append("disabled")
        elif use is SlotUse.DRAIN:
            # Draining: no new requests but those of sequences that it has.
            words.append("weight 0")
        if kind == CHECKS:
            how = "check"
        elif kind == "grpc":
            # gRPC's port may answer no HTTP/1.1, so the check goes to REST's.
            how = f"check check-proto h1 port {content.http_port} {_OBSERVE}"
        elif kind == "rest":
            how = f"check {_OBSERVE}"
        else:
            # Looks at the checks of the one backend that makes them, so that each place is checked
            # once.
            how = f"track {CHECKS}-{ALL}/{name}"
        yield f"    server {name} {' '.join([*words, how])}"
        if kind in _FOR_ANY_PLACE:
            # Used if no server passes its checks: better a place that may answer than an error.
            yield f"    server {last_resort} {' '.join([*words, 'backup'])}"


def _groups(arrangement: Arrangement, count: int) -> Iterator[str]:
    for number in range(1, count + 1):
        for kind in _KINDS:
            yield f"backend {kind}-{number} from {'sequences' if 'sequences' in kind else 'places'}"
            if "sequences" in kind:
                # All groups share one table: a sequence stays at its place if its model's group
                # changes.
                yield "    stick on var(txn.key),sha1,hex table begun-sequences"
            yield from _slots(arrangement, kind, str(number))
            yield ""
