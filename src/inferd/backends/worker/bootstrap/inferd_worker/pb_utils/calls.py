"""Calls: what a model asks of the server: requests to other models, and other commands."""

from __future__ import annotations

import contextlib
import itertools
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .. import packet
from ..line import LineClosed, Payload
from .awaiting import Responses, begin_run
from .error import TritonError, TritonModelException
from .response import InferenceResponse
from .tensor import read_tensor, write_tensor

if TYPE_CHECKING:
    from ..worker import Worker
    from .request import InferenceRequest

executing: ContextVar[int] = ContextVar("executing", default=0)
"""The number of the request in execution, to which calls belong; 0 if there are several.

A call without a trace of its own belongs to the trace of this request.
"""


class Slot:
    """Where the replies to one call arrive."""

    __slots__ = ("is_over", "loop", "number", "replies", "waiter")

    def __init__(self, number: int) -> None:
        self.number = number
        self.replies: list[Any] = []
        self.is_over = False
        self.loop: Any = None
        self.waiter: Any = None

    def put(self, reply: Any, *, is_last: bool) -> None:
        """Take one reply."""
        self.is_over = is_last
        self.replies.append(reply)
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # that loop has closed
                self.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Calls:
    """The calls of one worker. `loop` is the event loop that reads the line, if one does."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._numbers = itertools.count(1)
        self._slots: dict[int, Slot] = {}
        self.readers: dict[Any, int] = {}
        self.loop: Any = None

    # --- requests to other models ---

    def run(self, request: InferenceRequest, *, decoupled: bool) -> Any:
        """See InferenceRequest.exec."""
        slot = self.send(request, decoupled=decoupled)
        if decoupled:
            return Responses(self, slot)
        return self.wait(slot)

    def run_async(self, request: InferenceRequest, *, decoupled: bool) -> Any:
        """See InferenceRequest.async_exec."""
        return begin_run(self, request, decoupled=decoupled)

    def wait(self, slot: Slot) -> Any:
        """Return the next reply of a slot."""
        try:
            self.worker.line.wait(lambda: slot.replies)
        except LineClosed:
            return InferenceResponse(error=TritonError("the server has gone"))
        return slot.replies.pop(0)

    def hang_up(self, slot: Slot) -> None:
        """Tell the server that no more replies are wanted; a finalizer may call this."""
        if self._slots.pop(slot.number, None) is not None and not slot.is_over:
            self.worker.line.send_unwaiting(packet.HANG_UP, [slot.number])

    def send(self, request: InferenceRequest, *, decoupled: bool, loop: Any = None) -> Slot:
        """Send a call and return the slot for its replies; `loop` is the loop that awaits them.

        Raises TritonModelException.
        """
        worker = self.worker
        if worker.is_starting:
            raise TritonModelException("other models can be called only while execute runs")
        if request._open is not None:
            raise TritonModelException("a request that has come cannot be sent; make a new one")
        payload = Payload()
        # Received bytes are only named, where this waits for the answer and so keeps them.
        lender = worker.line if loop is None and not decoupled else None
        parameters = request._parameters
        odd = packet.odd_numbers(parameters) if parameters else None
        if odd:
            parameters = {name: value for name, value in parameters.items() if name not in odd}
        document: tuple[Any, ...] = (
            request._model,
            request._version,
            request._id,
            tuple([write_tensor(tensor, payload, lender) for tensor in request._inputs]),
            tuple(request._outputs or ()),
            parameters or None,
            request._correlation_id,
            request._flags,
            request._timeout,
            request._priority,
        )
        if odd:
            document = (*document, odd)
        slot = self._slot(loop)
        try:
            whole: Any = (document, decoupled, tuple(worker.callers))
            if request._parameters:  # a dictionary cannot be hashed
                whole = list(whole)
            trace = request._trace
            parent = trace._number if trace is not None else executing.get()
            worker.line.send(packet.CALL, whole, payload, (slot.number, parent, 0))
        except BaseException:
            del self._slots[slot.number]
            raise
        return slot

    # --- everything else ---

    def command(self, verb: str, *arguments: Any) -> Any:
        """Run a command on the server and return its answer. Raises TritonModelException."""
        if self.worker.is_completing:
            raise TritonModelException("auto_complete_config cannot ask the server for anything")
        slot = self._slot(None)
        try:
            self.worker.line.send(packet.COMMAND, [slot.number, verb, list(arguments)])
        except BaseException:
            del self._slots[slot.number]
            raise
        answer = self.wait(slot)
        if isinstance(answer, InferenceResponse):
            error = answer.error()
            raise TritonModelException(error.message() if error is not None else "no answer")
        return answer

    def _slot(self, loop: Any) -> Slot:
        slot = Slot(next(self._numbers))
        slot.loop = loop
        self._slots[slot.number] = slot
        return slot

    def reply(self, number: int, document: list[Any], data: Any) -> None:
        """Take a reply of the server; called by whichever thread reads the line."""
        _, is_last, what = document
        slot = self._slots.get(number)
        if slot is None:
            return
        if is_last:
            del self._slots[number]
        slot.put(_read(what, data), is_last=is_last)

    def credit(self, slot: Slot) -> None:
        """Tell the server that one more reply was consumed."""
        if not slot.is_over:
            self.worker.line.send(packet.CREDIT, [slot.number])


def _read(what: list[Any], data: Any) -> Any:
    """Return the response that a reply describes, or the value."""
    kind, *rest = what
    if kind == "value":
        return rest[0]
    if kind == "error":
        return InferenceResponse(error=TritonError(rest[1], rest[0]))
    outputs, parameters, name, version, id = rest
    response = InferenceResponse(parameters=parameters)
    response._tensors = [read_tensor(described, data) for described in outputs]
    response.model_name, response.model_version, response.id = name, version, id
    return response
