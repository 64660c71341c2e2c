"""The mapping from URLs to calls: each target is matched once and then remembered."""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from inferd.http.access import OPEN, Access, Guard
from inferd.http.message import HttpAnswer, HttpRequest

HttpCall = Callable[..., Awaitable[HttpAnswer]]
"""Takes the request, then the names in the path in order, percent-decoded."""

MOST_REMEMBERED = 1024
"""How many targets are remembered."""

LONGEST_REMEMBERED = 4096
"""Longer targets are not remembered."""


_ABSOLUTE = re.compile(rb"https?://", re.IGNORECASE)  # case-insensitive (RFC 3986, section 3.1)


class Route(NamedTuple):
    """One line of the URL table: `path` has {names}, `api` is the group that can be restricted.

    `prompt` is an object that can do more than `call`, if there is one: its `begin` takes the names
    and the request, and returns the answer if it need not wait for anything, else a coroutine.
    Bodies have at most `most_bytes`, 0: as many as the server takes; all routes of one path agree.
    """

    verb: str
    path: str
    api: str
    call: HttpCall
    prompt: Any = None
    most_bytes: int = 0


class Target:
    """The meaning of one request target: the calls by verb, their API group, the names in the path.

    The calls check `guard` themselves; it is here for checks that cannot wait for the call.
    `prompt` is that of the route for POST, if it has no guard. `most_bytes` is that of its routes.
    """

    def __init__(
        self,
        api: str,
        calls: dict[bytes, HttpCall],
        names: tuple[str, ...],
        guard: Guard | None,
        prompt: Any = None,
        most_bytes: int = 0,
    ) -> None:
        self.api = api
        self.calls = calls
        self.names = names
        self.guard = guard
        self.prompt = prompt
        self.most_bytes = most_bytes


class Router:
    """Finds the meaning of request targets among `routes`; `access` says which have a guard.

    All routes of one path belong to one API group. With `is_guarded` some calls are restricted.
    `known` maps targets to earlier results; look there first.
    """

    def __init__(self, routes: Iterable[Route], access: Access = OPEN) -> None:
        self._patterns: dict[tuple[str, ...], Target] = {}
        self.is_guarded = access is not OPEN
        self.known: dict[bytes, Target | None] = {}
        for route in routes:
            pattern = tuple(route.path[1:].split("/"))
            if pattern not in self._patterns:
                guard = access.guard(route.api)
                most_bytes = route.most_bytes
                self._patterns[pattern] = Target(route.api, {}, (), guard, None, most_bytes)
            target = self._patterns[pattern]
            call = _guarded(route.call, target.guard) if target.guard else route.call
            target.calls[route.verb.encode()] = call
            # A guarded call is a coroutine in any case, so a prompt way would go around its guard.
            if target.guard is None:
                target.prompt = route.prompt or target.prompt
            if route.verb == "GET":
                # Any GET may be asked for as HEAD (RFC 9110, section 9.3.2).
                target.calls[b"HEAD"] = call

    def find(self, target: bytes) -> Target | None:
        """Return the meaning of a request target, None if it has none.

        One trailing slash is tolerated, a query is ignored. Percent escapes are decoded after the
        path is split, so an escaped slash stays in its name.
        """
        if target not in self.known:
            if len(target) > LONGEST_REMEMBERED:
                return self._search(target)
            if len(self.known) >= MOST_REMEMBERED:
                self.known.clear()
            self.known[target] = self._search(target)
        return self.known[target]

    def _search(self, target: bytes) -> Target | None:
        path = path_of(target)
        if not path.startswith(b"/"):
            return None
        segments = path.removesuffix(b"/").split(b"/")[1:]
        names = [unquote_to_bytes(segment).decode(errors="replace") for segment in segments]
        for pattern, found in self._patterns.items():
            # An empty segment is no name.
            if len(pattern) == len(names) and all(
                want == name or (name and _is_name(want))
                for want, name in zip(pattern, names, strict=True)
            ):
                pairs = zip(pattern, names, strict=True)
                values = tuple(name for want, name in pairs if _is_name(want))
                more = found.guard, found.prompt, found.most_bytes
                return Target(found.api, found.calls, values, *more)
        return None


def path_of(target: bytes) -> bytes:
    """Return the path in a request target, still percent-encoded."""
    path = target.partition(b"?")[0].partition(b"#")[0]
    if path[:1] != b"/" and _ABSOLUTE.match(path):  # absolute form (RFC 9112, section 3.2.2)
        path = b"/" + b"/".join(path.split(b"/")[3:])
    return path


def _guarded(call: HttpCall, guard: Guard) -> HttpCall:
    async def checked(request: HttpRequest, *names: str) -> HttpAnswer:
        guard.check(request.headers)
        return await call(request, *names)

    return checked


def _is_name(segment: str) -> bool:
    return segment[:1] == "{"
