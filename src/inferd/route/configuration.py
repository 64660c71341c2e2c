"""The text of HAProxy's configuration: haproxy.cfg, filled in."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from inferd.route.arrangement import (
    ALL,
    DIFFER,
    NEEDS_MODEL,
    Arrangement,
    ModelKind,
    SlotContent,
    SlotUse,
)

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

_MARK = re.compile(r"@([a-z_]+)@")

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
class HaproxyLimits:
    """The numbers in the configuration. `lua_file` is "" if HAProxy cannot run it."""

    threads: int
    group_count: int
    check_ms: int = 2000
    grace_s: int = 30
    files: int = 100_000
    streams: int = 1000
    lua_file: str = ""


def configuration(
    binds: Sequence[str], paths: Paths, limits: HaproxyLimits, arrangement: Arrangement
) -> str:
    """Return the whole configuration; `binds` are what follows the word bind."""
    values: dict[str, Callable[[], str]] = {
        "runtime_socket": lambda: paths.runtime_socket,
        "map": lambda: paths.map,
        "control_socket": lambda: paths.control_socket,
        "front_socket": lambda: paths.front_socket,
        "threads": lambda: str(limits.threads),
        "files": lambda: str(limits.files),
        "bufsize": lambda: str(BUFSIZE),
        "streams": lambda: str(limits.streams),
        "grace_s": lambda: str(limits.grace_s),
        "check_ms": lambda: str(limits.check_ms),
        "groups": lambda: str(limits.group_count),
        "binds": lambda: "\n".join(f"    bind {one}" for one in binds),
        "control_paths": lambda: " ".join((*CONTROL_PATHS, *CONTROL_METHODS)),
        "control_prefixes": lambda: " ".join(CONTROL_PREFIXES),
        "lua": lambda: _LOAD_LUA.format(limits.lua_file) if limits.lua_file else _NO_LUA,
        "sequence_rules": lambda: _LUA_RULES if limits.lua_file else _NO_LUA_RULES,
        "rest_slots": lambda: "\n".join(_slots(arrangement, "rest", ALL)),
        "grpc_slots": lambda: "\n".join(_slots(arrangement, "grpc", ALL)),
        "group_backends": lambda: "\n".join(_groups(arrangement, limits.group_count)),
    }
    text = (files("inferd.route") / "haproxy.cfg").read_text()
    return _MARK.sub(lambda found: values[found[1]](), text)


KINDS_OF_BACKEND = ("rest", "grpc", "sequences", "grpc-sequences")


def backends(group: str) -> list[str]:
    """Return the names of the backends of a group."""
    return [f"{kind}-{group}" for kind in KINDS_OF_BACKEND]


def slot_name(number: int) -> str:
    """Return the name of a slot, which is that of its servers."""
    return f"p{number + 1}"


def port_of(kind: str, content: SlotContent) -> int:
    """Return the port of a place that a kind of backend sends to."""
    return content.grpc_port if kind.startswith("grpc") else content.http_port


def map_lines(arrangement: Arrangement) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of the map of models."""
    for model, (group, kind) in arrangement.models.items():
        yield model, f"{group}.{kind.value}"
    kinds = {kind for _, kind in arrangement.models.values()}
    if any(group != ALL for model, (group, _) in arrangement.models.items() if "/" not in model):
        yield DIFFER, "differ"
    if arrangement.groups or ModelKind.SEQUENCE in kinds:
        yield NEEDS_MODEL, "needs-model"


def use_in(content: SlotContent, members: frozenset[int] | None, number: int) -> SlotUse:
    """Return what a slot is given by a group with these `members`, None for all."""
    return content.use if members is None or number in members else SlotUse.UNUSED


def _slots(arrangement: Arrangement, kind: str, group: str) -> Iterator[str]:
    members = None if group == ALL else arrangement.groups.get(int(group), frozenset())
    for number, content in enumerate(arrangement.slots):
        name = slot_name(number)
        host = f"[{content.address}]" if ":" in content.address else content.address
        words = [f"    server {name} {host}:{port_of(kind, content)}"]
        if kind.startswith("grpc"):
            words.append("proto h2")
        if (kind, group) != ("rest", ALL):
            words.append(f"track rest-all/{name}")
        use = use_in(content, members, number)
        if use is SlotUse.UNUSED:
            words.append("disabled")
        elif use is SlotUse.DRAIN:
            words.append("weight 0")
        yield " ".join(words)


def _groups(arrangement: Arrangement, count: int) -> Iterator[str]:
    for number in range(1, count + 1):
        for kind, name in zip(KINDS_OF_BACKEND, backends(str(number)), strict=True):
            yield f"backend {name} from {'sequences' if 'sequences' in kind else 'places'}"
            if "sequences" in kind:
                yield "    stick on var(txn.key),sha1,hex table begun-sequences"
            yield from _slots(arrangement, kind, str(number))
            yield ""
