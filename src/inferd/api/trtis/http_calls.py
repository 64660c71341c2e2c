"""The URLs of the TensorRT Inference Server API, whose only statuses are 200, 400 and 405.

Every answer but 405 reports the outcome of the request in NV-Status. Some errors keep a status that
the API itself does not have: 401 and 403 for denied access, 413, and the errors of HTTP itself.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter_ns
from typing import Any
from urllib.parse import unquote_to_bytes

from inferd.aio.offload import Work
from inferd.api.mounted import MountedRoutes
from inferd.api.trtis.http_infer import TrtisInference, first_value, format_of, refused
from inferd.api.trtis.trtis import CONTROL, HEALTH, REPOSITORY, SHARED_MEMORY, STATUS, Trtis
from inferd.core.change import AddCudaRegion, AddSystemRegion
from inferd.errors import Code, InferdError, InvalidRequest
from inferd.http.access import Access
from inferd.http.failure import FailureLog
from inferd.http.message import HttpAnswer, HttpError, HttpRequest
from inferd.http.router import HttpCall, Route, Target, path_of
from inferd.wire.proto import serialized
from inferd.wire.trtis import status as trtis_status
from inferd.wire.trtis.http import REQUEST, RESPONSE
from inferd.wire.trtis.http import STATUS as STATUS_HEADER
from inferd.wire.trtis.infer import STATUS as STATUS_CODES

_OCTETS = b"application/octet-stream"
_TEXT = b"text/plain; charset=utf-8"
_JSON = b"application/json"
_STATUS_PATH = re.compile(rb"/api/sharedmemorycontrol/status(?:[/?]|\Z)")
_VERBS = {
    b"health": b"GET",
    b"status": b"GET",
    b"infer": b"POST",
    b"profile": b"GET",
    b"modelcontrol": b"POST",
    b"sharedmemorycontrol": b"POST",
    b"repository": b"GET",
}
"""The verb of each endpoint, which is checked before the rest of the path."""

_Call = Callable[..., Awaitable[HttpAnswer | None]]
"""What answers a request; None is an answer without a body."""

_HANDLE_BYTES = 64
_MAX_NUMBER = 2**63


class TrtisRoutes(MountedRoutes):
    """Answers the URLs; Status has data of several API groups, so it checks `access` itself."""

    def __init__(
        self, trtis: Trtis, access: Access, failures: FailureLog, *, forwards: bool
    ) -> None:
        self._trtis = trtis
        super().__init__([STATUS_HEADER, RESPONSE], REQUEST.lower().encode())
        self._inference = TrtisInference(trtis, failures, forwards=forwards)
        self._engine = trtis.engine
        self._failures = failures
        self._offload = trtis.engine.offload
        self._status_guards = trtis.status_guards(access)

    def owns(self, target: bytes) -> bool:
        """See MountedRoutes.owns."""
        first = path_of(target).removeprefix(b"/").partition(b"/")[0]
        return unquote_to_bytes(first) == b"api"

    def routes(self) -> list[Route]:
        """Return the routes."""
        models, memory = "model-repository", "shared-memory"
        control, shared = "/api/modelcontrol", "/api/sharedmemorycontrol"
        register, tail = f"{shared}/register/{{region}}", "{key}/{offset}/{size}"
        cuda = f"{shared}/cudaregister/{{region}}/{{size}}/{{device}}"
        infer, trtis = self._inference, self._trtis
        drop, drop_all = _by_names(trtis.unregister), _by_names(trtis.unregister_all)

        def add_rooted(request: HttpRequest, region: str, key: str, *where: str) -> Awaitable[None]:
            return self.add_region(request, region, f"/{key}", *where)

        calls: list[tuple[str, str, str, _Call, str]] = [
            ("GET", "/api/health/{mode}", "health", self.health, HEALTH),
            ("GET", "/api/status", "metadata", self.status, STATUS),
            ("GET", "/api/status/{model}", "metadata", self.status, STATUS),
            ("GET", "/api/profile", "trace", self.profile, ""),
            ("POST", f"{control}/load/{{model}}", models, _by_names(trtis.load), CONTROL),
            ("POST", f"{control}/unload/{{model}}", models, _by_names(trtis.unload), CONTROL),
            ("GET", "/api/repository/index", models, self.index, REPOSITORY),
            # A key begins with a slash, and follows one.
            ("POST", f"{register}//{tail}", memory, add_rooted, SHARED_MEMORY),
            ("POST", f"{register}/{tail}", memory, self.add_region, SHARED_MEMORY),
            ("POST", cuda, memory, self.add_cuda, SHARED_MEMORY),
            ("POST", f"{shared}/unregister/{{region}}", memory, drop, SHARED_MEMORY),
            ("POST", f"{shared}/unregisterall", memory, drop_all, SHARED_MEMORY),
            ("GET", f"{shared}/status", memory, self.regions, SHARED_MEMORY),
        ]
        return [
            Route("POST", "/api/infer/{model}", "inference", infer.infer, infer),
            Route("POST", "/api/infer/{model}/{version}", "inference", infer.infer, infer),
            *(
                Route(verb, path, group, self._with_status(call, statistics))
                for verb, path, group, call, statistics in calls
            ),
        ]

    def not_found(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer to a target that does not exist."""
        path = path_of(request.target)
        word = b"".join(path.split(b"/", 3)[2:3])
        verb = _VERBS.get(word)
        if _STATUS_PATH.match(path):
            verb = b"GET"
        # Answered like GET (RFC 9110, section 9.3.2).
        method = b"GET" if request.method == b"HEAD" else request.method
        if verb is not None and method != verb:
            return _wrong_method([verb])
        text = path[:200].decode("latin-1")
        return self.refusal(InvalidRequest(f"there is nothing at '{text}'"))

    def success(self) -> bytes:
        """Return the NV-Status of a successful answer that comes from no call of this API."""
        return self._trtis.status_line.success(next(self._trtis.numbers))

    def wrong_method(self, request: HttpRequest, target: Target) -> HttpAnswer:
        """Return the answer to a method that `target` does not allow."""
        if target.guard is not None:  # a client without access is not told which methods exist
            target.guard.check(request.headers)
        return _wrong_method(target.calls)

    def refusal(self, error: Exception) -> HttpAnswer:
        """Return the answer to a request that never reached its call, or made it fail.

        Errors of HTTP itself keep their status.
        """
        number = next(self._trtis.numbers)
        if isinstance(error, HttpError):
            # 501 is what HTTP has for what a server does not do.
            code = STATUS_CODES[Code.UNSUPPORTED if error.status > 500 else Code.INVALID_ARG]
            headers = self._trtis.status_line.failure(code, error.message, number)
            return HttpAnswer(error.status, [], _TEXT, headers)
        return refused(self._trtis, error, number)

    def _with_status(self, call: _Call, what: str) -> HttpCall:
        """Return `call` with NV-Status in its answers; successful ones are counted as `what`."""
        trtis = self._trtis

        async def answer_with_status(request: HttpRequest, *names: str) -> HttpAnswer:
            began_ns = perf_counter_ns()
            number = next(trtis.numbers)
            try:
                answer = await call(request, *names) or HttpAnswer(200, [], _TEXT)
            # Everything else is left to the wall of HttpRoutes, which knows this API's form by
            # `refusal`.
            except InferdError as error:
                self._failures.note(request.target.decode("latin-1"), error)
                return refused(self._trtis, error, number)
            answer.headers += trtis.status_line.success(number)
            if what:
                trtis.count(what, began_ns)
            return answer

        return answer_with_status

    async def health(self, _request: HttpRequest, mode: str) -> HttpAnswer:
        """Handle Health: the body is empty, and 400 with SUCCESS in NV-Status means no."""
        if mode not in ("live", "ready"):
            msg = f"unknown health mode '{mode[:40]}', only live and ready are known"
            raise InvalidRequest(msg)
        return HttpAnswer(200 if self._trtis.is_healthy(mode) else 400, [], _TEXT)

    async def status(self, request: HttpRequest, model: str = "") -> HttpAnswer:
        """Handle Status, of all models or one."""
        for guard in self._status_guards:
            guard.check(request.headers)
        return await self._message(request, await self._trtis.status(model), may_be_json=True)

    async def profile(self, request: HttpRequest) -> HttpAnswer:
        """Refuse Profile, which is not offered."""
        self._trtis.refuse_profile(first_value(request.target, "cmd"))

    async def _message(
        self, request: HttpRequest, message: Any, *, may_be_json: bool = False
    ) -> HttpAnswer:
        form = format_of(request.target)
        if form == "binary":
            return HttpAnswer(200, [serialized(message)], _OCTETS)
        accept = request.headers.get(b"accept")
        encode, content_type = trtis_status.as_text, _TEXT
        # Exactly this value: browsers list many types, and are shown text.
        if may_be_json and (form == "json" or (not form and accept == _JSON)):
            encode, content_type = trtis_status.as_json, _JSON
        body = await self._offload.run(Work.STATUS, encode, message)
        return HttpAnswer(200, [body], content_type)

    async def index(self, request: HttpRequest) -> HttpAnswer:
        """Handle Repository, index."""
        return await self._message(request, await self._trtis.index())

    async def add_region(
        self, _request: HttpRequest, region: str, key: str, offset: str, size: str
    ) -> None:
        """Handle Shared Memory Control, register."""
        where, size_bytes = _number("offset", offset), _number("byte_size", size)
        await self._engine.changes.change(AddSystemRegion(region, key, where, size_bytes))

    async def add_cuda(self, request: HttpRequest, region: str, size: str, device: str) -> None:
        """Handle Shared Memory Control, cudaregister; the body is the handle."""
        size_bytes, device_id = _number("byte_size", size), _number("device id", device)
        # The size of a cudaIpcMemHandle_t.
        if len(request.body) != _HANDLE_BYTES:
            msg = f"the body has {len(request.body)} bytes, a handle has {_HANDLE_BYTES}"
            raise InvalidRequest(msg)
        change = AddCudaRegion(region, bytes(request.body), device_id, size_bytes)
        await self._engine.changes.change(change)

    async def regions(self, request: HttpRequest) -> HttpAnswer:
        """Handle Shared Memory Control, status."""
        status = trtis_status.shared_memory_status(self._trtis.regions())
        return await self._message(request, status)


def _by_names(call: Callable[..., Awaitable[None]]) -> _Call:
    """Return what answers a request of which only the names in its path count."""
    return lambda _request, *names: call(*names)


def _wrong_method(allowed: Iterable[bytes]) -> HttpAnswer:
    return HttpAnswer(405, [], _TEXT, b"Allow: %b\r\n" % b", ".join(sorted(allowed)))


def _number(what: str, text: str) -> int:
    # isdigit() is true for digits of every script.
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < _MAX_NUMBER):
        raise InvalidRequest(f"the {what} is '{text[:40]}', expected a number of 63 bits")
    return int(text)
