"""The URLs of V2: which call each one maps to."""

import logging
from collections.abc import Awaitable, Coroutine, Iterable
from typing import TYPE_CHECKING

from inferd.api.call import rest_routes
from inferd.api.coded_bodies import CodedBodies
from inferd.api.mounted import MountedRoutes
from inferd.api.v2.calls import V2_ALONE, Apis
from inferd.api.v2.generate import GenerateRoutes
from inferd.api.v2.http_infer import RestInference
from inferd.compiled import mypyc_attr
from inferd.engine.engine import Engine
from inferd.errors import InferdError
from inferd.http.access import OPEN, Access
from inferd.http.coding import Coder
from inferd.http.failure import FailureLog, forget_frames
from inferd.http.head_template import Variations
from inferd.http.header_forward import HeaderForward
from inferd.http.message import HttpAnswer, HttpError, HttpRequest
from inferd.http.overload import RETRY_AFTER
from inferd.http.router import Route, Router, Target
from inferd.http.routes import Routes
from inferd.observe.tracing.tracer import Tracer
from inferd.wire.v2 import binary as v2_binary
from inferd.wire.v2.rest import codec as v2_rest
from inferd.wire.v2.rest.codec import HTTP_STATUS, JsonRules

if TYPE_CHECKING:
    from inferd.api.inference import HttpInference

log = logging.getLogger("inferd.http")

REFUSABLE = "inference"
"""The API group whose calls an overloaded server refuses."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TableRoutes(Routes):
    """Answers by `routes`, with V2's errors. The wall: no exception escapes `answer`.

    `id_header` is the one of clients that put the ids of their requests in a header, in lower case.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        tracer: Tracer,
        failures: FailureLog,
        *,
        forward: HeaderForward | None = None,
        access: Access = OPEN,
        id_header: bytes = b"",
    ) -> None:
        variations = Variations(id_header, (v2_binary.HEADER_KEY,))
        super().__init__(
            Router(routes, access), forward=forward, refusable=REFUSABLE, variations=variations
        )
        self.tracer = tracer
        self.failures = failures

    def is_timed(self) -> bool:
        """See Routes.is_timed."""
        return self.tracer.is_on

    def refusal(self, request: HttpRequest, error: Exception) -> HttpAnswer:
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
            return self.failed(request, error)

    def failed(self, request: HttpRequest, error: Exception) -> HttpAnswer:
        """Log `error` unless it is the client's fault; return the answer that reports it."""
        self.failures.note(request.target.decode("latin-1"), error)
        answer = self.refusal(request, error)
        # Frames hold the request's tensors, and the error may be kept by the client's connection.
        forget_frames(error)
        return answer


