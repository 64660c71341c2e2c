"""Asks all places the same, over REST or over gRPC."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import grpc
import grpc.aio
import orjson

from inferd.http.grpc.handler import Metadata
from inferd.http.message import HttpRequest
from inferd.route.http_client import HttpTarget, fetch
from inferd.route.place import Place
from inferd.route.whole import PlaceAnswer
from inferd.server.address import host_and_port

_UNAVAILABLE = 503
_UNIX = "unix:"
# Loads carry whole model files; grpcio's limit is 4 MiB.
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]

# Of HTTP's own connection to us, not of the call.
_HOPS = frozenset(
    (
        b"accept-encoding",
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    )
)


async def ask_rest(places: Sequence[Place], request: HttpRequest) -> list[PlaceAnswer]:
    """Send a request to all `places` and return what they answer, in their order."""
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in request.headers.items()
        if name not in _HOPS
    ]
    method, path = request.method.decode(), request.target.decode("latin-1")
    asking = (_fetch(place, method, path, headers, request.body) for place in places)
    # All at once: the slowest place decides how long it takes.
    return list(await asyncio.gather(*asking))


async def _fetch(
    place: Place,
    method: str,
    path: str,
    headers: Iterable[tuple[str, str]],
    body: memoryview,
) -> PlaceAnswer:
    target = HttpTarget(place.host, place.http_port)
    try:
        answer = await fetch(target, method, path, headers, body)
    except OSError as error:
        text = f"no answer: {error or type(error).__name__}"
        # No answer counts as 503: the place may come back.
        return PlaceAnswer(place.name, b"", _UNAVAILABLE, text, is_failed=True, is_silent=True)
    found = PlaceAnswer(place.name, answer.body, answer.status, headers=answer.headers)
    if answer.status < 400:
        return found
    return found._replace(error=_error_in(answer.body), is_failed=True)


def _error_in(body: bytes) -> str:
    """Return the text of V2's error object, or what there is."""
    try:
        document = orjson.loads(body)
        return str(document["error"])
    # Anything may have answered: a proxy's page, an empty body.
    except (ValueError, KeyError, TypeError):
        return body[:1000].decode(errors="replace")


class Channels:
    """The gRPC channels to places, made when they are needed first."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], grpc.aio.Channel] = {}

    async def ask(
        self,
        places: Sequence[Place],
        path: str,
        message: bytes,
        metadata: Metadata,
        timeout_s: float | None,
    ) -> list[PlaceAnswer]:
        """Call a method of all `places` and return what they answer, in their order."""
        # Channels to places that have gone keep trying to connect.
        await self._forget(places)
        asking = (self.call(place, path, message, metadata, timeout_s) for place in places)
        return list(await asyncio.gather(*asking))

    async def close(self) -> None:
        """Close all channels."""
        await self._forget(())

    async def _forget(self, places: Sequence[Place]) -> None:
        known = {(place.host, place.grpc_port) for place in places}
        for where in self._open.keys() - known:
            # The channel to HAProxy itself is not of the places.
            if places and where[0].startswith(_UNIX):
                continue
            await self._open.pop(where).close(None)

    async def call(
        self,
        place: Place,
        path: str,
        message: bytes,
        metadata: Metadata,
        timeout_s: float | None,
    ) -> PlaceAnswer:
        """Call a method of one place, whose host may also be that of a Unix socket, unix:PATH."""
        where = (place.host, place.grpc_port)
        if where not in self._open:
            self._open[where] = grpc.aio.insecure_channel(_address(place), options=_OPTIONS)
        call: Any = self._open[where].unary_unary(path, None, None)
        given = [(key, value) for key, value in metadata if not _is_of_the_connection(key)]
        try:
            body = await call(message, metadata=given, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            status = int(error.code().value[0])
            text = error.details() or error.code().name
            is_silent = error.code() is grpc.StatusCode.UNAVAILABLE
            return PlaceAnswer(place.name, b"", status, text, is_failed=True, is_silent=is_silent)
        return PlaceAnswer(place.name, body)


def _address(place: Place) -> str:
    if place.host.startswith(_UNIX):
        return place.host
    return host_and_port(place.host, place.grpc_port)


def _is_of_the_connection(key: str) -> bool:
    # Those that the channel sets itself, and would send twice.
    return key.startswith((":", "grpc-")) or key in ("user-agent", "content-type", "te", "host")
