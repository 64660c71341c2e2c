"""Documents: the contents of packets, as msgspec parses them. See `packet` for the kinds."""

from typing import Annotated, Any

import msgspec

from inferd.core.rows import Rows
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Parameters
from inferd_worker import packet

StartSettings = dict[str, Any]
"""The document of START: the task, and what it needs of the model, by name."""

MAX_DIMS = 64
"""More than any framework has. Endless shapes take endless time to multiply."""


class Content(msgspec.Struct, array_like=True, gc=False):
    """What a packet says; nothing more in RELEASE, and in CREDIT and HANG_UP of a call.

    Never modified: one object may serve several identical packets.
    """

    released: list[int]


# array_like: without the names of fields, documents are shorter, and quicker to parse. gc=False:
# they contain no cycles, and thousands of them would make the collector run.
class Described(msgspec.Struct, array_like=True, gc=False):
    """A tensor, and where its bytes lie: in the data of the packet, or in a `block` it names."""

    name: str
    datatype: DataType
    shape: Annotated[tuple[int, ...], msgspec.Meta(max_length=MAX_DIMS)]
    offset: int
    size: int
    block: int = packet.NO_BLOCK


class DescribedAnswer(msgspec.Struct, array_like=True, gc=False):
    """One answer of the worker; `share` is its part of the stream's window.

    `number` is the request's number; in a RESULT, the batch's number minus the request's.
    `ran_again`: it is from a run of its own, after the requests of its batch failed as one.
    """

    number: int
    outputs: list[Described] | None
    error: tuple[int, str] | None
    parameters: Parameters | None
    is_final: bool
    share: int
    ran_again: bool = False

    @property
    def is_again(self) -> bool:
        """Whether this is no answer: the model wants the request again."""
        return not self.is_final and self.outputs is None and self.error is None

    @property
    def ends_stream(self) -> bool:
        """Whether it ends a stream, as asking for the request again does: no round follows."""
        return self.is_final or self.is_again


class Answers(Content):
    """RESULT: a batch was executed, between the two time.perf_counter_ns in the header.

    ANSWER: answers from response senders.
    """

    answers: list[DescribedAnswer]


class DescribedRequest(msgspec.Struct, array_like=True, gc=False):
    """A request of a DescribedBatch, as `describe_request` describes it."""

    id: str
    inputs: list[Described]
    outputs: list[str] | None
    parameters: Parameters | None
    more: Any


class DescribedBatch(Content):
    """EXECUTE: requests to be executed together; `callers` wait for them."""

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


class DescribedCall(Content):
    """CALL: a request made by the worker's model, while the models in `callers` wait for it."""

    request: CalledRequest
    is_decoupled: bool
    callers: list[str]


class Command(Content):
    """COMMAND: something other than an inference that the worker wants done."""

    verb: str
    arguments: list[Any]


class Logged(Content):
    """LOG: 0 info, 1 warning, 2 error, 3 verbose."""

    level: int
    text: str


class Metered(Content):
    """METRIC: a change of the worker's metric `number`."""

    number: int
    verb: str
    value: float


class Started(Content):
    """READY. `can_say`: the model can be asked whether it is ready.

    `is_in_turn`: it executes one batch after another, so that more may be sent ahead. `verdict` has
    the fields of a Verdict, if it says one.
    """

    done: str | None = None
    can_say: bool = False
    is_in_turn: bool = False
    verdict: tuple[Rows, str, bool, bool] | None = None


class Said(Content):
    """SAID: whether the model calls itself ready."""

    is_ready: bool


class Failed(Content):
    """FAILED."""

    text: str


DECODERS = {
    kind: msgspec.json.Decoder(content).decode
    for kind, content in (
        (packet.RELEASE, Content),
        (packet.CREDIT, Content),
        (packet.READY, Started),
        (packet.FAILED, Failed),
        (packet.ANSWER, Answers),
        (packet.COMMAND, Command),
        (packet.HANG_UP, Content),
        (packet.LOG, Logged),
        (packet.METRIC, Metered),
        (packet.SAID, Said),
    )
}
"""For each kind of packet that is seldom the same twice, what parses a document of a worker."""