class HttpRoutes(TableRoutes):
    """Answers requests by asking the engine.

    `forward` chooses the headers of an inference that become its parameters. `table` has the routes
    of V2 alone, `health` the health checks of all APIs. `own_headers` names the response
    headers that a web page may want to read.
    """

    def __init__(
        self,
        engine: Engine,
        rules: JsonRules,
        *,
        not_ready_status: int,
        forward: HeaderForward | None = None,
        access: Access = OPEN,
        apis: Apis = V2_ALONE,
    ) -> None:
        coder = Coder(rules.max_json_bytes, engine.offload)
        coded = CodedBodies(coder, engine.capacity)
        failures = FailureLog(log)
        forwards = forward is not None
        inference = RestInference(engine, rules, coder, coded, forwards=forwards)
        generate = GenerateRoutes(engine, rules, failures)
        routes = rest_routes(
            apis.calls,
            engine,
            rules.max_json_bytes,
            not_ready_status,
            {
                "infer": inference.infer,
                "generate": generate.generate,
                "generateStream": generate.stream,
                "inferStream": generate.infer_stream,
            },
            {"infer": inference},
        )
        # Inference inflates bodies by itself.
        self.table = [route if route.prompt else coded.route(route) for route in routes]
        self._mounts = [mount.http(access, failures, forwards=forwards) for mount in apis.mounts]
        lines = [*self.table, *(line for mount in self._mounts for line in mount.routes())]
        lines += apis.routes
        self.health = [line for line in lines if line.api == "health"]
        mounted = (name for mount in self._mounts for name in mount.own_headers)
        self.own_headers = [v2_binary.HEADER, "Retry-After", *mounted]
        id_header = next((mount.id_header for mount in self._mounts), b"")
        super().__init__(
            lines, engine.tracer, failures, forward=forward, access=access, id_header=id_header
        )
        self._targets = self.router.known

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """See Routes.answer."""
        begun = self.begin(request)
        return begun if isinstance(begun, HttpAnswer) else await begun

    def begin(self, request: HttpRequest) -> HttpAnswer | Coroutine[object, None, HttpAnswer]:
        """See Routes.begin.

        An inference often need not wait; a coroutine would make it a tenth slower.
        """
        try:
            # Targets seen before, as bytes: no parsing for the usual ones.
            target = self._targets.get(request.target) or self.router.find(request.target)
            if target is None:
                mount = self._mount_of(request.target)
                return not_found(request) if mount is None else mount.not_found(request)
            if target.prompt is not None and request.method == b"POST":
                inference: HttpInference = target.prompt
                answer = inference.begin(target.names, request)
                # Only a coroutine can still fail; an answer that is there already was inside of
                # this wall.
                return answer if isinstance(answer, HttpAnswer) else self._walled(request, answer)
            call = target.calls.get(request.method)
            if call is None:
                mount = self._mount_of(request.target)
                if mount is not None:
                    return mount.wrong_method(request, target)
                return wrong_method(request, target)
            return self._walled(request, call(request, *target.names))
        except Exception as error:  # noqa: BLE001  the wall
            return self.failed(request, error)

    async def _walled(self, request: HttpRequest, answering: Awaitable[HttpAnswer]) -> HttpAnswer:
        try:
            return await answering
        except Exception as error:  # noqa: BLE001  the wall
            return self.failed(request, error)

    # Only for errors, so a few comparisons do not matter.
    def _mount_of(self, target: bytes) -> MountedRoutes | None:
        """Return the mount that `target` belongs to, to word errors as its API does."""
        for mount in self._mounts:
            if mount.owns(target):
                return mount
        return None

    def refusal(self, request: HttpRequest, error: Exception) -> HttpAnswer:
        """See Routes.refusal."""
        mount = self._mount_of(request.target)
        return refusal(error) if mount is None else mount.refusal(error)

    def success_headers(self, target: bytes) -> bytes:
        """Return the headers that the API of `target` adds to every successful answer."""
        mount = self._mount_of(target)
        return b"" if mount is None else mount.success()

    def is_shared(self, target: bytes) -> bool:
        """Return whether the API of `target` is for web pages of other origins, too."""
        mount = self._mount_of(target)
        return mount is None or mount.is_shared()

    def verbs(self, target: bytes) -> list[bytes]:
        """Return the methods a request target allows, none if it does not exist."""
        found = self.router.find(target)
        return sorted(found.calls) if found else []


def error_answer(status: int, message: str, headers: bytes = b"") -> HttpAnswer:
    """Return the V2 error object; its type is exactly application/json, as clients expect."""
    if status == 401:
        headers += b"WWW-Authenticate: Bearer\r\n"  # RFC 9110, section 15.5.2
    return HttpAnswer(status, [v2_rest.encode_error(message)], headers=headers)


def refusal(error: Exception) -> HttpAnswer:
    """Return the answer to a request that failed with `error`."""
    if isinstance(error, HttpError):
        return error_answer(error.status, error.message)
    if isinstance(error, InferdError):
        # RFC 9110, section 10.2.3: only where trying again may help.
        headers = RETRY_AFTER if error.retry_s else b""
        return error_answer(HTTP_STATUS[error.code], error.message, headers)
    return error_answer(500, "the server failed in a way it does not understand; see its log")


def not_found(request: HttpRequest) -> HttpAnswer:
    """Return the answer to a target that does not exist."""
    path = request.target.partition(b"?")[0][:200].decode("latin-1")
    return error_answer(404, f"Not Found: there is nothing at '{path}'")


def wrong_method(request: HttpRequest, target: Target) -> HttpAnswer:
    """Return the answer to a method that `target` does not allow."""
    if target.guard is not None:  # a client without access is not told which methods exist
        target.guard.check(request.headers)
    allowed = b", ".join(sorted(target.calls))
    method = request.method[:40].decode("latin-1")
    text = f"Method Not Allowed: {method}, expected {allowed.decode()}"
    return error_answer(405, text, b"Allow: %b\r\n" % allowed)
