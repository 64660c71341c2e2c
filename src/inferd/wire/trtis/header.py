"""A request in the TensorRT Inference Server API: its description, and the bytes of its inputs."""

from typing import Any

from inferd.compiled import mypyc_attr
from inferd.memory.buffer import Buffer
from inferd.record import Record
from inferd.wire.shared_memory import Reference


class InputHeader(Record):
    """InferRequestHeader.Input; `byte_size` is the size of one item, from old clients.

    Sizes of 0 and empty `dims` mean that they were not given.
    """

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

    `words` is the part of the request that describes its tensors, if known, else empty: headers
    with the same words differ only in ids and flags. They share tensors: never change these.
    """

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

    def renewed(self, id: int, correlation_id: int = 0, flags: int = 0) -> "InferHeader":
        """Return the header of another request for the same tensors, with an id of its own."""
        return InferHeader(
            self.batch_size,
            self.inputs,
            self.outputs,
            correlation_id,
            id,
            flags,
            self.priority,
            self.timeout_us,
            words=self.words,
        )


@mypyc_attr(allow_interpreted_subclasses=True)
class InputSource:
    """Where the bytes of inputs come from, in the order of the header; `data` are all of them.

    A class and not a protocol, for the reason that StreamHandler is one.
    """

    data: Buffer
    _at = 0  # how much has been taken

    def take(self, name: str, size_bytes: int, model: str) -> Any:
        """Return the bytes of input `name`: a view.

        Raises InvalidRequest, naming the input and `model`, for another size.
        """
        raise NotImplementedError

    def take_all(self, sizes_bytes: list[int]) -> list[Buffer] | None:
        """Return the bytes of all inputs, None unless they have exactly these sizes."""
        raise NotImplementedError

    def check_used_up(self, model: str) -> None:
        """Raise InvalidRequest, naming `model`, when there are more than the header describes."""
        raise NotImplementedError

    def rewind(self) -> None:
        """Start again from the beginning."""
        self._at = 0
