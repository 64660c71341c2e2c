"""Calls that concern all places, answered for the whole by inferd's own servers.

The places are fakes: what real ones answer is in test_process.py.
"""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import grpc.aio
import pytest

from inferd.core.metadata import IndexEntry, ModelState
from inferd.route.asking import Channels
from inferd.route.configuration import CONTROL_METHODS
from inferd.route.control import (
    NO_MODEL,
    NO_SEQUENCE_ID,
    UNPACKED,
    ControlCalls,
    GrpcControl,
    RestControl,
)
from inferd.route.http_client import HttpTarget, fetch
from inferd.route.own_server import OwnServer
from inferd.route.place import Place, PlaceState
from inferd.wire.proto import encode, parse
from inferd.wire.v2.repository import encode_index_message

LOAD = "/v2/repository/models/m/load"


class World:
    """Our own servers in front of fake places. `refreshes` counts how often all were looked at."""

    def __init__(self, folder):
        self.front = folder / "front"
        self.places = []
        self.refreshes = 0
        self.port = 0

    async def refresh(self):
        self.refreshes += 1

    async def rest(self, method, path, body=b"", headers=()):
        """Return the status and the JSON that a client gets."""
        answer = await fetch(HttpTarget("127.0.0.1", self.port), method, path, headers, body)
        return answer.status, json.loads(answer.body)


@asynccontextmanager
async def world(stack):
    folder = Path(stack.enter_context(TemporaryDirectory()))
    found, channels = World(folder), Channels()
    control = ControlCalls(lambda: found.places, found.refresh, "{} is woken".format)
    own = OwnServer(
        RestControl(control), GrpcControl(control, channels, str(found.front)).methods()
    )
    found.port = await own.open("127.0.0.1", 0)
    try:
        yield found
    finally:
        own.close()
        await channels.close()


def over_rest(site, sites, test):
    """Run `test(world, sites)` with a place for each of `sites`, the answers by path."""

    async def run():
        async with AsyncExitStack() as stack:
            found = await stack.enter_async_context(world(stack))
            started = [await stack.enter_async_context(site(answers)) for answers in sites]
            found.places = [
                Place(name, "127.0.0.1", one.port, 1)
                for name, one in zip("abc", started, strict=False)
            ]
            return await test(found, started)

    return asyncio.run(run())


def test_a_load_is_done_at_all_places_before_it_is_answered(site):
    async def test(found, sites):
        answer = await found.rest("POST", LOAD, b'{"x":1}', [("Authorization", "Bearer k")])
        return answer, [one.requests for one in sites], found.refreshes

    answer, requests, refreshes = over_rest(site, [{LOAD: (200, b"{}")}] * 2, test)
    assert answer == (200, {})
    assert refreshes == 1
    for [(head, body)] in requests:
        assert body == b'{"x":1}'
        assert head.startswith(f"POST {LOAD} HTTP/1.1\r\n")
        assert "authorization: Bearer k\r\n" in head


def test_a_load_that_fails_somewhere_says_where(site):
    async def test(found, _):
        return await found.rest("POST", LOAD), found.refreshes

    sites = [{LOAD: (200, b"{}")}, {LOAD: (500, b'{"error":"no space"}')}]
    answer, refreshes = over_rest(site, sites, test)
    assert answer == (500, {"error": "no space (at b); done at a"})
    assert refreshes == 1


def test_only_places_that_are_meant_to_have_a_model_load_it(site):
    async def test(found, sites):
        found.places[0] = Place("a", "127.0.0.1", sites[0].port, 1, frozenset({"other"}))
        return await found.rest("POST", LOAD), [len(one.requests) for one in sites]

    answer, counts = over_rest(site, [{}, {LOAD: (200, b"{}")}], test)
    assert answer == (200, {})
    assert counts == [0, 1]


def test_a_place_that_drains_is_not_asked(site):
    async def test(found, sites):
        port = sites[0].port
        found.places[0] = Place("a", "127.0.0.1", port, 1, None, PlaceState.DRAINING)
        await found.rest("POST", LOAD)
        return [len(one.requests) for one in sites]

    assert over_rest(site, [{LOAD: (200, b"{}")}] * 2, test) == [0, 1]


def test_a_place_that_does_not_answer_is_named(site):
    async def test(found, sites):
        await sites[1].__aexit__()
        return await found.rest("POST", LOAD)

    status, document = over_rest(site, [{LOAD: (200, b"{}")}] * 2, test)
    assert status == 503
    assert document["error"].startswith("no answer: ")
    assert document["error"].endswith("(at b); done at a")


