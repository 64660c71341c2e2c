"""Trace: the record of one traced request, and Triton's names for its timestamps."""

import re
from collections.abc import Iterator
from itertools import count
from time import perf_counter_ns
from typing import NamedTuple

from inferd.config.options.trace import TENSORS, TIMESTAMPS, TraceSettings
from inferd.errors import Code, InferdError
from inferd.tensor.tensor import Tensor

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Parent(NamedTuple):
    """The ids of a span; `is_sampled`: the client records it and wants its children recorded."""

    trace_id: int
    span_id: int
    is_sampled: bool


def read_parent(traceparent: str) -> Parent | None:
    """Return the parent in the header `traceparent`, None when the header is invalid.

    Version 00 has exactly four fields; later versions may have more.
    """
    match = _TRACEPARENT.fullmatch(traceparent.strip())
    # A version of ff is invalid (W3C Trace Context, section 2.2.1).
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
        return None
    parent = Parent(int(match[2], 16), int(match[3], 16), bool(int(match[4], 16) & 1))
    # All zeros are invalid as well (section 2.2.2).
    return parent if parent.trace_id and parent.span_id else None


HTTP_RECV_START, HTTP_RECV_END = "HTTP_RECV_START", "HTTP_RECV_END"
HTTP_SEND_START, HTTP_SEND_END = "HTTP_SEND_START", "HTTP_SEND_END"
GRPC_WAITREAD_START, GRPC_WAITREAD_END = "GRPC_WAITREAD_START", "GRPC_WAITREAD_END"
GRPC_SEND_START, GRPC_SEND_END = "GRPC_SEND_START", "GRPC_SEND_END"
REQUEST_START, REQUEST_END = "REQUEST_START", "REQUEST_END"
QUEUE_START = "QUEUE_START"
COMPUTE_START, COMPUTE_END = "COMPUTE_START", "COMPUTE_END"
COMPUTE_INPUT_END, COMPUTE_OUTPUT_START = "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START"
INFER_RESPONSE_COMPLETE = "INFER_RESPONSE_COMPLETE"

TENSOR_QUEUE_INPUT = "TENSOR_QUEUE_INPUT"
TENSOR_BACKEND_INPUT = "TENSOR_BACKEND_INPUT"
TENSOR_BACKEND_OUTPUT = "TENSOR_BACKEND_OUTPUT"

MAX_TENSOR_BYTES = 1 << 20
"""A larger tensor is traced without its data."""

MAX_TRACE_BYTES = 1 << 22
"""Limit of a trace and its children; tensors beyond it are traced without their data."""

MAX_TENSORS = 1000
"""Limit per trace; further ones are left out."""

MAX_STAMPS = 10_000
"""Limit per trace, which may be that of a stream of answers; further ones are left out."""

MAX_CHILDREN = 1000
"""Limit per trace, children of children included; further ones are left out."""

MAX_TEXT = 1000
"""Names and ids that clients chose are cut to this length."""

_OWN_BYTES = 1000  # about what an empty trace takes
_STAMP_BYTES = 100


class TracedTensor(NamedTuple):
    """A copy of a tensor at one stage of its request; without its data if it is large."""

    activity: str
    tensor: Tensor
    has_data: bool


class Budget:
    """What a trace and its children hold together; `numbers` yields ids for new children."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self.numbers = numbers
        self.size_bytes = 0
        self.child_count = 0


class Trace:
    """The timestamps, and if wanted the tensors, of one request; `id` is unique in the server.

    Timestamps come from time.perf_counter_ns. `version` is "" until one has been chosen.
    `parent` is the client's span that the request belongs to. `children` are the traces of requests
    made to answer this one; they share its `budget`. `error` is the errors.Code of the request's
    failure, "" if it has not failed.
    """

    def __init__(
        self,
        number: int,
        model: str,
        settings: TraceSettings,
        parent: Parent | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.id = number
        # Only of traces without a tracer, in tests and tools: ids must differ within a trace.
        self._budget = budget or Budget(count(number + 1))
        self._budget.size_bytes += _OWN_BYTES
        self.model = model[:MAX_TEXT]
        self.settings = settings
        self.parent = parent
        self.children: list[Trace] = []
        self.version = ""
        self.request_id = ""
        self.error = ""
        self.stamps: list[tuple[str, int]] = []
        self.tensors: list[TracedTensor] = []

    @property
    def size_bytes(self) -> int:
        """The memory of the trace and of all that share its budget, about."""
        return self._budget.size_bytes

    def child(self, model: str) -> "Trace | None":
        """Begin the trace of a request to `model` made for this one; None if there are too many."""
        budget = self._budget
        if budget.child_count >= MAX_CHILDREN:
            return None
        budget.child_count += 1
        child = Trace(next(budget.numbers), model, self.settings, budget=budget)
        self.children.append(child)
        return child

    def stamp(self, name: str, ns: int = 0) -> None:
        """Record the timestamp `name`, as now or `ns`."""
        if TIMESTAMPS in self.settings.levels and len(self.stamps) < MAX_STAMPS:
            self.stamps.append((name, ns or perf_counter_ns()))
            self._budget.size_bytes += _STAMP_BYTES

    def fail(self, error: BaseException) -> None:
        """Record that the request ended with `error`."""
        if isinstance(error, InferdError):
            self.error = error.code.value
        elif isinstance(error, Exception):
            self.error = Code.INTERNAL.value
        else:  # its task was cancelled, or its generator closed
            self.error = Code.CANCELLED.value

    @property
    def wants_tensors(self) -> bool:
        """Whether tensors are to be recorded."""
        return TENSORS in self.settings.levels

    def note_tensors(self, activity: str, tensors: list[Tensor]) -> None:
        """Record copies of `tensors`: their memory may change before the trace is written."""
        for tensor in tensors[: MAX_TENSORS - len(self.tensors)]:
            size = tensor.size_bytes
            has_data = (
                size <= MAX_TENSOR_BYTES and self._budget.size_bytes + size <= MAX_TRACE_BYTES
            )
            # A copy, since the tensor may be a view of shared memory or of a body that is received
            # into again.
            data = bytes(tensor.view()) if has_data else b""
            copy = Tensor(tensor.name, tensor.datatype, tensor.shape, data)
            self.tensors.append(TracedTensor(activity, copy, has_data))
            self._budget.size_bytes += len(data)

    def repeat_tensors(self, of: str, activity: str) -> None:
        """Record the tensors of the activity `of` again, as those of `activity`."""
        # The same copy: what reaches the backend is what was queued.
        again = [one._replace(activity=activity) for one in self.tensors if one.activity == of]
        self.tensors += again
