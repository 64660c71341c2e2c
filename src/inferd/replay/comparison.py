"""Replay: sends the requests of a log again, and counts which answers are the same."""

from collections.abc import Callable
from typing import NamedTuple

from inferd.core.request import InferResponse
from inferd.errors import InferdError
from inferd.replay.entries import LoggedBody, LoggedRequest, PayloadReader
from inferd.replay.server import ReplayTarget
from inferd.tensor.closeness import LIMITS, difference
from inferd.wire.v2.rest.client import decode_infer_response

SAME, DIFFERENT, FAILED = "same", "different", "failed"
CUT, UNANSWERED = "cut", "unanswered"


class Outcome(NamedTuple):
    """What became of one request; `text` says more of what is not SAME."""

    kind: str
    request: LoggedRequest
    text: str = ""

    def __str__(self) -> str:
        """Return where the request is, and what became of it."""
        request = self.request
        return f"{request.where}: model '{request.model}', event {request.id}: {self.text}"


class Replay:
    """Sends what `reader` has to `target`.

    `tolerance` is how much floats may differ, as a share of them; None: as much as rounding does.
    """

    def __init__(
        self, reader: PayloadReader, target: ReplayTarget, tolerance: float | None = None
    ) -> None:
        self._reader = reader
        self._target = target
        self._limits = LIMITS
        if tolerance is not None:
            self._limits = dict.fromkeys(LIMITS, (tolerance, tolerance))
        self.counts = dict.fromkeys((SAME, DIFFERENT, FAILED, CUT, UNANSWERED), 0)
        self.sent_count = 0

    def run(self, note: Callable[[Outcome], None]) -> None:
        """Send all requests, one after the other, and give each outcome to `note`.

        Raises Unreachable if the server is not there, or goes away.
        """
        self._target.check()
        for request in self._reader.requests():
            outcome = self._outcome(request)
            self.counts[outcome.kind] += 1
            note(outcome)

    @property
    def is_same(self) -> bool:
        """Whether all was sent, and all answers were the same."""
        counts = self.counts
        # CUT counts, as nothing is known of those; UNANSWERED does not,
        # as there was nothing to compare.
        return not (counts[DIFFERENT] or counts[FAILED] or counts[CUT])

    def _outcome(self, request: LoggedRequest) -> Outcome:
        # Half of a request would only be refused.
        if request.body.is_cut:
            return Outcome(CUT, request, "it was cut when it was logged (max-bytes), and not sent")
        reply = self._target.send(request)
        self.sent_count += 1
        # Streams have several answers, and V2's infer gives one.
        if len(request.answers) != 1:
            return self._without_answer(request, reply.status, reply.text())
        if reply.status != 200:
            return Outcome(FAILED, request, f"the server answers {reply.text()}")
        [logged] = request.answers
        if logged.is_cut:
            return Outcome(CUT, request, "its answer was cut when it was logged (max-bytes)")
        try:
            expected, found = _decoded(logged), _decoded(reply.body)
        except (InferdError, ValueError) as error:
            return Outcome(FAILED, request, f"an answer cannot be read: {error}")
        text = difference(expected.outputs, found.outputs, self._limits)
        return Outcome(DIFFERENT if text else SAME, request, text)

    def _without_answer(self, request: LoggedRequest, status: int, text: str) -> Outcome:
        if request.answers:
            count = len(request.answers)
            return Outcome(UNANSWERED, request, f"it had {count} answers, which are not compared")
        if status == 200:
            return Outcome(UNANSWERED, request, "the log has no answer; now there is one")
        return Outcome(UNANSWERED, request, f"the log has no answer; now it fails with {text}")


def _decoded(body: LoggedBody) -> InferResponse:
    size = len(body.data) if body.json_size is None else body.json_size
    return decode_infer_response(memoryview(body.data), size)
