"""Documents: the contents of packets, as msgspec parses them. See `packet` for the kinds."""

from typing import Any

import msgspec

from inferd.backends.worker.bootstrap.inferd_worker import packet
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Parameters


class Described(msgspec.Struct, array_like=True, gc=False):
    """A tensor, and where its bytes lie: in the data of the packet, or in a `block` it names."""

    name: str
    datatype: DataType
    shape: tuple[int, ...]
    offset: int
    size: int
    block: int = packet.NO_BLOCK


class DescribedAnswer(msgspec.Struct, array_like=True, gc=False):
    """One answer of the worker; `share` is its part of the stream's window.

    `number` is the request's number; in a RESULT, the batch's number minus the request's.
    """

    number: int
    outputs: list[Described] | None
    error: tuple[int, str] | None
    parameters: Parameters | None
    is_final: bool
    share: int

    @property
    def is_again(self) -> bool:
        """Whether this is no answer: the model wants the request again."""
        return not self.is_final and self.outputs is None and self.error is None


class Result(msgspec.Struct, array_like=True, gc=False):
    """RESULT: a batch was executed, between the two time.perf_counter_ns in the header.

    Never modified: one object may serve several identical packets.
    """

    released: list[int]
    answers: list[DescribedAnswer]


class AnswerBatch(msgspec.Struct, array_like=True, gc=False):
    """ANSWER: answers from response senders."""

    released: list[int]
    answers: list[DescribedAnswer]


class DescribedRequest(msgspec.Struct, array_like=True, gc=False):
    """A request of a DescribedBatch, as `describe_request` describes it."""

    id: str
    inputs: list[Described]
    outputs: list[str] | None
    parameters: Parameters | None
    more: Any


class DescribedBatch(msgspec.Struct, array_like=True, gc=False):
    """EXECUTE: requests to be executed together; `callers` wait for them.

    Never modified: one object may serve several identical packets.
    """

    released: list[int]
    requests: list[DescribedRequest]
    callers: list[str]


class CalledRequest(msgspec.Struct, array_like=True):
    """A request that the model makes of another model."""

    model: str
    version: int | str
    id: str
    inputs: list[Described]
    outputs: list[str] | None
    parameters: Parameters | None
    correlation_id: int | str
    flags: int
    timeout_us: int
    priority: int
    odd: dict[str, str] | None = None  # parameters that JSON cannot express


class DescribedCall(msgspec.Struct, array_like=True):
    """CALL: a request made by the worker's model, while the models in `callers` wait for it.

    Never modified: one object may serve several identical packets.
    """

    released: list[int]
    request: CalledRequest
    is_decoupled: bool
    callers: list[str]


class Command(msgspec.Struct, array_like=True):
    """COMMAND: something other than an inference that the worker wants done."""

    released: list[int]
    number: int
    verb: str
    arguments: list[Any]


class Note(msgspec.Struct, array_like=True):
    """CREDIT and HANG_UP of a call."""

    released: list[int]
    number: int


class Logged(msgspec.Struct, array_like=True):
    """LOG: 0 info, 1 warning, 2 error, 3 verbose."""

    released: list[int]
    level: int
    text: str


class Metered(msgspec.Struct, array_like=True):
    """METRIC: a change of the worker's metric `number`."""

    released: list[int]
    number: int
    verb: str
    value: float


class Started(msgspec.Struct, array_like=True):
    """READY, and RELEASE. `can_say`: the model can be asked whether it is ready.

    `is_in_turn`: it executes one batch after another, so that more may be sent ahead.
    """

    released: list[int]
    done: str | None = None
    can_say: bool = False
    is_in_turn: bool = False


class Said(msgspec.Struct, array_like=True):
    """SAID: whether the model calls itself ready."""

    released: list[int]
    is_ready: bool


class Failed(msgspec.Struct, array_like=True):
    """FAILED."""

    released: list[int]
    code: int
    text: str
