"""Keys: everything an answer depends on, as 32 bytes.

A key is the SHA-256 of the identity of what answers, and of everything in the request that a model
can see: names, datatypes, shapes and bytes of the inputs in their order, parameters, sequence
flags, and the wanted outputs. Two requests with one key are the same request; nobody can
construct a different one with the same key, so a client cannot put its answers in place of someone
else's. How outputs are sent, and which classes of them are wanted, is left out: that is applied to
the answer later.
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

    It has none if a parameter is an integer beyond 64 bits, or text that is not valid Unicode.
    """
    inputs = request.inputs
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
        # MessagePack prefixes lengths, so that two different lists never give the same bytes.
        head = msgspec.msgpack.encode(words)
    except (OverflowError, UnicodeEncodeError):
        return None
    # The length first, so that bytes of an input cannot pass for a part of the head.
    digest = hashlib.sha256(len(head).to_bytes(_LENGTH_BYTES, "little"))
    digest.update(head)
    for view in views:
        digest.update(view)
    return digest.digest()


def private(tensor: Tensor) -> Tensor:
    """Return `tensor` with a copy of its bytes, which no client can change. Raises MemoryError."""
    view = tensor.view()
    copy = np.empty(len(view), np.uint8)
    np.copyto(copy, np.frombuffer(view, np.uint8))  # other threads may run meanwhile
    return Tensor(tensor.name, tensor.datatype, tensor.shape, copy.data, tensor.parameters)


def _in_order(parameters: Any) -> Any:
    # JSON objects and protobuf maps have no order.
    return sorted(parameters.items()) if parameters else None
