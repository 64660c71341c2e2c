"""Worker: runs one instance of a Python model for the server at the other end of the line."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable

from . import packet
from .arena import Arena, ArenaFull, Received
from .line import Line, LineClosed
from .model import ModelFailed, ask, complete, deputed, error_text, full, import_class, shown
from .open import OpenRequest
from .outbox import Outbox, refusal, window_share
from .outcome import hand_over, odd_item, wanted_again
from .pb_utils.calls import Calls, executing
from .pb_utils.config import using_decoupled_model_transaction_policy
from .pb_utils.error import TritonError, TritonModelException, kind_of
from .pb_utils.request import TRITONSERVER_REQUEST_RELEASE_ALL, InferenceRequest
from .pb_utils.response import InferenceResponse

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine

ERROR_LEVEL = 2


class Worker:
    """One model, from its first packet to its last.

    `find` imports its class; see import_class.
    """

    def __init__(
        self,
        sock: socket.socket,
        arena: Arena,
        received: Received,
        find: Callable[[str, str, str], Any] = import_class,
    ) -> None:
        self.line = Line(sock, arena, received, self._receive)
        self._find = find
        self.calls = Calls(self.line)
        self.outbox = Outbox(self.line)
        self._is_iterative = False
        self._is_coroutine = False
        self._loop: asyncio.AbstractEventLoop | None = None  # see _result_of
        self.folder = ""
        self.inbox: deque[tuple[list[Any], Any, int]] = deque()
        self._cancelled: set[int] = set()  # numbers of requests in the inbox
        self.is_ending = False
        self.is_ready_wanted = False
        self.on_news: Callable[[], None] | None = None  # called after each packet
        self._is_saying = False  # while the model's is_ready runs
        self.model: Any = None

    def run(self, serve: Callable[[Worker], Coroutine[object, None, None]]) -> None:
        """Start, execute until the server ends it, and finalize.

        `serve` does that on an event loop, for a model whose execute is a coroutine function.
        """
        try:
            self.line.wait(lambda: self.inbox)
            # START is always the first packet.
            settings = self.inbox.popleft()[0][1]
            if not self._start(settings) or self.calls.is_completing:
                return
            if self._is_coroutine:
                asyncio.run(serve(self))
            else:
                self._serve_until(lambda: False)
        except LineClosed:
            pass
        self._finalize()
        if self._loop is not None:
            self._loop.close()

    def _start(self, settings: dict[str, Any]) -> bool:
        code_folder, self.folder = settings["code_folders"]
        self.calls.version_folder = settings["version_folder"]
        self.outbox.model = settings["args"]["model_name"]
        file = settings["file"]
        done = None
        calls = self.calls
        calls.is_completing = settings["task"] == "complete"
        try:
            kind = self._find(file, code_folder, self.folder)
            if calls.is_completing:
                done = complete(kind, json.loads(settings["args"]["model_config"]))
            else:
                self._initialize(kind, file, settings["args"])
        except ModelFailed as error:
            cause = error.__cause__
            self._fail(str(error), full(cause) if cause is not None else "")
            return False
        except BaseException as error:  # noqa: BLE001  SystemExit, too
            self._fail(error_text(error, self.folder), full(error))
            return False
        # Before READY: a request may follow at once, and call other models.
        calls.is_starting = False
        can_say = callable(getattr(self.model, "is_ready", None))
        is_in_turn = not self.outbox.is_decoupled and not self._is_coroutine
        self.line.send(packet.READY, [done, can_say, is_in_turn])
        return True

    def _fail(self, text: str, trace: str) -> None:
        if trace:
            self.calls.log(ERROR_LEVEL, trace)
        self.line.send(packet.FAILED, [text])

    def _initialize(self, kind: Any, file: str, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self.outbox.is_decoupled = using_decoupled_model_transaction_policy(config)
        sequence = config.get("sequence_batching") or {}
        self._is_iterative = bool(sequence.get("iterative_sequence", False))
        self.calls.output_names = [output["name"] for output in config.get("output", ())]
        line = getattr(getattr(kind.execute, "__code__", None), "co_firstlineno", 0)
        self.outbox.execute_place = f"execute in {shown(file, self.folder)}, line {line},"
        self.model = kind()
        if hasattr(self.model, "initialize"):
            self.model.initialize(args)
        # Of the object, as initialize may have put another execute there.
        self._is_coroutine = inspect.iscoroutinefunction(self.model.execute)

    def _serve_until(self, is_relieved: Callable[[], bool]) -> None:
        """Serve until the end, or until another thread takes over, to which the inbox is left."""
        line, inbox = self.line, self.inbox

        def is_due() -> object:
            return inbox or self.is_ending or self.is_ready_wanted

        while True:
            if not inbox:
                line.wait(is_due)
            if self.is_ready_wanted:
                self.is_ready_wanted = False
                if not self._is_saying:  # otherwise the pending answer serves this question, too
                    self._say_ready_beside()
            elif inbox and not is_relieved():
                self._execute()
                line.release(lazily=True)
            else:
                return

    def _say_ready_beside(self) -> None:
        self._is_saying = True
        # is_ready is the model's code and may call the server: meanwhile
        # somebody has to go on reading and executing.
        with deputed(self._serve_meanwhile):
            said = ask(self.model)
            self._is_saying = False  # before the server gets the answer and may ask again
            self.say_ready(said)

    def _serve_meanwhile(self, is_relieved: Callable[[], bool]) -> None:
        with contextlib.suppress(LineClosed):  # the main thread will notice, too
            self._serve_until(is_relieved)

    def say_ready(self, said: tuple[bool, str]) -> None:
        """Tell the server whether the model calls itself ready, and log the complaint, if any."""
        is_ready, complaint = said
        if complaint:
            self.calls.log(ERROR_LEVEL, complaint)
        self.line.send(packet.SAID, [is_ready])

    def _finalize(self) -> None:
        if self.model is None or not hasattr(self.model, "finalize"):
            return
        try:
            self.model.finalize()
        except BaseException as error:  # noqa: BLE001  the process ends anyway
            with contextlib.suppress(LineClosed):
                self.calls.log(ERROR_LEVEL, "finalize failed: " + full(error))

    def _receive(self, kind: int, document: list[Any], data: Any, numbers: tuple[int, ...]) -> None:
        if kind == packet.EXECUTE or kind == packet.START:
            self.inbox.append((document, data, numbers[0]))
        elif kind == packet.REPLY:
            self.calls.reply(numbers[0], document, data)
        elif kind == packet.FINALIZE:
            self.is_ending = True
        elif kind == packet.ASK:
            self.is_ready_wanted = True
        elif kind == packet.CANCEL:
            self._cancel(document[1])
        elif kind == packet.CREDIT:
            for number, count in document[1]:
                if (one := self._open(number)) is not None:
                    one.granted += count
        if self.on_news is not None:
            self.on_news()

    def _cancel(self, numbers: list[int]) -> None:
        for number in numbers:
            if (one := self._open(number)) is not None:
                one.is_cancelled = True
            # Not received by the model yet; if nothing waits, it was answered already.
            elif self.inbox:
                self._cancelled.add(number)

    def _open(self, number: int) -> OpenRequest | None:
        reference = self.outbox.open_requests.get(number)
        return reference() if reference is not None else None

    def take(self) -> tuple[int, list[OpenRequest], list[InferenceRequest]]:
        """Return the next batch of the inbox: its number, and its requests."""
        (_, documents, self.calls.callers), data, batch = self.inbox.popleft()
        opens, requests = [], []
        number = batch - len(documents)
        for document in documents:
            number += 1
            one = OpenRequest(self.outbox, number, document[2])
            if self._cancelled:
                one.is_cancelled = number in self._cancelled
            # Weakly: if the model drops a request unanswered, its finalizer answers with an error.
            self.outbox.open_requests[number] = weakref.ref(one)
            opens.append(one)
            requests.append(InferenceRequest._arrived(one, document, data))
        if self._cancelled and not self.inbox:
            self._cancelled.clear()
        return batch, opens, requests

    def _execute(self) -> None:
        batch, opens, requests = self.take()
        executing.set(batch if len(opens) == 1 else 0)
        # perf_counter is CLOCK_MONOTONIC here and in the server, so the times can be compared.
        began_ns = time.perf_counter_ns()
        returned: list[Any] = []
        failed = ""
        try:
            returned.append(self.model.execute(requests))
            # The cheap look first: nearly every model returns a list.
            if type(returned[0]) is not list and inspect.iscoroutine(returned[0]):
                returned.append(self._result_of(returned.pop()))
        except BaseException as error:  # noqa: BLE001  sys.exit() in a model must not end it
            failed = self.error_text(error)
        ended_ns = time.perf_counter_ns()
        self.settle(batch, (began_ns, ended_ns), opens, requests, returned, failed)

    def _result_of(self, job: Coroutine[object, None, Any]) -> Any:
        """Run the coroutine of an `execute` that only wraps a coroutine function."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(job)

    def error_text(self, error: BaseException) -> str:
        """Return what to tell clients of a model's exception; log it unless it is Triton's."""
        if not isinstance(error, TritonModelException):
            self.calls.log(ERROR_LEVEL, full(error))
        return error_text(error, self.folder)

    def settle(
        self,
        batch: int,
        times: tuple[int, int],
        opens: list[OpenRequest],
        requests: list[InferenceRequest],
        returned: list[Any],
        failed: str,
    ) -> None:
        """Send the result of a batch. A request whose response sender was taken is answered there.

        `returned` holds the return value of execute, unless it has `failed`; see hand_over.
        """
        again: list[OpenRequest] = []
        is_usual = not failed and self._is_usual(opens, requests, returned[0])
        if is_usual and batch and _is_plain(returned[0][0]):
            self._settle_usual(batch, times, opens[0], requests, returned)
            return
        responses: Any = None if failed else returned[0]
        if not is_usual:
            failed = failed or self._complaint(opens, requests, responses)
            if failed:
                failed = f"model '{self.outbox.model}' failed: {failed}"
                responses = [InferenceResponse(error=TritonError(failed)) for _ in opens]
            elif responses is None:
                responses = [None] * len(opens)
            if self._is_iterative and not failed:
                again = wanted_again(opens, requests)
        requests.clear()  # releases what they hold, unless the model keeps it
        payload = packet.Payload()
        answers = []
        for one, response in zip(opens, responses):
            if response is not None and not one.is_closed:
                one.is_closed = True
                answers.append(
                    self.outbox.describe(
                        _number_in_packet(one, batch), one.outputs, response, payload, is_final=True
                    )
                )
                self.outbox.open_requests.pop(one.number, None)
        for one in again:
            one.is_closed = True
            answers.append((_number_in_packet(one, batch), None, None, None, False, 1))
            self.outbox.open_requests.pop(one.number, None)
        try:
            self._send_result(batch, times, answers, payload)
        except (ArenaFull, TritonModelException) as error:
            text = self.outbox.unsent_text(error, answers)
            answers = [refusal(_number_in_packet(one, batch), text) for one in opens]
            self._send_result(batch, times, answers, None)

    def _settle_usual(
        self,
        batch: int,
        times: tuple[int, int],
        one: OpenRequest,
        requests: list[InferenceRequest],
        returned: list[Any],
    ) -> None:
        """Send the response to the one request of a batch."""
        # The request's arrays go, so that the blocks in which the answer lies can be handed over.
        requests.clear()
        one.is_closed = True
        payload = packet.Payload()
        claimed: list[int] = []
        answer: tuple[object, ...] = ()
        try:
            if self.line.has_blocks:
                answer, claimed = self._handed_over(one, returned, payload)
            else:
                response = returned[0][0]
                answer = self.outbox.describe(0, one.outputs, response, payload, is_final=True)
            self.line.send(packet.RESULT, ((answer,),), payload, (batch, *times), claimed)
        except (ArenaFull, TritonModelException) as error:
            answer = refusal(0, self.outbox.unsent_text(error, [answer]))
            self.line.send(packet.RESULT, ((answer,),), None, (batch, *times))
        del self.outbox.open_requests[one.number]

    def _handed_over(
        self, one: OpenRequest, returned: list[object], payload: packet.Payload
    ) -> tuple[tuple[object, ...], list[int]]:
        try:
            outputs, claimed = hand_over(returned, one.outputs, payload, self.line)
        except TritonModelException as failed:
            return refusal(0, self.outbox.invalid_text(failed)), []
        return (0, tuple(outputs), None, None, True, window_share(payload.size)), claimed

    def _send_result(
        self, batch: int, times: tuple[int, int], answers: list[Any], payload: packet.Payload | None
    ) -> None:
        if batch:
            is_repeated = len(answers) <= MOST_REPEATED and not any(one[3] for one in answers)
            document = (tuple(answers),) if is_repeated else [answers]
            self.line.send(packet.RESULT, document, payload, (batch, *times))
        elif answers:
            self.line.send(packet.ANSWER, [answers], payload)

    def _is_usual(
        self, opens: list[OpenRequest], requests: list[InferenceRequest], responses: object
    ) -> bool:
        """Return whether this is the common case: one ordinary response to one request."""
        return (
            type(responses) is list
            and len(responses) == len(opens) == 1
            and type(responses[0]) is InferenceResponse
            and not self.outbox.is_decoupled
            and not opens[0].is_closed
            and requests[0]._release_flags == TRITONSERVER_REQUEST_RELEASE_ALL
        )

    def _complaint(
        self, opens: list[OpenRequest], requests: list[InferenceRequest], responses: object
    ) -> str:
        """Return what is wrong with the `responses` of execute, "" for nothing."""
        what = ""
        if self.outbox.is_decoupled:
            if responses is not None:
                what = (
                    f"returned {kind_of(responses)}; a decoupled model sends its responses, "
                    f"execute must return None"
                )
        elif responses is None:
            if not all(one.has_sender or one.is_closed for one in opens):
                what = f"returned None, expected a list of {len(opens)} InferenceResponse"
        elif not isinstance(responses, (list, tuple)):
            what = (
                f"returned {kind_of(responses)}, expected a list of {len(opens)} InferenceResponse"
            )
        elif len(responses) != len(opens):
            what = f"returned {len(responses)} responses to {len(opens)} requests"
        else:
            what = odd_item(opens, requests, responses, is_iterative=self._is_iterative)
        return f"{self.outbox.execute_place} {what}" if what else ""


MOST_REPEATED = 8
"""A RESULT with more answers is not looked up among those sent before."""


def _is_plain(response: InferenceResponse) -> bool:
    return response._error is None and not response._parameters


def _number_in_packet(one: OpenRequest, batch: int) -> int:
    """Return a request's number in a packet: its own, or the batch's minus its own."""
    return batch - one.number if batch else one.number
