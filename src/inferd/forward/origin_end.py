"""OriginEnd: the end of a link at which requests set out, many at once, and answers come back."""

import asyncio
from collections.abc import Callable
from time import perf_counter_ns

from inferd.aio.driver import fulfil, reject
from inferd.aio.promise import Promise
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError, Unavailable
from inferd.forward.failure import lost
from inferd.forward.frame_line import FrameLine
from inferd.forward.heads import SequenceName, encode
from inferd.forward.line import YES, FrameKind
from inferd.forward.message import decode_answer, encode_request
from inferd.schedulers.execution.job import share_of

Item = tuple[InferResponse | InferdError | None, int]
"""One of a stream's answers, with its share of what may be under way; None at the end."""


Begun = tuple[int, Promise[InferResponse]]
"""A request's number, and its one answer."""


BegunStream = tuple[int, "asyncio.Queue[Item]"]
"""A request's number, and its answers as they come."""


Left = Callable[[InferRequest], None]
"""Told of what has run there for a request that nobody waited for any more: its times."""


class _OneAnswer:
    """A request whose answer is awaited."""

    def __init__(self, request: InferRequest, done: Promise[InferResponse]) -> None:
        self.request = request
        self.done = done

    def end(self, response: InferResponse, error: InferdError | None) -> None:
        """Hand over the outcome."""
        # Its caller has left, or its time is over.
        if self.done.done():
            return
        if error is not None:
            reject(self.done, error)
        else:
            # On this event loop, as for a thread's answers.
            self.request.answered_ns = perf_counter_ns()
            fulfil(self.done, response)

    def fail(self, error: InferdError) -> None:
        """Hand over the error."""
        if not self.done.done():
            reject(self.done, error)


class _Answers:
    """A request whose answers are read one by one."""

    def __init__(self, request: InferRequest) -> None:
        self.request = request
        self.items: asyncio.Queue[Item] = asyncio.Queue()

    def end(self, response: InferResponse, error: InferdError | None) -> None:
        """Note the end, or the error that comes instead of it."""
        del response
        self.items.put_nowait((error, 0))

    def fail(self, error: InferdError) -> None:
        """Note the error that comes instead of the end."""
        self.items.put_nowait((error, 0))


class _Question:
    """A question whether a sequence lives there; those of a process that ends do not."""

    def __init__(self, done: Promise[bool]) -> None:
        self.done = done

    def answer(self, *, is_so: bool) -> None:
        """Hand over the answer."""
        if not self.done.done():
            fulfil(self.done, is_so)

    def fail(self, error: InferdError) -> None:
        """Note that the link has ended."""
        del error
        self.answer(is_so=False)


