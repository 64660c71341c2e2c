"""TableRoutes: routes with their own table of URLs, for a port of their own."""

from collections.abc import Iterable

from inferd.api.routes import REFUSABLE, VARIATIONS, not_found, refusal, wrong_method
from inferd.errors import InferdError
from inferd.http.access import OPEN, Access
from inferd.http.failure import FailureLog
from inferd.http.header_forward import HeaderForward
from inferd.http.message import HttpAnswer, HttpError, HttpRequest
from inferd.http.router import Route, Router
from inferd.http.routes import Routes
from inferd.observe.tracer import Tracer


class TableRoutes(Routes):
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
        super().__init__(
            Router(routes, access),
            is_guarded=access is not OPEN,
            forward=forward,
            refusable=REFUSABLE,
            variations=VARIATIONS,
        )
        self._tracer = tracer
        self._failures = failures

    def is_timed(self) -> bool:
        """See Routes.is_timed."""
        return self._tracer.is_on

    def refusal(self, _request: HttpRequest, error: HttpError | InferdError) -> HttpAnswer:
        """See Routes.refusal."""
        return refusal(error)

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """See Routes.answer."""
        try:
            target = self.router.find(request.target)
            if target is None:
                return not_found(request)
            call = target.calls.get(request.method)
            if call is None:
                return wrong_method(request, target)
            return await call(request, *target.names)
        except Exception as error:  # noqa: BLE001  the wall
            self._failures.note(request.target.decode("latin-1"), error)
            return refusal(error)
