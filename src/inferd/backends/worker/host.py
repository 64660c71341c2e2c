"""Host: what a worker process runs for a HostedBackend: one instance of one of our backends.

It uses the same Link as the server, but with a blocking socket, as it has nothing else to do.
Input tensors are views of the received memory, the instance is called as it is in the server, and
outputs are written to memory that the server reads. Each execution is answered before the next
begins, so that an end costs one alone.
"""

import gc
import socket
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint
from time import perf_counter_ns
from typing import Any

import msgspec

from inferd.backends.worker.document import DescribedBatch, StartSettings
from inferd.backends.worker.link import Link, LinkClosed
from inferd.backends.worker.message import BatchReader, described_answer
from inferd.core.interfaces import Answer, Opened
from inferd.core.request import InferRequest
from inferd.core.rows import UNKNOWN
from inferd.core.traits import traits_of
from inferd.errors import BackendFailed, InferdError, foreign_text
from inferd_worker import packet
from inferd_worker.arena import Arena, ArenaFull, Received
from inferd_worker.main import end_process, inherit

Task = Callable[[StartSettings], Opened | str]
"""The function that START names: given the settings, it opens the instance or returns a text."""


class Host:
    """One instance, from the START packet to the end of the process."""

    def __init__(self, sock: socket.socket, arena: Arena, received: Received) -> None:
        self._link = Link(sock, arena, received, self._receive, self._end)
        sock.setblocking(True)  # here, unlike in the server, the link may block
        self._decode = msgspec.json.Decoder(DescribedBatch).decode
        self._askings: dict[bytes, BatchReader] = {}  # earlier EXECUTEs, by their documents
        self._model = ""
        self._opened: Opened | None = None
        self._is_over = False

    def run(self) -> None:
        """Open the instance and execute until the server ends it."""
        while not self._is_over:
            self._link.read()
        if self._opened is not None:
            self._opened.alone.close()

    def _end(self, _why: str) -> None:
        self._is_over = True

    def _receive(self, kind: int, document: bytes, data: Any, numbers: tuple[int, ...]) -> None:
        if kind == packet.EXECUTE:
            # Requests of a client are alike but for their bytes, which are not in the document: a
            # look-up in place of parsing.
            asking = self._askings.get(document)
            if asking is None:
                asking = BatchReader(self._decode(document))
                packet.keep(self._askings, document, asking, len(document))
            self._execute(asking, data, numbers[0])
            return
        released, *arguments = msgspec.json.decode(document)
        self._link.settle(released)
        if kind == packet.START:
            self._start(arguments[0])
        elif kind == packet.FINALIZE:
            self._is_over = True

    def _start(self, settings: StartSettings) -> None:
        """Do what the first packet asks for, and report to the server."""
        self._model = settings["model"]
        try:
            work: Task = EntryPoint("", settings["task"], "").load()
            done = work(settings)
        except InferdError as error:
            text = error.message  # without its beginning, which the server adds
            for end in ": ", ", ":
                text = text.removeprefix(f"model '{self._model}'{end}")
            self._link.send(packet.FAILED, [text])
        except BaseException as error:  # noqa: BLE001  frameworks may raise anything
            if settings.get("verbose"):
                traceback.print_exc()  # the server logs what is printed here
            self._link.send(packet.FAILED, [foreign_text(error)])
        else:
            gc.collect()
            gc.freeze()  # a framework has hundreds of thousands of permanent objects
            if isinstance(done, Opened):
                self._opened = done
            said = done if isinstance(done, str) else None
            verdict = UNKNOWN if self._opened is None else traits_of(self._opened.alone).verdict
            spoken = msgspec.structs.astuple(verdict)
            self._link.send(packet.READY, [said, False, True, spoken])

    def _execute(self, asking: BatchReader, data: object, number: int) -> None:
        if asking.released:
            self._link.settle(asking.released)
        requests = asking.requests(data, self._model)
        began_ns = perf_counter_ns()
        answers = self._answers(requests)
        ended_ns = perf_counter_ns()
        first, count = requests[0], len(requests)
        ran_again = first.ran_again
        times = first.computing_ns or began_ns, first.computed_ns or ended_ns
        del first, requests, data  # releases what they hold, except what an answer views
        numbers = range(count - 1, -1, -1)  # the batch's number minus each request's
        payload = packet.Payload()
        documents = [
            described_answer(less, answer, payload, ran_again=ran_again)
            for less, answer in zip(numbers, answers, strict=True)
        ]
        try:
            self._link.send(packet.RESULT, [documents], payload, (number, *times))
        # All of them, as one packet has the answers of all; nothing has been sent yet.
        except ArenaFull as error:
            failed = BackendFailed(f"model '{self._model}': the outputs are too large: {error}")
            documents = [described_answer(less, failed, payload) for less in numbers]
            self._link.send(packet.RESULT, [documents], None, (number, *times))
        del answers, payload
        self._link.release()

    def _answers(self, requests: Sequence[InferRequest]) -> Sequence[Answer]:
        opened = self._opened
        assert opened is not None
        # Joining one request with itself would only copy it.
        instance = opened.alone if len(requests) == 1 else opened.together
        try:
            return instance.execute(requests)
        except InferdError as error:
            return [error] * len(requests)
        except BaseException as error:  # noqa: BLE001  sys.exit() in a model must not end it
            failed = BackendFailed(f"model '{self._model}': {foreign_text(error)}")
            return [failed] * len(requests)


def main(arguments: list[str]) -> None:
    """Run the host that `arguments` describe, to its end. See the worker's own main."""
    host = Host(*inherit(arguments))
    with suppress(LinkClosed):
        host.run()
    end_process()
