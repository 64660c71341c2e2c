"""Which URL means which call: patterns are looked up once per target and then remembered."""

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from inferd.transport.http_message import HttpAnswer

HttpCall = Callable[..., Awaitable[HttpAnswer]]
"""Takes the request, then the names in the path, percent-decoded, in their order."""

MOST_REMEMBERED = 1024
"""So many targets are remembered; at the limit of heads they take 16 MiB at most."""


class Route(NamedTuple):
    """One line of the URL table: `path` has {names}, `api` is the group that may be restricted."""

    verb: str
    path: str
    api: str
    call: HttpCall


class Target:
    """What one request target means: the routes by verb, and the names in the path."""

    __slots__ = ("calls", "names")

    def __init__(self, calls: dict[bytes, HttpCall], names: tuple[str, ...]) -> None:
        self.calls = calls
        self.names = names


class Router:
    """Finds what a request target means among `routes`.

    `known` holds what was found before, by target: a request looks there first.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self._patterns: dict[tuple[str, ...], dict[bytes, HttpCall]] = {}
        self.known: dict[bytes, Target | None] = {}
        for route in routes:
            calls = self._patterns.setdefault(tuple(route.path[1:].split("/")), {})
            calls[route.verb.encode()] = route.call
            if route.verb == "GET":
                calls[b"HEAD"] = route.call

    def find(self, target: bytes) -> Target | None:
        """Return what a request target means, None for nothing.

        One trailing slash is tolerated, a query ignored. Percent escapes are decoded after the
        path is split, so an escaped slash stays in its name.
        """
        if target not in self.known:
            if len(self.known) >= MOST_REMEMBERED:
                self.known.clear()
            self.known[target] = self._search(target)
        return self.known[target]

    def _search(self, target: bytes) -> Target | None:
        path = target.partition(b"?")[0].partition(b"#")[0]
        if path.startswith((b"http://", b"https://")):  # absolute form (RFC 9112, section 3.2.2)
            path = b"/" + b"/".join(path.split(b"/")[3:])
        if not path.startswith(b"/"):
            return None
        segments = path.removesuffix(b"/").split(b"/")[1:]
        names = [unquote_to_bytes(segment).decode(errors="replace") for segment in segments]
        for pattern, calls in self._patterns.items():
            if len(pattern) == len(names) and all(
                name and (want == name or _is_name(want))
                for want, name in zip(pattern, names, strict=True)
            ):
                pairs = zip(pattern, names, strict=True)
                return Target(calls, tuple(name for want, name in pairs if _is_name(want)))
        return None


def _is_name(segment: str) -> bool:
    return segment[:1] == "{"