def test_without_places_it_is_said(site):
    async def test(found, _):
        return await found.rest("POST", LOAD)

    assert over_rest(site, [], test) == (503, {"error": "there are no places (inferd route)"})


def test_settings_that_differ_are_an_error_that_shows_both(site):
    async def test(found, _):
        return await found.rest("GET", "/v2/logging")

    same, other = {"/v2/logging": (200, b'{"a":1}')}, {"/v2/logging": (200, b'{"a":2}')}
    assert over_rest(site, [same, same], test) == (200, {"a": 1})
    status, document = over_rest(site, [same, other], test)
    assert status == 503
    assert document["error"].startswith("the places differ: a has {'a': 1}, b has {'a': 2}")


def test_the_index_and_the_names_are_those_of_all(site):
    def answers(name, state):
        row = {"name": name, "version": "1", "state": state, "reason": ""}
        return {
            "/v2/repository/index": (200, json.dumps([row]).encode()),
            "/v2/models": (200, json.dumps({"models": [name]}).encode()),
        }

    async def test(found, _):
        return [
            await found.rest("POST", "/v2/repository/index", b"{}"),
            await found.rest("GET", "/v2/models"),
        ]

    index, names = over_rest(site, [answers("m", "READY"), answers("n", "LOADING")], test)
    assert [(row["name"], row["state"]) for row in index[1]] == [("m", "READY"), ("n", "LOADING")]
    assert names == (200, {"models": ["m", "n"]})


def test_odd_answers_are_our_own_failure_and_harm_nobody(site):
    async def test(found, _):
        return [
            await found.rest("POST", "/v2/repository/index", b"{}"),
            await found.rest("GET", "/v2/models"),
        ]

    sites = [{"/v2/repository/index": (200, b"{"), "/v2/models": (200, b"[]")}]
    index, names = over_rest(site, sites, test)
    assert index[0] == 500
    assert "malformed" in index[1]["error"]
    assert names == (500, {"error": "inferd route failed; see its log"})


def test_an_answer_of_the_older_api_keeps_its_status_header(site):
    async def test(found, _):
        target = HttpTarget("127.0.0.1", found.port)
        return await fetch(target, "POST", "/api/modelcontrol/load/m")

    good = b"HTTP/1.1 200 OK\r\nNV-Status: code: SUCCESS\r\nContent-Length: 0\r\n\r\n"
    bad = b"HTTP/1.1 400 Bad\r\nNV-Status: code: INVALID_ARG\r\nContent-Length: 0\r\n\r\n"
    path = "/api/modelcontrol/load/m"
    answer = over_rest(site, [{path: good}, {path: bad}], test)
    assert (answer.status, answer.headers["nv-status"]) == (400, "code: INVALID_ARG")


# --- gRPC ---

V2 = "/inference.GRPCInferenceService/"


class Answering(grpc.GenericRpcHandler):
    """Answers every method with what `answers` has for it, bytes or a status and a text."""

    def __init__(self, answers):
        self.answers = answers
        self.received = []

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.answer(details))

    def answer(self, details):
        async def answer(message, context):
            self.received.append((details.method, message, dict(details.invocation_metadata)))
            found = self.answers[details.method.rpartition("/")[2]]
            if isinstance(found, bytes):
                return found
            await context.abort(*found)

        return answer


def over_grpc(several, test):
    """Run `test(world, call)` with a place for each of `several`, the answers by method."""

    async def run():
        async with AsyncExitStack() as stack:
            found = await stack.enter_async_context(world(stack))
            for name, answers in zip("abc", several, strict=False):
                server = grpc.aio.server()
                server.add_generic_rpc_handlers((Answering(answers),))
                port = server.add_insecure_port("127.0.0.1:0")
                await server.start()
                stack.push_async_callback(server.stop, None)
                found.places.append(Place(name, "127.0.0.1", 1, port))
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{found.port}")
            stack.push_async_callback(channel.close)

            async def call(name, message=b"", **more):
                return await channel.unary_unary(V2 + name)(message, **more)

            return await test(found, call)

    return asyncio.run(run())


def refused(several, name, message=b""):
    """Return the status and text of a call that fails."""

    async def test(_, call):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call(name, message)
        return error.value.code(), error.value.details()

    return over_grpc(several, test)


LOADED = encode("inference.RepositoryModelLoadRequest", model_name="m")


