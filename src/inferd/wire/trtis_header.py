"""InferRequestHeader: what a request of the TensorRT Inference Server API says beside its bytes."""

import msgspec

from inferd.wire.v2_shared_memory import Reference


class InputHeader(msgspec.Struct, gc=False):
    """InferRequestHeader.Input; `byte_size` is that of one item, of old clients.

    Sizes of 0 and no `dims` mean that nothing was said.
    """

    name: str = ""
    dims: tuple[int, ...] = ()
    batch_byte_size: int = 0
    shared: Reference | None = None
    byte_size: int = 0


class OutputHeader(msgspec.Struct, gc=False):
    """InferRequestHeader.Output; with `top_k` > 0 classes are wanted."""

    name: str = ""
    top_k: int = 0
    shared: Reference | None = None
    byte_size: int = 0


class InferHeader(msgspec.Struct, gc=False):
    """InferRequestHeader. `is_old`: the client is from before 0.11.

    `words` are those of the request that describe its tensors: headers with the same ones differ in
    their ids and flags alone. Empty where that is not known. Their tensors are never to be changed.
    """

    batch_size: int = 0
    inputs: list[InputHeader] = []
    outputs: list[OutputHeader] = []
    correlation_id: int = 0
    id: int = 0
    flags: int = 0
    priority: int = 0
    timeout_us: int = 0
    is_old: bool = False
    words: bytes = b""
