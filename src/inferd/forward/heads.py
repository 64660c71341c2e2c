"""Heads of messages between processes, in MessagePack.

Not compiled: msgspec reads the annotations of these classes, which a compiled module loses.
"""

from typing import NamedTuple

import msgspec

from inferd.forward.failure import Failure
from inferd.tensor.tensor import Parameters

TensorHead = tuple[str, str, tuple[int, ...], int, Parameters | None]
"""Name, datatype, shape, size in bytes, parameters."""

SequenceHead = tuple[int | str, bool, bool]
"""Id, start, end."""

Times = tuple[int, int, int, int, int, int, int]
"""The times of a request that InferRequest names, in its order, and cpu_ns."""


class RequestedTensors(NamedTuple):
    """What a request says of its tensors: the heads of its inputs, the names of wanted outputs."""

    inputs: list[TensorHead]
    outputs: list[str]


class SequenceName(NamedTuple):
    """Which sequence is asked for: id, and model and version it belongs to."""

    model: str
    version: str
    id: int | str


# No cycles: heads live for one message.
class ForwardedRequest(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """A request, without what only its origin needs; `form` is that of the version it fits.

    `tensors` are RequestedTensors in MessagePack: many requests say the same there.
    """

    model: str
    version: str
    form: bytes
    tensors: msgspec.Raw
    batch_size: int = 1
    id: str = ""
    parameters: Parameters = {}
    sequence: SequenceHead | None = None
    priority: int = 0
    timeout_us: int = 0
    callers: tuple[str, ...] = ()
    takes_errors: bool = False
    empty_final: bool = False
    arrived_ns: int = 0


class ForwardedAnswer(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """An answer, one of several or the end of all, with the request's times until then."""

    times: Times
    outputs: list[TensorHead] = []
    failure: Failure | None = None
    shared: bool = False
    ran_again: bool = False
    parameters: Parameters = {}
    final: bool = True
    id: str = ""


# Bound methods of one encoder and decoders: made once, without a lookup for each message.
encode = msgspec.msgpack.Encoder().encode
decode_tensors = msgspec.msgpack.Decoder(RequestedTensors).decode
decode_request_head = msgspec.msgpack.Decoder(ForwardedRequest).decode
decode_sequence = msgspec.msgpack.Decoder(SequenceName).decode
decode_answer_head = msgspec.msgpack.Decoder(ForwardedAnswer).decode
