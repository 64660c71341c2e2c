"""InferRequest and InferResponse: an inference, independent of the protocol that asked for it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from inferd.compiled import mypyc_attr
from inferd.errors import InferdError
from inferd.record import Record
from inferd.tensor.tensor import Parameters, Tensor

if TYPE_CHECKING:
    from inferd.observe.tracing.trace import Trace


# CUDA's and system memory's spans are interpreted, and override its methods.
@mypyc_attr(allow_interpreted_subclasses=True)
class Span:
    """A piece of a shared memory region, for one request to use.

    `view` is its bytes, writable; they stay mapped as long as anything holds a view of them. With
    `is_copy` the memory itself is out of the CPU's reach and `view` stands in for it: `fetch`
    fills it, `flush` writes it back. `extent` is where the piece is: an identity of the memory,
    the same whichever region's name it was reached by, and the offsets there of the first byte and
    of the one after the last. Spans of one `region` are all valid, or none is.
    """

    def __init__(
        self,
        view: memoryview,
        extent: tuple[tuple[int, ...], int, int],
        region: object,
        *,
        is_copy: bool = False,
    ) -> None:
        self.view = view
        self.extent = extent
        self.region = region
        self.is_copy = is_copy

    def look(self) -> None:
        """Raise InvalidRequest when the region's memory is no longer what was registered."""

    def fetch(self) -> None:
        """Copy what the client wrote into `view`. Raises RegionFailed."""

    def flush(self, size_bytes: int) -> None:
        """Copy the first `size_bytes` of `view` to the client's memory. Raises RegionFailed."""

    def check(self) -> None:
        """Raise InvalidRequest when the memory has since gone away, so that `view` holds zeros."""


Resolve = Callable[[str, int, int], Span]
"""Returns the span for (region name, offset in the region, size in bytes).

Raises RegionNotFound, InvalidRequest for a range not inside the region, and Unsupported where
clients may not use shared memory.
"""


class WantedOutput(Record):
    """One output the client asked for by name.

    `binary` is the V2 REST choice for this output (None: not given). `top_k` > 0 asks for
    classification. `place` is where in shared memory the client wants the bytes: a backend may
    write them there itself, otherwise they are copied.
    """

    def __init__(
        self,
        name: str,
        binary: bool | None = None,
        top_k: int = 0,
        place: Span | None = None,
    ) -> None:
        self.name = name
        self.binary = binary
        self.top_k = top_k
        self.place = place


class Sequence(Record):
    """The sequence a request belongs to; `id` is a number or a string.

    `id` is 0 or empty where a request sets start or end but belongs to no sequence: the flags are
    then for its model to read.
    """

    def __init__(
        self,
        id: int | str,
        start: bool = False,
        end: bool = False,
    ) -> None:
        self.id = id
        self.start = start
        self.end = end


UNSEQUENCED: Parameters = {"sequence_id": 0, "sequence_start": False, "sequence_end": False}
"""What the answers of ensembles say of a sequence when there is none; never changed."""


def sequence_parameters(sequence: Sequence | None) -> Parameters:
    """Return the parameters that name `sequence` in an answer, as those of ensembles do (Triton).

    A number from 2^63 on becomes the int64 of the same bits, as parameters have no other integers.
    """
    if sequence is None:
        return UNSEQUENCED
    id = sequence.id
    # InferParameter has int64_param alone for numbers; clients read the same bits as uint64.
    if isinstance(id, int) and id >= 2**63:
        id -= 2**64
    return {"sequence_id": id, "sequence_start": sequence.start, "sequence_end": sequence.end}


