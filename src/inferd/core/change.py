"""Changes that clients ask for, as the processes of one server tell each other of them."""

from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from inferd.config.options.log import LogChange
from inferd.config.options.trace import TraceChange
from inferd.core.load import LoadRequest

MODELS, REGIONS, SETTINGS = "models", "regions", "settings"
"""The queues of changes."""


# The tag names the class in the message, for the decoder of the union.
class _Change(msgspec.Struct, frozen=True, tag=True):
    """A change; its class is told by a field `type`."""


class LoadModel(_Change, frozen=True):
    """Load or reload a model, as the fields of LoadRequest say."""

    model: str
    config: str | None = None
    files: dict[str, bytes] = {}
    folder: str | None = None


class UnloadModel(_Change, frozen=True):
    """Unload a model, as the fields of UnloadRequest say.

    `is_at_start`: a process that starts loads the model, and so must unload it, too.
    """

    model: str
    unload_dependents: bool = False
    is_at_start: bool = True


class FollowModel(_Change, frozen=True):
    """Have a model be as it is in the repositories, where it has changed."""

    model: str


class AddSystemRegion(_Change, frozen=True):
    """Register system shared memory: see Regions.open_system."""

    name: str
    shm_key: str
    offset: int
    size_bytes: int


class AddCudaRegion(_Change, frozen=True):
    """Register memory of a GPU: see Regions.open_cuda."""

    name: str
    handle: bytes
    device_id: int
    size_bytes: int


class DropRegions(_Change, frozen=True):
    """Unregister a region of `kind`, system or cuda, or all of that kind if `name` is empty."""

    kind: str
    name: str


class ChangeLog(_Change, frozen=True):
    """Change settings of the log."""

    change: LogChange


class ChangeTrace(_Change, frozen=True):
    """Change what is traced of `model`, or globally."""

    change: TraceChange
    model: str = ""


Change = (
    LoadModel
    | UnloadModel
    | FollowModel
    | AddSystemRegion
    | AddCudaRegion
    | DropRegions
    | ChangeLog
    | ChangeTrace
)

_decoder = msgspec.msgpack.Decoder(Change)
encode_change = msgspec.msgpack.Encoder().encode


def decode_change(body: bytes) -> Change:
    """Return the change that `encode_change` encoded. Raises msgspec.DecodeError."""
    change: Change = _decoder.decode(body)
    return change


def of_load(request: LoadRequest) -> LoadModel:
    """Return the change that makes `request` true in every process."""
    # Contents may be views of the client's body, which is not kept as long as the change.
    files = {path: bytes(content) for path, content in request.files.items()}
    folder = None if request.folder is None else str(request.folder)
    return LoadModel(request.model, request.config, files, folder)


def load_of(change: LoadModel) -> LoadRequest:
    """Return the request that `change` came from."""
    folder = None if change.folder is None else Path(change.folder)
    return LoadRequest(change.model, change.config, change.files, folder)


class About(NamedTuple):
    """What a change is about, by which a later one makes it unnecessary for who makes neither.

    Changes in one `queue` are made one after the other. One that `is_erasing` undoes those with its
    key, or all below it if that ends with a slash.
    """

    queue: str
    key: str
    is_erasing: bool = False


def about(change: Change) -> About:
    """Return what `change` is about; changes of settings are about those that they name."""
    match change:
        case UnloadModel():
            return About(MODELS, f"model/{change.model}.", is_erasing=not change.is_at_start)
        case LoadModel() | FollowModel():
            return About(MODELS, f"model/{change.model}.")
        case AddSystemRegion():
            return About(REGIONS, _key_of("system", change.name))
        case AddCudaRegion():
            return About(REGIONS, _key_of("cuda", change.name))
        case DropRegions():
            return About(REGIONS, _key_of(change.kind, change.name), is_erasing=True)
        case ChangeLog():
            return About(SETTINGS, f"log/{_set_in(change.change)}")
        case ChangeTrace():
            # Settings that a change clears are as much of it as those that it sets.
            cleared = ",".join(sorted(change.change.cleared))
            return About(SETTINGS, f"trace/{change.model}/{_set_in(change.change)}/{cleared}")


class Agreement:
    """What the processes that make a change tell each other; `number` is the change's.

    This one is with nobody: of a change that each process makes for itself alone `number` is 0.
    `is_replay`: the others made it before this process was there.
    """

    number = 0
    is_replay = False

    async def all_can(self, name: str, failures: dict[int, str]) -> dict[int, str]:
        """Wait until every process is ready to change `name`.

        `failures` are the versions that failed here, with the reasons; those that failed anywhere
        are returned. Raises InferdError when another process cannot make the change.
        """
        del name
        return failures


UNSHARED = Agreement()


class Everywhere(Protocol):
    """All processes of the server."""

    async def change(self, change: Change) -> None:
        """Make a change in all processes, this one too. Raises InferdError as any of them does."""
        ...


def _key_of(kind: str, name: str) -> str:
    """Return the key of a region, or of all of that kind, which no name can be mistaken for."""
    return f"{kind}/{name}." if name else f"{kind}/"


def _set_in(change: LogChange | TraceChange) -> str:
    names = [name for name in change.__slots__ if name != "cleared"]
    return ",".join(name for name in names if getattr(change, name) is not None)