class OriginEnd:
    """A link to process `number`, which listens at `path`; `line` connects it.

    Numbers are given to requests in order, and never again. `gone` is called with this end when the
    link has ended; what was under way has failed then.
    """

    def __init__(self, number: int, path: str, gone: Callable[["OriginEnd"], None]) -> None:
        self.number = number
        self.path = path
        self.line = FrameLine(self._receive, self._lost)
        self._gone = gone
        self._calls: dict[int, _OneAnswer | _Answers | _Question] = {}
        # Numbers whose END is still to come: frames for others are nonsense.
        self._given_up: set[int] = set()
        # Those of them of which nothing was heard, with their batch size: the END says if they ran.
        self._left: dict[int, tuple[int, Left]] = {}
        self._last = 0
        self.is_retired = False
        """Whether new requests go elsewhere."""

    @property
    def is_open(self) -> bool:
        """Whether requests can set out."""
        return self.line.is_open

    def retire(self) -> None:
        """End once nothing is under way: new requests go elsewhere."""
        self.is_retired = True
        self._end_if_idle()

    def say_last(self) -> None:
        """Tell the owner that this process has no more requests of clients."""
        self.line.send(FrameKind.LAST, 0, b"")

    def close(self) -> None:
        """End now."""
        self.line.close()
        self._fail_all("is not reached any more, as this one is closing")

    def begin(self, request: InferRequest, version: str, form: bytes) -> Begun:
        """Send `request`, checked for `version` and its `form`. Raises InferdError.

        Whoever stops waiting for it calls `give_up`.
        """
        done: Promise[InferResponse] = Promise(loop=asyncio.get_running_loop())
        return self._set_out(FrameKind.REQUEST, _OneAnswer(request, done), version, form), done

    def begin_stream(self, request: InferRequest, version: str, form: bytes) -> BegunStream:
        """Send `request` to a decoupled model, as `begin` does.

        Its reader gives back the share of each answer that it takes, by `credit`.
        """
        answers = _Answers(request)
        return self._set_out(FrameKind.STREAM, answers, version, form), answers.items

    async def has_sequence(self, model: str, version: str, id: int | str) -> bool:
        """Return whether a sequence lives there; requests sent before may have begun it."""
        if not self.is_open:
            return False
        try:
            head = encode(SequenceName(model, version, id))
        except (UnicodeEncodeError, OverflowError):  # an id that cannot be passed on
            return False
        done: Promise[bool] = Promise(loop=asyncio.get_running_loop())
        self._last = number = self._last + 1
        self._calls[number] = _Question(done)
        self.line.send(FrameKind.HAS, number, head)
        return await done

    def credit(self, number: int, share: int) -> None:
        """Let the answers of a stream be `share` further ahead of their reader."""
        # A share is at most STREAM_AHEAD, so one byte.
        self.line.send(FrameKind.CREDIT, number, bytes((share,)))

    def _set_out(self, kind: int, call: _OneAnswer | _Answers, version: str, form: bytes) -> int:
        if not self.is_open:
            raise Unavailable(f"process {self.number} of the server has just ended")
        # Before the number is used: a request that cannot be encoded leaves no trace.
        head, data = encode_request(call.request, version, form)
        self._last = number = self._last + 1
        self._calls[number] = call
        self.line.send(kind, number, head, data)
        return number

    def give_up(self, number: int, left: Left | None = None) -> None:
        """Ask for no more of a request, unless it has ended; its end comes even so.

        `left` is told then, if the request had begun to run and nobody here knew.
        """
        call = self._calls.pop(number, None)
        if call is None:
            return
        self._given_up.add(number)
        if left is not None and not isinstance(call, _Question) and not call.request.started_ns:
            self._left[number] = call.request.batch_size, left
        self.line.send(FrameKind.CANCEL, number, b"")

    def _receive(self, kind: int, number: int, head: memoryview, data: memoryview) -> None:
        call = self._calls.get(number)
        # Has number 0, which is no request's.
        if kind == FrameKind.DISMISSAL:
            self.retire()
            return
        if call is None:
            self._drop(kind, number, head, data)
        elif isinstance(call, _Question):
            if kind != FrameKind.HAS:
                raise ValueError(f"a frame of kind {kind} for a question")
            del self._calls[number]
            call.answer(is_so=head == YES)
        elif kind == FrameKind.END:
            response, error = decode_answer(call.request, head, data)
            del self._calls[number]
            call.end(response, error)
            del error
        elif kind == FrameKind.ANSWER and isinstance(call, _Answers):
            response, _ = decode_answer(call.request, head, data)
            call.items.put_nowait((response, share_of(response)))
        else:
            raise ValueError(f"a frame of kind {kind} for request {number}")
        if self.is_retired:
            self._end_if_idle()

    def _drop(self, kind: int, number: int, head: memoryview, data: memoryview) -> None:
        """Take what still comes for a request that was given up."""
        if number not in self._given_up:
            raise ValueError(f"a frame of kind {kind} for request {number}, which there is not")
        if kind == FrameKind.END:
            self._given_up.discard(number)
        # The first that is heard of it has the times.
        if (waited_for := self._left.pop(number, None)) is not None:
            batch_size, left = waited_for
            # Not the request itself: that has been counted, and may be gone.
            ran = InferRequest("", batch_size=batch_size)
            decode_answer(ran, head, data)
            # What requests shared is counted where it ran.
            if ran.started_ns and not ran.shared:
                left(ran)

    def _end_if_idle(self) -> None:
        if self.is_retired and not self._calls and self.is_open:
            self.line.close()
            self._gone(self)

    def _lost(self, why: str) -> None:
        self._fail_all(why)
        self._gone(self)

    def _fail_all(self, why: str) -> None:
        # Emptied first: who is told may send another request at once.
        calls, self._calls = self._calls, {}
        self._given_up.clear()
        self._left.clear()
        for call in calls.values():
            call.fail(lost(self.number, why))
