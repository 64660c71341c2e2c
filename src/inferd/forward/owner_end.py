"""OwnerEnd: the end of a link at which requests of another process arrive and run.

They have been checked and counted where they came from, so they go to the scheduler of their
version directly. A request has no task unless it waits for something other than a promise.
"""

import asyncio
from collections.abc import Callable

from inferd.aio.driver import Driver
from inferd.core.request import InferRequest, InferResponse
from inferd.forward.failure import cancelled, known
from inferd.forward.frame_line import FrameLine
from inferd.forward.heads import SequenceName, decode_sequence
from inferd.forward.line import YES, FrameKind
from inferd.forward.message import Requests, encode_answer, encode_end
from inferd.forward.owned import Owned, OwnedVersions
from inferd.forward.owner_stream import OwnerStream


class OwnerEnd:
    """Runs what arrives on `line`, on versions that are among `versions`.

    `gone` is called when the line has ended, `done` when its origin has no more clients.
    """

    def __init__(
        self,
        versions: OwnedVersions,
        gone: Callable[["OwnerEnd"], None],
        done: Callable[["OwnerEnd"], None],
    ) -> None:
        # The origin is a client to this end: if it does not read, no more is taken from it.
        self.line = FrameLine(self._receive, self._lost, waits_for_reader=True)
        self._versions = versions
        self._gone = gone
        self._done = done
        self._running: dict[int, _Run | OwnerStream] = {}
        # For each line, as the origin's processes may differ in what they send.
        self._requests = Requests()
        self._due: list[Driver] = []

    def dismiss(self) -> None:
        """Have the origin send no more, and end the line when it waits for nothing."""
        self.line.send(FrameKind.DISMISSAL, 0, b"")

    def close(self) -> None:
        """End now; nobody waits any more for what runs."""
        self.line.close()
        self._cancel_all()

    def _lost(self, why: str) -> None:
        del why
        self._cancel_all()
        self._gone(self)

    def _cancel_all(self) -> None:
        running, self._running = self._running, {}
        for one in running.values():
            one.cancel()

    def _receive(self, kind: int, number: int, head: memoryview, data: memoryview) -> None:
        # A number that is under way already is nonsense, and falls through to the error.
        if kind in (FrameKind.REQUEST, FrameKind.STREAM) and number not in self._running:
            self._begin(kind, number, *self._requests.decode(head, data))
        elif kind == FrameKind.CANCEL:
            # The end may have been sent already: then the cancellation came too late.
            if (one := self._running.pop(number, None)) is not None:
                one.cancel()
                self.line.send(FrameKind.END, number, encode_end(one.request, cancelled()))
        elif kind == FrameKind.CREDIT:
            stream = self._running.get(number)
            if len(head) != 1 or isinstance(stream, _Run):
                raise ValueError(f"credit for request {number}, which has one answer")
            if stream is not None:
                stream.give(head[0])
        elif kind == FrameKind.HAS:
            # After all that has arrived by now: on another line its first request may have.
            name = decode_sequence(head)
            asyncio.get_running_loop().call_soon(self._tell, number, name)
        elif kind == FrameKind.LAST:
            self._done(self)
        else:
            raise ValueError(f"a frame of kind {kind} for request {number}")

    def _tell(self, number: int, name: SequenceName) -> None:
        """Answer whether a sequence lives here."""
        has_it = self._versions.has_sequence(*name)
        self.line.send(FrameKind.HAS, number, YES if has_it else b"")

    def _begin(self, kind: int, number: int, request: InferRequest, form: bytes) -> None:
        try:
            owned = self._versions.find(request, form)
            if kind == FrameKind.STREAM:
                self._running[number] = OwnerStream(self.line, self.leave, number, request, owned)
                return
            response = owned.run_here_now(request)
        except Exception as error:  # noqa: BLE001  it is the request's
            self.line.send(FrameKind.END, number, encode_end(request, known(error)))
            return
        if response is not None:
            self.answer(number, request, response, owned)
            return
        # Noted before it begins: it may end in `begin`.
        self._running[number] = run = _Run(self, number, request, owned)
        run.begin()

    def answer(
        self, number: int, request: InferRequest, response: InferResponse, owned: Owned
    ) -> None:
        """Send the one answer to a request, or what is wrong with it."""
        try:
            owned.check(request, response)
            head, data = encode_answer(request, response)
        except Exception as error:  # noqa: BLE001  it is the request's
            self.line.send(FrameKind.END, number, encode_end(request, known(error)))
        else:
            self.line.send(FrameKind.END, number, head, data)

    def leave(self, number: int) -> bool:
        """Note that a request has run; return whether its origin still waits for it."""
        return self._running.pop(number, None) is not None

    def go_on_soon(self, driver: Driver) -> None:
        """Let `driver` go on in a moment, after whoever woke it."""
        if not self._due:
            # Not at once: whoever fulfils a promise is in the middle of its work.
            asyncio.get_running_loop().call_soon(self._go_on)
        self._due.append(driver)

    def _go_on(self) -> None:
        due, self._due = self._due, []
        for driver in due:
            driver.go_on()


class _Run:
    """A request with one answer, under way."""

    def __init__(self, end: OwnerEnd, number: int, request: InferRequest, owned: Owned) -> None:
        self._end = end
        self._number = number
        self._owned = owned
        self.request = request
        self._driver: Driver | None = None

    def begin(self) -> None:
        """Run it until it waits or ends."""
        running = self._owned.run_here(self.request)
        self._driver = driver = Driver(running, self._woken, self._ended)
        driver.step()

    def cancel(self) -> None:
        """Note that nobody waits for it."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.cancel()

    def _woken(self) -> None:
        if self._driver is not None:
            self._end.go_on_soon(self._driver)

    def _ended(self, response: InferResponse | None, error: BaseException | None) -> None:
        end, number = self._end, self._number
        self._driver = None  # which refers to this
        if not end.leave(number):
            return
        if response is not None:
            end.answer(number, self.request, response, self._owned)
        elif error is not None:
            end.line.send(FrameKind.END, number, encode_end(self.request, known(error)))
