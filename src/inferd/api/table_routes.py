"""TableRoutes: routes with their own table of URLs, for a port of their own."""

from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from inferd.api.routes import not_found, refusal, wrong_method
from inferd.errors import InferdError
from inferd.http.access import OPEN, Access, Headers
from inferd.http.failure import FailureLog
from inferd.http.header_forward import HeaderForward
from inferd.http.message import HttpAnswer, HttpError, HttpRequest
from inferd.http.router import Route, Router
from inferd.observe.tracer import Tracer

if TYPE_CHECKING:
    from inferd.memory.batch_memory import BatchMemory


class TableRoutes:
    """Answers by `routes`, with V2's errors. The wall: no exception escapes `answer`."""

    def __init__(
        self,
        routes: Iterable[Route],
        tracer: Tracer,
        failures: FailureLog,
        *,
        forward: HeaderForward | None = None,
        access: Access = OPEN,
    ) -> None:
        self.is_guarded = access is not OPEN
        self.forward = forward
        self.tracer = tracer
        self.batch_memory: BatchMemory | None = None
        self._failures = failures
        self._router = Router(routes, access)

    def check_access(self, target: bytes, headers: Headers) -> None:
        """See HttpRoutes.check_access."""
        found = self._router.find(target)
        if found is not None and found.guard is not None:
            found.guard.check(headers)

    def is_refusable(self, target: bytes) -> bool:
        """See HttpRoutes.is_refusable."""
        found = self._router.find(target)
        return found is not None and found.api == "inference"

    def refusal(self, _request: HttpRequest, error: HttpError | InferdError) -> HttpAnswer:
        """See Routes.refusal."""
        return refusal(error)

    def begin(self, request: HttpRequest) -> Coroutine[Any, Any, HttpAnswer]:
        """See Routes.begin."""
        return self.answer(request)

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer to `request`, whatever happens."""
        try:
            target = self._router.find(request.target)
            if target is None:
                return not_found(request)
            call = target.calls.get(request.method)
            if call is None:
                return wrong_method(request, target)
            return await call(request, *target.names)
        except Exception as error:  # noqa: BLE001  the wall
            self._failures.note(request.target.decode("latin-1"), error)
            return refusal(error)
