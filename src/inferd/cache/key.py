"""Keys: what an answer hangs on, as 32 bytes.

A key is the SHA-256 of the identity of what answers, and of all of the request that a model can
see: names, datatypes, shapes and bytes of the inputs in the order of their names, parameters, flags
of sequences, and the outputs that are wanted. Two requests with one key are the same request;
nobody can make another one with it, so a client cannot put its answers into the place of somebody
else's. How outputs travel, and which classes are wanted of them, is left out: that happens to the
answer later.
"""

import hashlib
from typing import Any

import msgspec
import numpy as np

from inferd.core.request import InferRequest
from inferd.tensor.tensor import Tensor

_LENGTH_BYTES = 8


def key_of(request: InferRequest, identity: bytes) -> bytes | None:
    """Return the key of a checked `request`, None when it has none.

    So it is with parameters that are no text or beyond 64 bits.
    """
    inputs = sorted(request.inputs, key=_name)
    views = [tensor.view() for tensor in inputs]
    words = (
        identity,
        [
            (t.name, t.datatype, t.shape, len(view), _in_order(t.parameters))
            for t, view in zip(inputs, views, strict=True)
        ],
        _in_order(request.parameters),
        [wanted.name for wanted in request.outputs],
        (sequence.start, sequence.end) if (sequence := request.sequence) is not None else None,
    )
    try:
        head = msgspec.msgpack.encode(words)
    except (OverflowError, UnicodeEncodeError):
        return None
    digest = hashlib.sha256(len(head).to_bytes(_LENGTH_BYTES, "little"))
    digest.update(head)
    for view in views:
        digest.update(view)
    return digest.digest()


def private(tensor: Tensor) -> Tensor:
    """Return `tensor` with a copy of its bytes, which nobody can change. Raises MemoryError."""
    view = tensor.view()
    copy = np.empty(len(view), np.uint8)
    np.copyto(copy, np.frombuffer(view, np.uint8))  # others may run meanwhile
    return Tensor(tensor.name, tensor.datatype, tensor.shape, copy.data, tensor.parameters)


def _name(tensor: Tensor) -> str:
    return tensor.name


def _in_order(parameters: Any) -> Any:
    return sorted(parameters.items()) if parameters else None
