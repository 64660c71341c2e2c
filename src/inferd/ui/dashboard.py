"""Dashboard: the API beside V2 that has its URLs below /ui, and who may have what there.

Files and /ui/about are for everybody: they say nothing of this server's models and clients. Every
request must name this server as its host, and what is no file must not come from a page of another
site.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources.abc import Traversable
from urllib.parse import parse_qs

import msgspec
import orjson

from inferd.aio.thread import in_daemon_thread
from inferd.api.mount import Mount
from inferd.api.mounted import MountedRoutes
from inferd.api.routes import not_found, refusal, wrong_method
from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest, TooLarge, Unauthenticated
from inferd.http.access import NO_GROUP, Access
from inferd.http.coding import choose_coding, coding_named
from inferd.http.failure import FailureLog
from inferd.http.grpc.handler import Method
from inferd.http.header_forward import HeaderForward
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import Route, Target, path_of
from inferd.ui.acts import decode_act, do
from inferd.ui.files import StaticFile, page_folder, read_files
from inferd.ui.hosts import Hosts
from inferd.ui.permission import Permission
from inferd.ui.streams import Hub
from inferd.ui.tokens import Tokens
from inferd.ui.topics import GROUPS, Subject
from inferd.wire.v2.generate import EVENT_STREAM

MOST_BODY_BYTES = 65536
"""The largest body of a request; nothing here needs more."""

# No inline script or style: text from models that slipped through escaping cannot run.
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    b"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'"
)
_SAFE = (
    b"Content-Security-Policy: %b\r\n"
    b"X-Frame-Options: DENY\r\n"
    b"X-Content-Type-Options: nosniff\r\n"
    b"Referrer-Policy: no-referrer\r\n"
    b"Cross-Origin-Opener-Policy: same-origin\r\n"
    b"Cross-Origin-Resource-Policy: same-origin\r\n"
) % _POLICY
"""The headers of every answer: nothing that is sent may run, be framed, or be read elsewhere."""

_NOT_KEPT = b"Cache-Control: no-store\r\n"
_CHECKED = b"Cache-Control: no-cache\r\nVary: Accept-Encoding\r\n"
_EVENTS = b"Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n"  # for proxies
_TEXT = b"text/plain; charset=utf-8"
_PAGE = "index.html"
_PARAMETERS = frozenset(("topics", "model", "version", "once"))

_Call = Callable[..., Awaitable[HttpAnswer]]


class _Unlock(msgspec.Struct):
    """The body of /ui/unlock."""

    token: str


class UiRoutes(MountedRoutes):
    """Answers the URLs of a `dashboard` on one port, whose calls have the guards of `access`."""

    def __init__(self, dashboard: "Dashboard", access: Access) -> None:
        super().__init__([], b"")
        self._dashboard = dashboard
        self._permission = Permission(access, dashboard.tokens)
        self._reading: asyncio.Task[Mapping[str, StaticFile]] | None = None

    def owns(self, target: bytes) -> bool:
        """See MountedRoutes.owns."""
        path = path_of(target)
        return path == b"/ui" or path.startswith(b"/ui/")

    def routes(self) -> list[Route]:
        """Return the routes."""
        calls: list[tuple[str, str, _Call]] = [
            ("GET", "/ui", self._open_page),
            ("GET", "/ui/static/{file}", self._open_file),
            ("GET", "/ui/static/{folder}/{file}", self._open_file),
            ("GET", "/ui/about", self._checked(self.about)),
            ("GET", "/ui/events", self._checked(self.events)),
            ("POST", "/ui/unlock", self._checked(self.unlock)),
            ("POST", "/ui/act", self._checked(self.act)),
        ]
        return [
            Route(verb, path, NO_GROUP, call, None, MOST_BODY_BYTES) for verb, path, call in calls
        ]

    def not_found(self, request: HttpRequest) -> HttpAnswer:
        """See MountedRoutes.not_found."""
        return _safe(not_found(request))

    def wrong_method(self, request: HttpRequest, target: Target) -> HttpAnswer:
        """See MountedRoutes.wrong_method."""
        return _safe(wrong_method(request, target))

    def refusal(self, error: Exception) -> HttpAnswer:
        """See MountedRoutes.refusal."""
        return _safe(refusal(error))

    def is_shared(self) -> bool:
        """See MountedRoutes.is_shared; the pages of the dashboard alone may call it."""
        return False

    def success(self) -> bytes:
        """See MountedRoutes.success."""
        return _SAFE

    def _checked(self, call: _Call) -> _Call:
        """Return `call` for requests to this server, of its own pages."""

        async def checked(request: HttpRequest) -> HttpAnswer:
            await self._dashboard.hosts.check(request)
            self._dashboard.hosts.check_origin(request)
            return _safe(await call(request))

        return checked

    async def _open_page(self, request: HttpRequest) -> HttpAnswer:
        """Answer with the page; it is at /ui/, since what it needs is named relative to that."""
        await self._dashboard.hosts.check(request)
        if not path_of(request.target).endswith(b"/"):
            # Keeps the method, and is relative: a proxy may have put the server below a path.
            answer = HttpAnswer(308, [], _TEXT, b"Location: ui/\r\n" + _NOT_KEPT)
            return _safe(answer)
        return await self._file(request, _PAGE)

    async def _open_file(self, request: HttpRequest, *names: str) -> HttpAnswer:
        await self._dashboard.hosts.check(request)
        return await self._file(request, "/".join(names))

    async def _file(self, request: HttpRequest, path: str) -> HttpAnswer:
        # In a thread, and once: compressing takes a while, and most servers are never looked at.
        if self._reading is None:
            reading = in_daemon_thread(lambda: read_files(self._dashboard.folder), name="inferd-ui")
            self._reading = asyncio.get_running_loop().create_task(reading)
        # A client that leaves must not end the reading for others.
        file = (await asyncio.shield(self._reading)).get(path)
        if file is None:
            return self.not_found(request)
        is_zipped = file.zipped and _takes_gzip(request)
        tag, body = (file.zipped_tag, file.zipped) if is_zipped else (file.tag, file.body)
        headers = b"ETag: %b\r\n%b" % (tag, _CHECKED)
        if _names_tag(request.headers.get(b"if-none-match", b""), tag):
            return _safe(HttpAnswer(304, [], file.type, headers))
        if is_zipped:
            headers += b"Content-Encoding: gzip\r\n"
        return _safe(HttpAnswer(200, [body], file.type, headers))

    async def about(self, _request: HttpRequest) -> HttpAnswer:
        """Tell what a page needs before anything else: whether keys are needed, and what it may."""
        return _json(
            {
                "mode": "read" if self._dashboard.tokens is None else "full",
                "keys": self._permission.needs_keys,
                "key_headers": self._permission.key_headers,
                "unlock": self._dashboard.tokens is not None,
            }
        )

    async def events(self, request: HttpRequest) -> HttpAnswer:
        """Answer with the events of the topics asked for, from now on, or with the first ones."""
        subjects, is_once = _asked(request.target)
        for subject in subjects:
            self._permission.check_topic(subject.topic, request.headers)
        # Without a stream, which nobody would read.
        if request.method == b"HEAD":
            return HttpAnswer(200, [], EVENT_STREAM, _EVENTS)
        if is_once:
            return HttpAnswer(
                200, [await self._dashboard.hub.snapshot(subjects)], EVENT_STREAM, _EVENTS
            )
        first, stream = await self._dashboard.hub.open(subjects)
        return HttpAnswer(200, [first], EVENT_STREAM, _EVENTS, stream)

    async def unlock(self, request: HttpRequest) -> HttpAnswer:
        """Exchange a token for a session; the next token is told where the server was started."""
        tokens = self._permission.tokens()
        try:
            given = msgspec.json.decode(_body(request), type=_Unlock)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f'the body is not {{"token": "..."}}: {error}') from error
        session = tokens.unlock(given.token)
        if session is None:
            msg = "the token is not good, or has been used: the server has printed a newer link"
            raise Unauthenticated(msg)
        self._dashboard.say_next()
        return _json({"session": session})

    async def act(self, request: HttpRequest) -> HttpAnswer:
        """Change something, and tell what has been done."""
        # Before the body is read: whoever may change nothing learns nothing of acts.
        self._permission.tokens()
        act = decode_act(_body(request))
        self._permission.check_act(act, request.headers)
        return _json({"done": await do(self._dashboard.engine, act)})


class Dashboard(Mount):
    """The dashboard of one `engine`: `hub` has its events, `hosts` knows the server's names.

    With `tokens` pages may change things; `say_next` is told when one has been used. `folder` has
    the files of the page, if not the package's.
    """

    def __init__(
        self,
        engine: Engine,
        hub: Hub,
        hosts: Hosts,
        tokens: Tokens | None = None,
        say_next: Callable[[], None] = lambda: None,
        folder: Traversable | None = None,
    ) -> None:
        self.groups = {}
        self.hub = hub
        self.hosts = hosts
        self.tokens = tokens
        self.engine = engine
        self.say_next = say_next
        self.folder = page_folder() if folder is None else folder

    def http(self, access: Access, failures: FailureLog, *, forwards: bool) -> UiRoutes:
        """See Mount.http."""
        del failures, forwards
        return UiRoutes(self, access)

    async def drain(self) -> bool:
        """End the streams of events after a last one; they do not hold anything up."""
        await self.hub.drain()
        return True

    def close(self) -> None:
        """End the streams of events at once."""
        self.hub.close()

    def grpc(self, forward: HeaderForward | None, access: Access) -> dict[str, Method]:
        """See Mount.grpc; there is nothing over gRPC."""
        del forward, access
        return {}


def _asked(target: bytes) -> tuple[list[Subject], bool]:
    """Return what a request for events asks for, and whether once. Raises InvalidRequest."""
    query = target.partition(b"?")[2].partition(b"#")[0]
    try:
        values = parse_qs(query.decode(), keep_blank_values=True, strict_parsing=bool(query))
        # A page that names a parameter twice is wrong; taking either would be a guess.
        if repeated := [name for name, given in values.items() if len(given) > 1]:
            raise ValueError(f"{repeated[0]} is there twice")
    except ValueError as error:
        raise InvalidRequest(f"the query cannot be read: {error}") from error
    if unknown := values.keys() - _PARAMETERS:
        raise InvalidRequest(f"there is no parameter {min(unknown)[:100]!r} here")
    asked = {name: texts[0] for name, texts in values.items()}
    topics = asked.get("topics", "").split(",")
    for topic in topics:
        if topic not in GROUPS:
            msg = f"there is no topic {topic[:100]!r}, expected some of {', '.join(GROUPS)}"
            raise InvalidRequest(msg)
    model, version = asked.get("model", ""), asked.get("version", "")
    if "model" in topics and not model:
        raise InvalidRequest("the topic model needs the parameter model")
    subjects = [
        Subject(topic, model, version) if topic == "model" else Subject(topic) for topic in topics
    ]
    return subjects, asked.get("once") == "1"


def _body(request: HttpRequest) -> memoryview:
    if len(request.body) > MOST_BODY_BYTES:
        msg = f"the body has {len(request.body)} bytes, at most {MOST_BODY_BYTES} are taken here"
        raise TooLarge(msg)
    return request.body


def _takes_gzip(request: HttpRequest) -> bool:
    """Tell whether to send gzip: a client that likes deflate better than that has no choice."""
    items = request.headers.get(b"accept-encoding", b"").split(b",")
    others = [one for one in items if coding_named(one.partition(b";")[0]) != b"deflate"]
    return choose_coding(b",".join(others)) == b"gzip"


def _names_tag(condition: bytes, tag: bytes) -> bool:
    """Tell whether an If-None-Match names an entity tag (RFC 9110, section 13.1.2)."""
    # Compared weakly, as If-None-Match is (RFC 9110, section 8.8.3.2).
    tags = (one.strip().removeprefix(b"W/") for one in condition.split(b","))
    return condition.strip() == b"*" or tag in tags


def _json(value: object) -> HttpAnswer:
    return HttpAnswer(200, [orjson.dumps(value)], headers=_NOT_KEPT)


def _safe(answer: HttpAnswer) -> HttpAnswer:
    # Errors pass here as well: what they repeat of a request must not run either.
    answer.headers += _SAFE
    return answer
