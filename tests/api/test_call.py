"""Declaring a call: what is declared once is served, guarded and described everywhere."""

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import msgspec
import pytest

from inferd.api.call import ApiCall, Rest, Rpc, grpc_handlers, rest_routes
from inferd.api.v2.calls import V2_ALONE, Apis
from inferd.config.server import ServerConfig
from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest
from inferd.http.access import Access, Secret
from inferd.http.message import HttpRequest
from inferd.server.options import grpc_options
from inferd.transport.grpc_server import GrpcServer
from inferd.transport.http2_server import Http2Server

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import build_calls_doc
import build_openapi

PATH = "/test.Greetings/Greet"


def greet(engine: Engine, name: str, count: int = 1) -> str:
    """Greet someone in the name of the models."""
    if count < 1:
        msg = f"a greeting is said once or more, not {count} times"
        raise InvalidRequest(msg)
    return f"{engine.catalog.names()[0]} greets {name}" * count


def decode(body, name="all"):
    return name, msgspec.json.decode(body, type=int)


GREET = ApiCall(
    "metadata",
    "Greetings",
    Rest(
        "POST",
        "/v2/greetings[/{model}]",
        "greet",
        "Greet someone.",
        "Anything",
        "LogChange",
        errors=(400,),
        decode=decode,
        encode=str.encode,
    ),
    Rpc("Greet", bytes.decode, str.encode, services=("test.Greetings",)),
    function=greet,
    answers="a greeting",
)
APIS = Apis((*V2_ALONE.calls, GREET))
RESTRICTED = Access({"metadata": Secret(b"k", b"v")})
TRANSPORTS = {"own": Http2Server, "grpcio": GrpcServer}


@pytest.fixture(params=TRANSPORTS)
def greeting(request):
    """`async with greeting(engine, access) as greet` offers the method over gRPC."""

    @asynccontextmanager
    async def offer(engine, access):
        options = grpc_options(ServerConfig(), apis=APIS)
        options = msgspec.structs.replace(options, access=access)
        server = TRANSPORTS[request.param](engine, options)
        port = await server.start("127.0.0.1", 0)
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield channel.unary_unary(PATH)
        finally:
            await server.stop(0)

    return offer


async def test_a_call_is_served_over_http(serving, post):
    async with serving(apis=APIS) as site:
        answer = await site.ask(post("/v2/greetings", b"1"))
        assert (answer.status, answer.body) == (200, b"a/b c greets all")
        answer = await site.ask(post("/v2/greetings/Ann", b"2"))
        assert answer.body == b"a/b c greets Ann" * 2
        answer = await site.ask(post("/v2/greetings/Ann", b"0"))
        assert (answer.status, answer.error) == (
            400,
            "a greeting is said once or more, not 0 times",
        )
        answer = await site.ask(b"GET /v2/greetings HTTP/1.1\r\n\r\n")
        assert (answer.status, answer.headers["allow"]) == (405, "POST")


async def test_a_call_is_served_over_grpc(models, greeting):
    engine, _ = models()
    async with greeting(engine, Access()) as greet:
        assert await greet(b"Ann") == b"a/b c greets Ann"


async def test_a_call_is_guarded_by_its_group(serving, post, models, greeting):
    async with serving(apis=APIS, access=RESTRICTED) as site:
        assert (await site.ask(post("/v2/greetings", b"1"))).status == 403
        answer = await site.ask(post("/v2/greetings", b"1").replace(b"\r\n", b"\r\nk: v\r\n", 1))
        assert answer.status == 200
    engine, _ = models()
    async with greeting(engine, RESTRICTED) as greet:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await greet(b"Ann")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await greet(b"Ann", metadata=[("k", "v")]) == b"a/b c greets Ann"


PIECES = 40


def in_pieces(said):
    for number in range(PIECES):
        yield f"{said} {number}, ".encode()


IN_PIECES = ApiCall(
    "metadata",
    "Greetings",
    Rest("GET", "/v2/greetings/{model}", "greet", "Greet someone.", encode=in_pieces),
    Rpc("Greet", bytes.decode, in_pieces, services=("test.Greetings",)),
    function=greet,
)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_others_have_their_turns_between_the_pieces_of_an_answer(models, protocol):
    engine, _ = models()
    if protocol == "grpc":
        asked = grpc_handlers((IN_PIECES,), engine, {})[PATH].handler(b"Ann", None)
    else:
        [route] = rest_routes((IN_PIECES,), engine, 1000, 503, {}, {})
        asked = route.call(HttpRequest(b"GET", b"/v2/greetings/Ann", {}, True, False), "Ann")
    turns = 0

    async def take_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    answer = await asked
    other.cancel()
    buffers = answer if protocol == "grpc" else answer.buffers
    assert buffers == list(in_pieces("a/b c greets Ann"))
    assert turns >= PIECES


def test_a_call_is_described():
    entry = build_openapi.build(APIS.calls)["paths"]["/v2/greetings/{model}"]
    assert entry["post"]["operationId"] == "greetOfModel"
    assert entry["post"]["tags"] == ["metadata"]
    page = "## Greetings\n\n| REST | gRPC | answers |\n| --- | --- | --- |\n"
    built = build_calls_doc.build(page, (GREET,))
    assert built == page + "| `POST /v2/greetings[/{model}]` | Greet | a greeting |\n"


def test_a_call_without_a_place_in_the_reference_is_an_error():
    with pytest.raises(SystemExit, match="no table of calls in Greetings"):
        build_calls_doc.build("## Something else\n", (GREET,))
