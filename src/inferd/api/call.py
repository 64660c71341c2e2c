"""ApiCall: a call of an API, declared once for HTTP, gRPC, access control and the documentation.

The function of a call sees words of the engine only. Its REST and gRPC sides bring the codecs; the
adapters that turn a side into a handler are here. A side whose handler is written by hand, such as
that of an inference, has none.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from inferd.aio.offload import Work
from inferd.engine.engine import Engine
from inferd.http.grpc.handler import Call, Method, Unary, UnaryHandler
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import HttpCall, Route
from inferd.memory.buffer import Buffer

V2_SERVICE = "inference.GRPCInferenceService"

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
EVENTS = "text/event-stream; charset=utf-8"


class Rest(NamedTuple):
    """A call over REST; a part of `path` in [...] is optional.

    The fields up to `type` are those of the OpenAPI document: the operation's `name`, `text` and
    schemas. `errors` are the statuses it may fail with for its own reasons. With `may_be_empty` the
    request needs no body. `type` is the Content-Type of the answer.

    `check` gets the engine and the names in the path before the body is looked at. `decode` gets
    the body and the names, with `has_limit` behind the largest size of JSON; without `decode` the
    names are the arguments of the call's function. `encode` may yield pieces of the body instead:
    others get a turn after each. `status` gets the result, and the status of what is not ready.
    """

    verb: str
    path: str
    name: str
    text: str
    gives: str = ""
    takes: str = ""
    errors: tuple[int, ...] = ()
    may_be_empty: bool = True
    type: str = JSON
    decode: Callable[..., object] | None = None
    encode: Callable[[Any], bytes | Iterator[bytes]] | None = None
    check: Callable[..., None] | None = None
    status: Callable[[Any, int], int] | None = None
    has_limit: bool = False

    def operations(self) -> Iterator[tuple[str, str]]:
        """Return each path, without and with its optional part, and its operation's name."""
        optional = re.search(r"\[(.*?)\]", self.path)
        if optional is None:
            yield self.path, self.name
            return
        [name] = re.findall(r"{(\w+)}", optional[1])
        yield self.path.replace(optional[0], ""), self.name
        yield self.path.replace(optional[0], optional[1]), f"{self.name}Of{name.capitalize()}"


class Rpc(NamedTuple):
    """A call over gRPC, in each of `services`; `check` and the codecs are like those of Rest."""

    name: str
    decode: Callable[[bytes], Any] | None = None
    encode: Callable[[Any], bytes | Iterator[bytes]] | None = None
    check: Callable[[Engine], None] | None = None
    services: tuple[str, ...] = (V2_SERVICE,)

    def paths(self) -> list[str]:
        """Return the full names of the method."""
        return [f"/{service}/{self.name}" for service in self.services]


class ApiCall:
    """A call: its API group, its section in the documentation, and how it is reached.

    `function` takes the engine and what a decoder has returned: a tuple of arguments, a single
    argument, or None for none; it may be a coroutine function. A codec that takes long is work for
    a thread, of the kind `decode_work` or `encode_work`. `answers` says in the tables of the
    documentation what the call is for.
    """

    def __init__(
        self,
        group: str,
        section: str,
        *sides: Rest | Rpc,
        function: Callable[..., object] | None = None,
        answers: str = "",
        decode_work: Work | None = None,
        encode_work: Work | None = None,
    ) -> None:
        self.group = group
        self.section = section
        self.rest = [side for side in sides if isinstance(side, Rest)]
        self.rpcs = [side for side in sides if isinstance(side, Rpc)]
        self.function = function
        self.answers = answers
        self.decode_work = decode_work
        self.encode_work = encode_work


def rest_routes(
    calls: Iterable[ApiCall],
    engine: Engine,
    max_json_bytes: int,
    not_ready_status: int,
    by_hand: Mapping[str, HttpCall],
    prompt: Mapping[str, object],
) -> list[Route]:
    """Return the routes of `calls` in order; `by_hand` are handlers by operation, see Route."""
    return [
        Route(rest.verb, path, call.group, handler, prompt.get(rest.name))
        # In order of declaration, because the first path that fits wins.
        for call in calls
        for rest in call.rest
        for handler in [
            by_hand.get(rest.name)
            or _rest_handler(call, rest, engine, max_json_bytes, not_ready_status)
        ]
        for path, _ in rest.operations()
    ]


def grpc_handlers(
    calls: Iterable[ApiCall], engine: Engine, by_hand: Mapping[str, Method]
) -> dict[str, Method]:
    """Return the methods of `calls` by path; `by_hand` are those that need no adapter."""
    methods = dict(by_hand)
    for call in calls:
        for rpc in call.rpcs:
            # A stream or an inference brings a handler of its own.
            if not by_hand.keys() & rpc.paths():
                methods |= dict.fromkeys(rpc.paths(), Unary(_grpc_handler(call, rpc, engine)))
    return methods


def _rest_handler(
    call: ApiCall, rest: Rest, engine: Engine, max_json_bytes: int, not_ready_status: int
) -> HttpCall:
    decode, encode, check, status = rest.decode, rest.encode, rest.check, rest.status
    if decode is not None and rest.has_limit:
        decode = partial(decode, max_json_bytes)
    # Chosen once, so that a request does not ask whether its codec takes long.
    run_decode, run_encode = _runner(engine, call.decode_work), _runner(engine, call.encode_work)
    content_type = rest.type.encode()

    async def answer(request: HttpRequest, *names: str) -> HttpAnswer:
        if check is not None:
            # Before the body is decoded: that may be megabytes, of a request that is not allowed
            # anyway.
            check(engine, *names)
        decoded = names if decode is None else await run_decode(decode, request.body, *names)
        result = await _called(call, engine, decoded)
        code = 200 if status is None else status(result, not_ready_status)
        if encode is None:
            return HttpAnswer(code, [], content_type)
        body = await _pieces(await run_encode(encode, result))
        return HttpAnswer(code, body, content_type)

    return answer


def _grpc_handler(call: ApiCall, rpc: Rpc, engine: Engine) -> UnaryHandler:
    decode, encode, check = rpc.decode, rpc.encode, rpc.check
    assert decode is not None
    assert encode is not None
    run_decode, run_encode = _runner(engine, call.decode_work), _runner(engine, call.encode_work)

    async def answer(data: bytes, _context: Call) -> list[Buffer]:
        if check is not None:
            check(engine)
        result = await _called(call, engine, await run_decode(decode, data))
        return await _pieces(await run_encode(encode, result))

    return answer


async def _called(call: ApiCall, engine: Engine, decoded: Any) -> Any:
    """Return what the function of `call` returns for what a decoder has returned."""
    assert call.function is not None
    # A tuple stands for several arguments, so that a codec need not know the function.
    arguments = decoded if isinstance(decoded, tuple) else () if decoded is None else (decoded,)
    result = call.function(engine, *arguments)
    return await result if isinstance(result, Awaitable) else result


async def _pieces(encoded: bytes | Iterator[bytes]) -> list[Buffer]:
    if isinstance(encoded, bytes):
        return [encoded]
    found: list[Buffer] = []
    for piece in encoded:
        found.append(piece)
        await asyncio.sleep(0)
    return found


def _runner(engine: Engine, work: Work | None) -> Callable[..., Awaitable[Any]]:
    return partial(engine.offload.run, work) if work else _run_here


async def _run_here(function: Callable[..., object], *arguments: Any) -> Any:
    return function(*arguments)
