"""Cross-origin requests: what browsers must be told before pages of other origins may send them.

The rules are those of the Fetch standard, "CORS protocol". They protect users from pages, not the
server from clients: other clients are answered as usual.
"""

import re

from inferd.api.routes import HttpRoutes
from inferd.errors import Forbidden, InferdError
from inferd.http.message import HttpAnswer, HttpError, HttpRequest
from inferd.http.routes import Routes

MAX_AGE_S = 600
"""How long a browser may cache the answer to a preflight."""

# What is echoed must not be able to end the header line.
_NAMES = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z, ]{1,1000}")


class CorsRoutes(Routes):
    """HttpRoutes for pages of other origins too; like those, it lets no exception escape.

    `origins` are in lower case. With "*" any page may send requests, but without the credentials
    that the browser adds by itself: cookies, client certificates. Pages of named origins may use
    those.
    """

    def __init__(self, routes: HttpRoutes, origins: frozenset[str]) -> None:
        super().__init__(
            routes.router,
            forward=routes.forward,
            refusable=routes.refusable,
            variations=routes.variations,
        )
        self._routes = routes
        self._origins = frozenset(origin.encode() for origin in origins)
        names = ", ".join(routes.own_headers).encode()
        self._exposed = b"Access-Control-Expose-Headers: %b\r\n" % names

    def is_timed(self) -> bool:
        """See Routes.is_timed."""
        return self._routes.is_timed()

    def refusal(self, request: HttpRequest, error: HttpError | InferdError) -> HttpAnswer:
        """See Routes.refusal; allowed pages may read the answer."""
        answer = self._routes.refusal(request, error)
        # The dashboard is for its own page only.
        if not self._routes.is_shared(request.target):
            return answer
        answer.headers += self._headers_for(request.headers.get(b"origin"))
        return answer

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """See Routes.answer."""
        if not self._routes.is_shared(request.target):
            return await self._routes.answer(request)
        headers = request.headers
        origin = headers.get(b"origin")
        # A preflight by the standard's definition; any other OPTIONS is an ordinary request.
        is_preflight = request.method == b"OPTIONS" and b"access-control-request-method" in headers
        if is_preflight and origin is not None:
            answer = await self._preflight(request, origin)
        else:
            answer = await self._routes.answer(request)
        # Also to failed requests, or pages could not read why.
        answer.headers += self._headers_for(origin)
        return answer

    def _headers_for(self, origin: bytes | None) -> bytes:
        if b"*" in self._origins:
            return b"Access-Control-Allow-Origin: *\r\n" + self._exposed
        if origin not in self._origins:
            # Caches must not give one origin's answer to another (Fetch standard, "CORS protocol
            # and HTTP caches").
            return b"Vary: Origin\r\n"
        return (
            b"Vary: Origin\r\nAccess-Control-Allow-Origin: %b\r\n"
            b"Access-Control-Allow-Credentials: true\r\n%b" % (origin, self._exposed)
        )

    async def _preflight(self, request: HttpRequest, origin: bytes) -> HttpAnswer:
        """Answer a preflight, which browsers send before all but simple requests of a page."""
        if not (origin in self._origins or b"*" in self._origins):
            text = f"pages of the origin '{origin[:200].decode('latin-1')}' may not ask here"
            return self._routes.refusal(request, Forbidden(text))
        verbs = b", ".join(self._routes.verbs(request.target))
        if not verbs:
            return await self._routes.answer(request)
        headers = b"Access-Control-Allow-Methods: %b\r\n" % verbs
        wanted = request.headers.get(b"access-control-request-headers", b"")
        # Any header is allowed, as for every other client: the guards are what protects the server.
        if _NAMES.fullmatch(wanted):
            headers += b"Access-Control-Allow-Headers: %b\r\n" % wanted
        headers += b"Access-Control-Max-Age: %d\r\n" % MAX_AGE_S
        headers += self._routes.success_headers(request.target)
        return HttpAnswer(200, [b""], b"text/plain", headers)
