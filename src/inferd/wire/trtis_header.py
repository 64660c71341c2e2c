"""InferRequestHeader: what a request of the TensorRT Inference Server API says beside its bytes."""

from inferd.record import Record
from inferd.wire.v2_shared_memory import Reference


class InputHeader(Record):
    """InferRequestHeader.Input; `byte_size` is that of one item, of old clients.

    Sizes of 0 and no `dims` mean that nothing was said.
    """

    _fields = (
        "name",
        "dims",
        "batch_byte_size",
        "shared",
        "byte_size",
    )
    __slots__ = _fields

    def __init__(
        self,
        name: str = "",
        dims: tuple[int, ...] = (),
        batch_byte_size: int = 0,
        shared: Reference | None = None,
        byte_size: int = 0,
    ) -> None:
        self.name = name
        self.dims = dims
        self.batch_byte_size = batch_byte_size
        self.shared = shared
        self.byte_size = byte_size


class OutputHeader(Record):
    """InferRequestHeader.Output; with `top_k` > 0 classes are wanted."""

    _fields = (
        "name",
        "top_k",
        "shared",
        "byte_size",
    )
    __slots__ = _fields

    def __init__(
        self,
        name: str = "",
        top_k: int = 0,
        shared: Reference | None = None,
        byte_size: int = 0,
    ) -> None:
        self.name = name
        self.top_k = top_k
        self.shared = shared
        self.byte_size = byte_size


class InferHeader(Record):
    """InferRequestHeader. `is_old`: the client is from before 0.11.

    `words` are those of the request that describe its tensors: headers with the same ones differ in
    their ids and flags alone. Empty where that is not known. Their tensors are never to be changed.
    """

    _fields = (
        "batch_size",
        "inputs",
        "outputs",
        "correlation_id",
        "id",
        "flags",
        "priority",
        "timeout_us",
        "is_old",
        "words",
    )
    __slots__ = _fields

    def __init__(  # noqa: PLR0913
        self,
        batch_size: int = 0,
        inputs: list[InputHeader] | None = None,
        outputs: list[OutputHeader] | None = None,
        correlation_id: int = 0,
        id: int = 0,
        flags: int = 0,
        priority: int = 0,
        timeout_us: int = 0,
        is_old: bool = False,
        words: bytes = b"",
    ) -> None:
        self.batch_size = batch_size
        self.inputs = [] if inputs is None else inputs
        self.outputs = [] if outputs is None else outputs
        self.correlation_id = correlation_id
        self.id = id
        self.flags = flags
        self.priority = priority
        self.timeout_us = timeout_us
        self.is_old = is_old
        self.words = words

    def __copy__(self) -> "InferHeader":
        """Return one of the same fields."""
        return InferHeader(
            self.batch_size,
            self.inputs,
            self.outputs,
            self.correlation_id,
            self.id,
            self.flags,
            self.priority,
            self.timeout_us,
            self.is_old,
            self.words,
        )
