"""CodedBodies: inflates compressed bodies before their calls run (RFC 9110, section 8.4)."""

from copy import copy
from typing import Any

from inferd.errors import InvalidRequest
from inferd.http.coding import WINDOW_BITS, BadCoding, Coder, InflatesTooFar, coding_named
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import HttpCall, Route
from inferd.memory.capacity import Capacity
from inferd.wire.v2.rest.codec import encode_error

CODING = b"content-encoding"

_TAKEN = b"Accept-Encoding: gzip, deflate\r\n"


class CodedBodies:
    """Undoes the Content-Encoding of requests with `coder`; the result counts in `capacity`."""

    def __init__(self, coder: Coder, capacity: Capacity) -> None:
        self._coder = coder
        self._capacity = capacity

    def route(self, route: Route) -> Route:
        """Return `route`, if it has a body with a call that accepts compressed bodies as well."""
        # Only these have a body that means something.
        return route._replace(call=self._taking(route)) if route.verb == "POST" else route

    async def infer(self, call: HttpCall, request: HttpRequest, *more: Any) -> HttpAnswer:
        """Return the answer of `call`, an inference, to `request` with its body inflated.

        Raises InvalidRequest if the body cannot be inflated, Overloaded if there is no room for it.
        """
        # Before inflating: a full server does not do work that it will refuse.
        if self._capacity.is_full:
            raise self._capacity.too_many_requests()
        return await self._answer(call, request, *more)

    def _taking(self, route: Route) -> HttpCall:
        call = route.call
        answer = self.infer if route.api == "inference" else self._answer

        async def taking(request: HttpRequest, *names: str) -> HttpAnswer:
            if request.headers.get(CODING):
                return await answer(call, request, *names)
            return await call(request, *names)

        return taking

    async def _answer(self, call: HttpCall, request: HttpRequest, *more: Any) -> HttpAnswer:
        declared = request.headers[CODING]
        coding = coding_named(declared)
        plain = copy(request)
        # What follows sees the request as if it had come plain, and does not inflate it again.
        plain.headers = {**request.headers, CODING: b""}
        # RFC 9110, section 8.4.1: no coding, though it should not be sent.
        if coding == b"identity":
            return await call(plain, *more)
        if coding not in WINDOW_BITS:
            return _unknown(declared)
        plain.body = await self._inflated(request.body, coding)
        size = len(plain.body)
        try:
            # Counted as soon as it is there; the compressed body was counted when it came.
            if not self._capacity.hold(size):
                raise self._capacity.too_many_bytes(size + len(request.body))
            return await call(plain, *more)
        finally:
            self._capacity.hold(-size)

    async def _inflated(self, body: memoryview, coding: bytes) -> memoryview:
        try:
            return await self._coder.inflate(body, coding)
        except BadCoding as error:
            raise InvalidRequest(f"the compressed body {error}") from None
        except InflatesTooFar as error:
            msg = f"the body inflates to more than {error} bytes (--http-max-input-size)"
            raise InvalidRequest(msg) from None


def _unknown(declared: bytes) -> HttpAnswer:
    # 501 as in Triton, not 415: clients match on it.
    shown = declared[:40].decode("latin-1")
    text = f"Unsupported compression type: Content-Encoding '{shown}' is not one of gzip, deflate"
    return HttpAnswer(501, [encode_error(text)], headers=_TAKEN)
