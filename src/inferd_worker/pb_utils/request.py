"""InferenceRequest: a request to this model, or from it to other models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..compiled import mypyc_attr
from ..packet import even_numbers, odd_numbers
from .awaiting import Responses, begin_run
from .calls import current_calls
from .error import TritonModelException, WrongType, kind_of
from .given import number_given, text_given
from .response import InferenceResponseSender, as_json, checked_parameters
from .tensor import Tensor, named, read_tensor, write_tensor

if TYPE_CHECKING:
    from ..line import Line
    from ..open import OpenRequest
    from ..packet import Payload

# The values are those of tritonserver.h, which models may have written out.
TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 1, 2
TRITONSERVER_REQUEST_RELEASE_ALL, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 1, 2
TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_GPU = 0, 1


@mypyc_attr(allow_interpreted_subclasses=True)
class PreferredMemory:
    """Where the outputs of a called model should lie; here that is always CPU memory."""

    __slots__ = ("_device_id", "_type")

    def __init__(self, preferred_memory_type: Any, preferred_device_id: Any = 0) -> None:
        if preferred_memory_type not in (TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_GPU):
            raise TritonModelException(
                f"memory type {preferred_memory_type!r} is neither TRITONSERVER_MEMORY_CPU nor "
                f"TRITONSERVER_MEMORY_GPU"
            )
        self._type = preferred_memory_type
        self._device_id = preferred_device_id


@mypyc_attr(allow_interpreted_subclasses=True)
class InferenceTrace:
    """The trace a request belongs to; `context` is its OpenTelemetry context, if it has one.

    `number` is the number of the received request, 0 if there is none.
    """

    __slots__ = ("_context", "_number")

    def __init__(self, context: Any = None, number: int = 0) -> None:
        self._context = context
        self._number = number

    def get_context(self) -> object:
        """Return the context."""
        return self._context


@mypyc_attr(allow_interpreted_subclasses=True)
class InferenceRequest:
    """A request: one received by this model, or one to be sent to another by exec."""

    __slots__ = (
        "_correlation_id",
        "_flags",
        "_id",
        "_inputs",
        "_model",
        "_open",
        "_outputs",
        "_parameters",
        "_preferred",
        "_priority",
        "_release_flags",
        "_sender",
        "_timeout",
        "_trace",
        "_version",
    )

    def __init__(
        self,
        request_id: Any = "",
        correlation_id: Any = 0,
        inputs: Any = (),
        requested_output_names: Any = (),
        model_name: Any = "",
        model_version: Any = -1,
        flags: Any = 0,
        timeout: Any = 0,
        preferred_memory: Any = None,
        trace: Any = None,
        parameters: Any = None,
    ) -> None:
        self._inputs: list[Tensor] = _listed(inputs, Tensor, "inputs")
        names = _listed(requested_output_names, object, "requested_output_names")
        # Each once: they are a set in Triton, and the server refuses an output named twice.
        self._outputs: list[str] | None = list(
            dict.fromkeys([text_given(name, "an item of requested_output_names") for name in names])
        )
        if not model_name:
            raise TritonModelException("model_name of an InferenceRequest should not be empty")
        self._id = text_given(request_id, "request_id")
        self._correlation_id = _correlation_id(correlation_id)
        self._model = text_given(model_name, "model_name")
        self._version = number_given(model_version, "model_version")
        self._flags = number_given(flags, "flags")
        self._timeout = number_given(timeout, "timeout")
        self._priority = 0
        self._preferred: PreferredMemory | None = preferred_memory
        self._trace: InferenceTrace | None = trace
        self._parameters: dict[str, Any] = checked_parameters(parameters) or {}
        self._open: OpenRequest | None = None
        self._sender: InferenceResponseSender | None = None
        self._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL

    @staticmethod
    def _arrived(one: OpenRequest, document: list[Any], data: Any) -> InferenceRequest:
        """Return the request that a packet describes."""
        # Without __init__, whose checks are for models: the server has checked what it sends.
        request = InferenceRequest.__new__(InferenceRequest)
        request._id, inputs, request._outputs, parameters, more = document
        request._inputs = [read_tensor(described, data) for described in inputs]
        request._parameters = parameters or {}
        # Absent in most packets, so that their documents are short and alike.
        if more:
            request._correlation_id, request._flags, request._timeout, request._priority, odd = more
            if odd:
                request._parameters = even_numbers(parameters, odd)
        else:
            request._correlation_id = request._flags = request._timeout = request._priority = 0
        request._model, request._version = "", -1
        request._preferred = request._trace = None
        request._open = one
        request._sender = None
        request._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
        return request

    def inputs(self) -> list[Tensor]:
        """Return the inputs, without optional ones that were not given."""
        return self._inputs

    def request_id(self) -> str:
        """Return the client's id of the request."""
        return self._id

    def correlation_id(self) -> int | str:
        """Return the sequence it belongs to, 0 for none."""
        return self._correlation_id

    def flags(self) -> int:
        """Return the sum of TRITONSERVER_REQUEST_FLAG_SEQUENCE_START and _END, if set."""
        return self._flags

    def set_flags(self, flags: object) -> None:
        """Set the flags."""
        self._flags = number_given(flags, "flags")

    def timeout(self) -> int:
        """Return the timeout in microseconds, 0 for none."""
        return self._timeout

    def priority(self) -> int:
        """Return the priority level, 0 for the model's default."""
        return self._priority

    def parameters(self) -> str:
        """Return the parameters as JSON."""
        return as_json(self._parameters)

    def requested_output_names(self) -> set[str]:
        """Return the names of the requested outputs: all of them if none were requested by name."""
        names = current_calls().output_names if self._outputs is None else self._outputs
        return set(names)

    def preferred_memory(self) -> PreferredMemory | None:
        """Return where the outputs should lie."""
        return self._preferred

    def trace(self) -> InferenceTrace:
        """Return the trace it belongs to."""
        if self._trace is None:
            self._trace = InferenceTrace(number=self._open.number if self._open else 0)
        return self._trace

    def is_cancelled(self) -> bool:
        """Return whether the client has cancelled the request."""
        return self._open.look() if self._open is not None else False

    def get_response_sender(self) -> InferenceResponseSender:
        """Return the sender of its responses; once it is taken, execute returns None."""
        if self._open is None:
            raise TritonModelException("only a request that has come has a response sender")
        if self._sender is None:
            self._sender = InferenceResponseSender(self._open)
            # From now on a None from execute is right: the answer may come later, from any thread.
            self._open.has_sender = True
        return self._sender

    def set_release_flags(self, flags: object) -> None:
        """Set what happens to the request after execute: TRITONSERVER_REQUEST_RELEASE_..."""
        number = number_given(flags, "flags")
        if number not in (
            TRITONSERVER_REQUEST_RELEASE_ALL,
            TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
        ):
            raise TritonModelException(f"release flags {number} are not known")
        self._release_flags = number

    def exec(self, decoupled: object = False) -> object:
        """Run the request on the model it names; return the response, which holds any error.

        With `decoupled`, return an iterator over any number of responses.
        """
        calls = current_calls()
        pending = calls.send(self._describe, decoupled=bool(decoupled))
        return Responses(calls, pending) if decoupled else calls.wait(pending)

    def async_exec(self, decoupled: object = False) -> object:
        """Return an awaitable of the result of exec; several may run at once."""
        return begin_run(current_calls(), self._describe, decoupled=bool(decoupled))

    def _describe(self, payload: Payload, lender: Line | None) -> tuple[Any, int]:
        """See Describe."""
        if self._open is not None:
            raise TritonModelException("a request that has come cannot be sent; make a new one")
        parameters = self._parameters
        odd = odd_numbers(parameters) if parameters else None
        if odd:
            parameters = {name: value for name, value in parameters.items() if name not in odd}
        document: Any = (
            self._model,
            self._version,
            self._id,
            # Tuples, as the document is looked up among those sent before.
            tuple([write_tensor(tensor, payload, lender) for tensor in self._inputs]),
            tuple(self._outputs or ()),
            parameters or None,
            self._correlation_id,
            self._flags,
            self._timeout,
            self._priority,
        )
        if odd:
            document = (*document, odd)
        trace = self._trace
        parent = trace._number if trace is not None else -1
        # Parameters are a dict, which cannot be hashed.
        return list(document) if self._parameters else document, parent

    def __repr__(self) -> str:
        return f"InferenceRequest(id={self._id!r}, inputs={self._inputs!r})"


def get_input_tensor_by_name(inference_request: InferenceRequest, name: object) -> Tensor | None:
    """Return the input called `name`, or None."""
    return named(inference_request._inputs, name)


def _correlation_id(given: Any) -> int | str:
    """Return the sequence id `given`, a text or a number."""
    if isinstance(given, (str, bytes)):
        return text_given(given, "correlation_id")
    number = number_given(given, "correlation_id")
    # As the server checks for clients: a control tensor would hold another number.
    if not 0 <= number < 2**64:
        raise WrongType(f"correlation_id is {number}, expected a number from 0 to 2^64 - 1")
    return number


def _listed(given: Any, kind: type, what: str) -> list[Any]:
    if given is None:
        raise TritonModelException(f"{what} of an InferenceRequest should not be empty")
    # A text would be taken for a list of its letters.
    if isinstance(given, (str, bytes)):
        raise WrongType(f"{what} is {kind_of(given)}, expected a list")
    items = list(given)
    for item in items:
        if item is None:
            raise TritonModelException(f"an item of {what} should not be empty")
        if not isinstance(item, kind):
            raise WrongType(f"an item of {what} is {kind_of(item)}, expected {kind.__name__}")
    return items
