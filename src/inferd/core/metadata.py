"""The metadata the server gives about itself and its models."""

import enum

import msgspec

from inferd.tensor.dtype import DataType


class ServerMetadata(msgspec.Struct):
    """V2 $metadata_server_response."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(msgspec.Struct):
    """V2 $metadata_tensor; `shape` has -1 for a variable dim and includes the batch dim."""

    name: str
    datatype: DataType
    shape: tuple[int, ...]


class ModelMetadata(msgspec.Struct):
    """V2 $metadata_model_response; `versions` are the ready ones, numbers ascending."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ReadyReport(msgspec.Struct):
    """Whether the server or a `model` is ready; the reason if not, and if the model is known."""

    is_ready: bool
    model: str = ""
    reason: str = ""
    is_known: bool = True


class ModelState(enum.Enum):
    """The state of a model version (Model Repository extension)."""

    UNKNOWN = "UNKNOWN"
    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"


class ServerState(enum.Enum):
    """The state of the server: it loads its models, serves, shuts down, or has no repository."""

    INITIALIZING = "INITIALIZING"
    READY = "READY"
    EXITING = "EXITING"
    FAILED_TO_INITIALIZE = "FAILED_TO_INITIALIZE"


class IndexEntry(msgspec.Struct):
    """One row of the repository index.

    `version` is "" and `state` None for a model that nobody loaded or that cannot be read.
    """

    name: str
    version: str = ""
    state: ModelState | None = None
    reason: str = ""


# The names of the protocol, where the class is written as JSON.
class SystemRegionStatus(msgspec.Struct, rename={"size_bytes": "byte_size"}):
    """A registered region of system shared memory: `size_bytes` from `offset` of object `key`."""

    name: str
    key: str
    offset: int
    size_bytes: int


class CudaRegionStatus(msgspec.Struct, rename={"size_bytes": "byte_size"}):
    """A registered region of a GPU's memory."""

    name: str
    device_id: int
    size_bytes: int
