"""Calls: what a model asks of the server: requests to other models, and other commands."""

from __future__ import annotations

import contextlib
import itertools
from contextvars import ContextVar
from typing import Any, Callable, Optional

from .. import packet
from ..line import Line, LineClosed
from .error import TritonError, TritonModelException
from .response import InferenceResponse
from .tensor import read_tensor

MAX_LOGGED = 64 << 10

executing: ContextVar[int] = ContextVar("executing", default=0)
"""The number of the request in execution, to which calls belong; 0 if there are several.

A call without a trace of its own belongs to the trace of this request.
"""


Describe = Callable[[packet.Payload, Optional[Line]], tuple[Any, int]]
"""Returns the packet's description of a request: a tuple, or a list if it cannot be hashed.

Second the number of the received request to whose trace it belongs, -1 if that is the one in
execution. The tensors go to the payload, unless they lie in memory of the server that the line
knows.
"""


class PendingCall:
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
                # The reply is read by another thread; futures belong to that of their loop.
                self.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Calls:
    """What a model reaches from anywhere: its calls of the server, and the server's log.

    `loop` is the event loop that reads the line, if one does.

    While the model `is_starting`, it can call no other, and while it `is_completing`, in
    auto_complete_config, nobody answers anything. `callers` are the models that wait for the
    latest batch.
    """

    def __init__(self, line: Line) -> None:
        self.line = line
        self.is_starting = True
        self.is_completing = False
        self.callers: list[str] = []
        # next() of a count is atomic under the interpreter's lock, and any thread may call.
        self._numbers = itertools.count(1)
        self._pending: dict[int, PendingCall] = {}
        self.readers: dict[Any, int] = {}
        self.loop: Any = None
        self.version_folder = ""
        self.output_names: list[str] = []

    def log(self, level: int, text: str) -> None:
        """Have the server log `text`: 0 info, 1 warning, 2 error, 3 verbose."""
        # Cut here: a line of a gigabyte would go through the link before the server could drop it.
        self.line.send(packet.LOG, [level, text[:MAX_LOGGED]])

    def wait(self, pending: PendingCall) -> Any:
        """Return the next reply of a call."""
        try:
            self.line.wait(lambda: pending.replies)
        except LineClosed:
            return InferenceResponse(error=TritonError("the server has gone"))
        return pending.replies.pop(0)

    def hang_up(self, pending: PendingCall) -> None:
        """Tell the server that no more replies are wanted; a finalizer may call this."""
        if self._pending.pop(pending.number, None) is not None and not pending.is_over:
            # Unwaiting, as a finalizer may run in any thread and at any line,
            # one that holds the line's lock too.
            self.line.send_unwaiting(packet.HANG_UP, [], (pending.number, 0, 0))

    def send(self, describe: Describe, *, decoupled: bool, loop: Any = None) -> PendingCall:
        """Send a call and return where its replies arrive; `loop` is the loop that awaits them.

        `describe` writes the request. Raises TritonModelException.
        """
        if self.is_starting:
            raise TritonModelException("other models can be called only while execute runs")
        payload = packet.Payload()
        # Received bytes are only named, where this waits for the answer and so keeps them.
        document, parent = describe(payload, self.line if loop is None and not decoupled else None)
        whole: Any = (document, decoupled, tuple(self.callers))
        if type(document) is list:  # it cannot be hashed
            whole = list(whole)
        if parent < 0:
            parent = executing.get()
        return self._begin(packet.CALL, whole, payload, parent, loop)

    def command(self, verb: str, *arguments: Any) -> Any:
        """Run a command on the server and return its answer. Raises TritonModelException."""
        if self.is_completing:
            raise TritonModelException("auto_complete_config cannot ask the server for anything")
        answer = self.wait(self._begin(packet.COMMAND, [verb, list(arguments)]))
        if isinstance(answer, InferenceResponse):
            error = answer.error()
            raise TritonModelException(error.message() if error is not None else "no answer")
        return answer

    def _begin(
        self, kind: int, document: Any, payload: Any = None, parent: int = 0, loop: Any = None
    ) -> PendingCall:
        pending = PendingCall(next(self._numbers))
        pending.loop = loop
        # Before it is sent: the reply may come before send() returns.
        self._pending[pending.number] = pending
        try:
            self.line.send(kind, document, payload, (pending.number, parent, 0))
        except BaseException:
            del self._pending[pending.number]
            raise
        return pending

    def reply(self, number: int, document: list[Any], data: Any) -> None:
        """Take a reply of the server; called by whichever thread reads the line."""
        _, is_last, what = document
        pending = self._pending.get(number)
        # Hung up meanwhile: replies that were on their way are dropped.
        if pending is None:
            return
        if is_last:
            del self._pending[number]
        pending.put(_read(what, data), is_last=is_last)

    def credit(self, pending: PendingCall) -> None:
        """Tell the server that one more reply was consumed."""
        if not pending.is_over:
            self.line.send(packet.CREDIT, [], None, (pending.number, 0, 0))


# A list, which can be filled without `global`; a module that is copied for a thread has its own.
_current: list[Calls] = []


def current_calls() -> Calls:
    """Return the calls of this process, for module-level functions.

    Raises TritonModelException outside of a process that runs a model.
    """
    if not _current:
        raise TritonModelException("this works only where a server runs the model")
    return _current[0]


def set_calls(one: Calls) -> None:
    """Make `one` the calls of this process."""
    _current[:] = [one]


def _read(what: list[Any], data: Any) -> Any:
    """Return the response that a reply describes, or the value."""
    kind, *rest = what
    if kind == "value":
        return rest[0]
    if kind == "error":
        return InferenceResponse(error=TritonError(rest[1], rest[0]))
    outputs, parameters, name, version, id = rest
    response = InferenceResponse(parameters=parameters)
    # Past the constructor, whose checks are for what models give.
    response._tensors = [read_tensor(described, data) for described in outputs]
    response.model_name, response.model_version, response.id = name, version, id
    return response
