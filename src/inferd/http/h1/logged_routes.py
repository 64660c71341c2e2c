"""LoggedRoutes: the routes of one connection whose requests are logged.

Without a log a connection has the routes themselves, so that nothing asks for one at each request.
"""

from collections.abc import Coroutine
from time import time_ns
from typing import Final

from inferd.compiled import mypyc_attr
from inferd.errors import InferdError
from inferd.http.access import Headers
from inferd.http.message import HttpAnswer, HttpError, HttpRequest, Pieces
from inferd.http.request_log import ClientLog, Notes
from inferd.http.routes import Routes

CLIENT_GONE = 499
"""The status of a request whose client went away before it had its answer, as nginx logs it."""

_time_ns: Final = time_ns  # compiled, it is found sooner than a name that was imported


@mypyc_attr(allow_interpreted_subclasses=True)
class LoggedRoutes(Routes):
    """Passes requests on to `routes`, and tells `client` what became of each."""

    def __init__(self, routes: Routes, client: ClientLog) -> None:
        super().__init__(
            routes.router,
            forward=routes.forward,
            refusable=routes.refusable,
            variations=routes.variations,
        )
        self._routes = routes
        self._client = client
        self._notes = Notes()  # of a request that need not wait; such come one after the other

    def begin(self, request: HttpRequest) -> HttpAnswer | Coroutine[object, None, HttpAnswer]:
        """See Routes.begin."""
        began_ns = _time_ns()
        # Before `begin`, after which the body may be gone.
        taken = len(request.body)
        request.notes = notes = self._notes
        begun = self._routes.begin(request)
        if not isinstance(begun, HttpAnswer):
            # The coroutine keeps the others; further requests need their own.
            self._notes = Notes()
            return self._later(begun, request, notes, taken, began_ns)
        if begun.rest is not None:
            self._notes = Notes()
            self._note(request, notes, begun, taken, began_ns)
            return begun
        request.notes = None  # a connection keeps its request; it must not keep an inference
        self._client.answered(request, notes, begun, taken, began_ns)
        notes.about = None
        notes.version = ""
        return begun

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """See Routes.answer."""
        begun = self.begin(request)
        return begun if isinstance(begun, HttpAnswer) else await begun

    async def _later(
        self,
        answering: Coroutine[object, None, HttpAnswer],
        request: HttpRequest,
        notes: Notes,
        taken: int,
        began_ns: int,
    ) -> HttpAnswer:
        try:
            answer = await answering
        except BaseException:
            request.notes = None
            self._client.streamed(request, notes, CLIENT_GONE, taken, 0, began_ns)
            raise
        self._note(request, notes, answer, taken, began_ns)
        return answer

    def _note(
        self, request: HttpRequest, notes: Notes, answer: HttpAnswer, taken: int, began_ns: int
    ) -> None:
        request.notes = None
        if answer.rest is None:
            self._client.answered(request, notes, answer, taken, began_ns)
            return
        answer.rest = LoggedPieces(
            answer.rest, answer, self._client, request, notes, taken, began_ns
        )

    def refusal(self, request: HttpRequest, error: HttpError | InferdError) -> HttpAnswer:
        """See Routes.refusal."""
        answer = self._routes.refusal(request, error)
        self._client.answered(request, Notes(), answer, 0, _time_ns())
        return answer

    def check_access(self, target: bytes, headers: Headers) -> None:
        """See Routes.check_access."""
        self._routes.check_access(target, headers)

    def is_timed(self) -> bool:
        """See Routes.is_timed."""
        return self._routes.is_timed()


class LoggedPieces:
    """The `pieces` of an `answer` after its first; when they end, they tell its size."""

    def __init__(  # noqa: PLR0913
        self,
        pieces: Pieces,
        answer: HttpAnswer,
        client: ClientLog,
        request: HttpRequest,
        notes: Notes,
        taken: int,
        began_ns: int,
    ) -> None:
        self.filler = pieces.filler
        self._pieces = pieces
        self._client = client
        self._request = request
        self._notes = notes
        self._status = answer.status
        self._taken = taken
        self._began_ns = began_ns
        self._sent = sum(map(len, answer.buffers))
        self._is_noted = False

    def __aiter__(self) -> "LoggedPieces":
        """Return self."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece. Raises StopAsyncIteration, or a cancellation."""
        try:
            piece = await self._pieces.__anext__()
        except StopAsyncIteration:
            self._note(self._status)
            raise
        self._sent += len(piece)
        return piece

    async def aclose(self) -> None:
        """Give up the rest."""
        self._note(CLIENT_GONE)
        await self._pieces.aclose()

    def _note(self, status: int) -> None:
        if self._is_noted:
            return
        self._is_noted = True
        self._client.streamed(
            self._request, self._notes, status, self._taken, self._sent, self._began_ns
        )