class InferRequest(Record):
    """A decoded inference request.

    `version` is "" when the client leaves the choice to the server. An empty `outputs` means all
    of them; `binary_output` is then the V2 REST choice for every one. `raw` marks a raw binary
    request: the one input has no name, datatype or shape until the model's configuration gives
    them. `has_top_k` says that an output is wanted as classes; the check of the request sets it.
    `priority` 0 is the model's default level, `timeout_us` 0 no timeout. `empty_final` asks a
    decoupled model's stream for one last answer without outputs. `spans` is all the shared memory
    that inputs and wanted outputs refer to, None for the usual request, which uses none. `callers`
    are the models that wait for this request, outermost first, () for a client's. `trace` is the
    trace of this request, or of the request on whose behalf it is made.
    `copied_bytes` is the memory that large inputs take beside the body they came in, once parsed
    from text or copied out of shared memory. `takes_errors`: the reader of a decoupled model's
    answers goes on after an error among them. Requests with equal `batch_key`, unless it is None,
    differ only in id, data, shared memory and parameters, so a check of one holds for the others.
    `sample` is for the payload log, None if it does not want this request.

    What follows is filled in on the way. `batch_size` is the first dim of the inputs, 1 for a model
    without batching. The times are on the clock of time.perf_counter_ns, 0 where the request did
    not get to: `queued_ns` when a scheduler made it wait, `started_ns` and `ended_ns` around its
    execution, and between them, by a backend that can tell, `computing_ns` when the inputs were
    where the framework wants them and `computed_ns` when the framework had done its work. Of an
    execution in a thread, `answered_ns` is when the event loop had its answer, and `cpu_ns` the CPU
    time that the thread spent on it. After a miss in the response cache `answered_ns` is later by
    what that took. `shared`: other requests were in the same execution, or an earlier one's answer
    was kept (inferd.observe.stats). `ran_again`: it has run by itself after
    a run joined with others had failed.
    """

    model: str
    version: str
    id: str
    inputs: list[Tensor]
    outputs: list[WantedOutput]
    parameters: Parameters
    binary_output: bool
    batch_size: int
    raw: bool = False
    has_top_k: bool = False
    priority: int = 0
    timeout_us: int = 0
    sequence: Sequence | None = None
    empty_final: bool = False
    arrived_ns: int = 0
    spans: list[Span] | None = None
    callers: tuple[str, ...] = ()
    trace: "Trace | None" = None
    copied_bytes: int = 0
    takes_errors: bool = False
    batch_key: object = None
    sample: Any = None
    queued_ns: int = 0
    started_ns: int = 0
    computing_ns: int = 0
    computed_ns: int = 0
    ended_ns: int = 0
    answered_ns: int = 0
    cpu_ns: int = 0
    shared: bool = False
    ran_again: bool = False

    # A field each; most are given by name, or left out.
    def __init__(  # noqa: PLR0913
        self,
        model: str,
        version: str = "",
        id: str = "",
        inputs: list[Tensor] | None = None,
        outputs: list[WantedOutput] | None = None,
        parameters: Parameters | None = None,
        binary_output: bool = False,
        batch_size: int = 1,
    ) -> None:
        self.model = model
        self.version = version
        self.id = id
        # A default list in the signature would be shared by all requests.
        self.inputs = [] if inputs is None else inputs
        self.outputs = [] if outputs is None else outputs
        self.parameters = {} if parameters is None else parameters
        self.binary_output = binary_output
        self.batch_size = batch_size

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        """Return function and arguments for a copy."""
        return _request_with, (self.asdict(),)


def _request_with(fields: dict[str, Any]) -> InferRequest:
    request = InferRequest(fields["model"])
    for name, value in fields.items():
        setattr(request, name, value)
    return request


class InferResponse(Record):
    """One answer. `final` is false while more answers to the same request are to come.

    `error` is an error that a decoupled model gives in place of one answer, and may follow with
    more answers; only a reader whose request `takes_errors` sees it.
    """

    def __init__(  # noqa: PLR0913
        self,
        model: str,
        version: str,
        id: str = "",
        outputs: list[Tensor] | None = None,
        parameters: Parameters | None = None,
        final: bool = True,
        error: InferdError | None = None,
    ) -> None:
        self.model = model
        self.version = version
        self.id = id
        self.outputs = [] if outputs is None else outputs
        self.parameters = {} if parameters is None else parameters
        self.final = final
        self.error = error


def wanted_of(request: InferRequest, response: InferResponse) -> list[WantedOutput]:
    """Return those outputs named by `request` that `response` has, in the request's order."""
    if len(request.outputs) == len(response.outputs):
        # The usual case: everything that was asked for is there.
        return request.outputs  # an answer never has outputs that were not asked for
    names = {tensor.name for tensor in response.outputs}
    return [output for output in request.outputs if output.name in names]


class Round(InferResponse):
    """The result of one of a request's possibly many executions (Triton, Iterative Sequences).

    With `again` the model wants the request once more. `answers`, of a decoupled model, go to the
    client now. `outputs` are only the states to keep.
    """

    # Those that travel to and from workers; the rest are those of an answer to a client.
    _fields = ("model", "version", "outputs", "answers", "again")

    def __init__(
        self,
        model: str,
        version: str,
        outputs: list[Tensor] | None = None,
        answers: list[InferResponse] | None = None,
        again: bool = False,
    ) -> None:
        super().__init__(model, version, outputs=outputs)
        self.answers = [] if answers is None else answers
        self.again = again