def test_a_load_over_grpc_is_done_at_all_places():
    async def test(found, call):
        return await call("RepositoryModelLoad", LOADED), found.refreshes

    assert over_grpc([{"RepositoryModelLoad": b""}] * 2, test) == (b"", 1)


def test_a_load_over_grpc_that_fails_somewhere_says_where():
    failed = {"RepositoryModelLoad": (grpc.StatusCode.NOT_FOUND, "no such file")}
    code, text = refused([{"RepositoryModelLoad": b""}, failed], "RepositoryModelLoad", LOADED)
    assert (code, text) == (grpc.StatusCode.NOT_FOUND, "no such file (at b); done at a")


def test_settings_over_grpc_are_compared_by_what_they_say():
    def settings(**values):
        given = {key: {"string_param": value} for key, value in values.items()}
        return {"LogSettings": encode("inference.LogSettingsResponse", settings=given)}

    async def test(_, call):
        return parse("inference.LogSettingsResponse", await call("LogSettings"))

    message = over_grpc([settings(a="1", b="2"), settings(b="2", a="1")], test)
    assert message.settings["a"].string_param == "1"
    code, text = refused([settings(a="1"), settings(a="2")], "LogSettings")
    assert code is grpc.StatusCode.UNAVAILABLE
    assert text.startswith("the places differ: a has ")


def test_the_index_over_grpc_is_that_of_all():
    def index(name):
        rows = [IndexEntry(name, "1", ModelState.READY)]
        return {"RepositoryIndex": b"".join(encode_index_message(rows))}

    async def test(_, call):
        return parse("inference.RepositoryIndexResponse", await call("RepositoryIndex"))

    message = over_grpc([index("m"), index("n")], test)
    assert [row.name for row in message.models] == ["m", "n"]


def test_statistics_over_grpc_are_added():
    row = {"name": "m", "version": "1", "inference_count": 3}
    answer = {"ModelStatistics": encode("inference.ModelStatisticsResponse", model_stats=[row])}

    async def test(_, call):
        return parse("inference.ModelStatisticsResponse", await call("ModelStatistics"))

    [added] = over_grpc([answer, answer], test).model_stats
    assert added.inference_count == 6


def test_what_haproxy_cannot_send_on_is_refused_in_words():
    async def again(_, call):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call("ModelInfer", metadata=[(UNPACKED, "1")])
        return error.value.code(), error.value.details()

    assert over_grpc([], again) == (grpc.StatusCode.INVALID_ARGUMENT, NO_SEQUENCE_ID)

    async def test(found, _):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{found.port}") as channel:
            stream = channel.stream_stream(V2 + "ModelStreamInfer")()
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await stream.read()
            return error.value.details()

    assert over_grpc([], test) == NO_MODEL


@pytest.mark.parametrize("answer", [b"done", (grpc.StatusCode.NOT_FOUND, "no model")])
def test_a_compressed_message_is_unpacked_and_given_back(answer):
    async def test(found, call):
        front = Answering({"ModelInfer": answer})
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((front,))
        server.add_insecure_port(f"unix:{found.front}")
        await server.start()
        try:
            got = await call(
                "ModelInfer",
                b"m" * 1000,
                metadata=[("x", "y")],
                compression=grpc.Compression.Gzip,
            )
        except grpc.aio.AioRpcError as error:
            got = (error.code(), error.details())
        await server.stop(None)
        return got, front.received

    got, [(path, message, metadata)] = over_grpc([], test)
    assert got == answer
    assert (path, message) == (V2 + "ModelInfer", b"m" * 1000)
    assert {"x": "y", UNPACKED: "1"}.items() <= metadata.items()
    assert "grpc-encoding" not in metadata


def test_a_call_of_the_older_service_has_the_worst_answer():
    def answer(code):
        status = {"code": code, "msg": "x"}
        name = "nvidia.inferenceserver.ModelControlResponse"
        return {"ModelControl": encode(name, request_status=status)}

    async def test(found, _):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{found.port}") as channel:
            path = "/nvidia.inferenceserver.GRPCService/ModelControl"
            assert path in CONTROL_METHODS
            data = await channel.unary_unary(path)(b"")
            return parse("nvidia.inferenceserver.ModelControlResponse", data).request_status.code

    assert over_grpc([answer("SUCCESS"), answer("INTERNAL")], test) == 3
    assert over_grpc([answer("SUCCESS"), answer("SUCCESS")], test) == 1
