"""generate and generate_stream over real sockets, by models the test plays."""

import asyncio
import json
import ssl

import numpy as np
import pytest

from inferd.api.routes import HttpRoutes
from inferd.core.request import InferResponse
from inferd.engine.engine import Engine
from inferd.errors import BackendFailed, InvalidRequest, Unavailable
from inferd.http.message import NO_BODY, HttpRequest
from inferd.tensor.dtype import DataType
from inferd.wire.v2.rest.codec import JsonRules

GENERATE = "/v2/models/{}/generate"
STREAM = "/v2/models/{}/generate_stream"
INFER_STREAM = "/v2/models/{}/infer_stream"
EVENTS = "text/event-stream; charset=utf-8"
CLOSE = "Connection: close"
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: there\r\n\r\n"


@pytest.fixture
def asking(post):
    """asking(path, body, lines...) is the bytes of a request to model s."""

    def build(path, body=None, *lines, model="s", **how):
        content = body if isinstance(body, bytes) else json.dumps(body or {"T": 1.5}).encode()
        return post(path.format(model), content, *lines, **how)

    return build


@pytest.fixture
def talking(serving, scripted, add_model):
    """`async with talking() as site`: model s is the scripted one."""

    class Talking:
        def __init__(self, **options):
            self._serving = serving(**options)

        async def __aenter__(self):
            site = await self._serving.__aenter__()
            add_model(site.engine, "s", scripted, decoupled=True)
            return site

        async def __aexit__(self, *error):
            scripted.say.put_nowait(None)
            return await self._serving.__aexit__(*error)

    return Talking


class Stream:
    """What a client reads of one answer that comes in chunks."""

    def __init__(self, client):
        self.client = client

    async def head(self):
        """Read status line and headers."""
        text = await self.client._until(b"\r\n\r\n")
        line, *lines = text[:-4].decode().split("\r\n")
        self.headers = dict(one.lower().split(": ", 1) for one in lines)
        return int(line.split(" ")[1])

    async def chunk(self):
        """Read one chunk, b"" at the end."""
        size = int((await self.client._until(b"\r\n"))[:-2], 16)
        while len(self.client.received) < size + 2:
            await self.client._more()
        data, rest = self.client.received[:size], self.client.received[size:]
        assert rest[:2] == b"\r\n"
        self.client.received = rest[2:]
        return data

    async def event(self):
        """Read one event, None at the end."""
        chunk = await self.chunk()
        if not chunk:
            return None
        assert chunk.startswith(b"data: ") and chunk.endswith(b"\n\n")
        return json.loads(chunk[6:-2])


async def opened(site, request):
    """Send `request` on a connection of its own."""
    client = await site.connect()
    await client.send(request)
    return Stream(client)


def answer(value):
    return {"model_name": "s", "model_version": "1", "T": value}


async def whole(site, request):
    """Return status and body of the answer, be it one object or events, of which one comes."""
    client = await site.connect()
    await client.send(request)
    head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def until(is_so):
    """Let the loop run until `is_so()`."""
    while not is_so():  # noqa: ASYNC110  what is awaited is the server's state, which tells nobody
        await asyncio.sleep(0.001)


# --- generate ---


@pytest.mark.parametrize("path", [GENERATE, "/v2/models/{}/versions/1/generate"])
async def test_a_model_that_answers_once_is_asked_by_name(serving, asking, path):
    async with serving() as site:
        found = await site.ask(asking(path, {"T": [1.5, 2], "id": "7"}, model="id"))
        assert found.status == 200
        version = "1" if "versions" in path else "3"
        assert found.json == {
            "T": [1.5, 2.0],
            "id": "7",
            "model_name": "id",
            "model_version": version,
        }
        assert int(found.headers["content-length"]) == len(found.body)


async def test_a_decoupled_model_may_answer_once(talking, asking, scripted):
    async with talking() as site:
        scripted.say.put_nowait(2.5)
        scripted.say.put_nowait(None)
        found = await site.ask(asking(GENERATE, {"T": 1, "n": 3}))
        assert (found.status, found.json) == (200, answer(2.5))
        assert scripted.requests[0].parameters == {"n": 3}


async def test_what_means_something_to_infer_goes_to_the_model(talking, asking, scripted):
    given = {"priority": "high", "timeout": 2.5, "sequence_id": 7, "sequence_start": "no"}
    async with talking() as site:
        scripted.say.put_nowait(2.5)
        scripted.say.put_nowait(None)
        found = await site.ask(asking(GENERATE, {"T": 1, "parameters": given}))
        assert found.status == 200
        [request] = scripted.requests
        assert request.parameters == given
        assert (request.priority, request.timeout_us, request.sequence) == (0, 0, None)


@pytest.mark.parametrize("path", [INFER_STREAM, "/v2/models/{}/versions/1/infer_stream"])
async def test_infer_stream_takes_inference_requests(talking, asking, scripted, path):
    tensor = {"name": "T", "datatype": "FP32", "shape": [1], "data": [1.5]}
    async with talking() as site:
        stream = await opened(site, asking(path, {"id": "7", "inputs": [tensor]}))
        for value in (2.5, 3.5, None):
            scripted.say.put_nowait(value)
        assert (await stream.head(), stream.headers["content-type"]) == (200, EVENTS)
        events = [await stream.event() for _ in range(2)]
        assert [event["outputs"][0]["data"] for event in events] == [[2.5], [3.5]]
        assert {event["id"] for event in events} == {"7"}
        assert await stream.event() is None


async def test_infer_stream_takes_nothing_else(talking, asking):
    async with talking() as site:
        found = await site.ask(asking(INFER_STREAM, {"T": 1.5}))
        assert (found.status, "inputs" in found.error) == (400, True)
        assert (await site.ask(asking(INFER_STREAM, model="none"))).status == 404


@pytest.mark.parametrize(("said", "count"), [([None], "none"), ([1, 2, 3], "more")])
async def test_another_number_of_answers_fails(talking, asking, scripted, said, count):
    async with talking() as site:
        for one in said:
            scripted.say.put_nowait(one)
        found = await site.ask(asking(GENERATE))
        assert found.status == 500
        assert found.error == (
            f"generate expects model to produce exactly 1 response, use generate stream for "
            f"model that generates various number of responses: model 's' gave {count}"
        )
        await scripted.left.wait()
        assert scripted.taken == min(len(said), 2) - (count == "none")


@pytest.mark.parametrize(
    ("error", "status"),
    [(InvalidRequest("no"), 400), (Unavailable("no"), 503), (BackendFailed("no"), 500)],
)
async def test_what_a_model_raises_has_its_status(talking, asking, scripted, error, status):
    async with talking() as site:
        scripted.say.put_nowait(error)
        found = await site.ask(asking(GENERATE))
        assert (found.status, found.error) == (status, "no")


@pytest.mark.parametrize("path", [GENERATE, STREAM])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "failed to parse the request JSON"),
        (b"{}", "missing required input(s) ['T']"),
        ({"T": "a"}, "input 'T'"),
        ({"T": 1, "x": {}}, "parameter 'x'"),
    ],
)
async def test_what_is_wrong_with_a_request_is_a_plain_error(talking, asking, path, body, words):
    async with talking() as site:
        found = await site.ask(asking(path, body))
        assert found.status == 400
        assert words in found.error


@pytest.mark.parametrize("path", [GENERATE, STREAM])
async def test_an_unknown_model_is_the_greater_mistake(talking, asking, path):
    async with talking() as site:
        found = await site.ask(asking(path, b"{", model="nope"))
        assert (found.status, found.error) == (
            404,
            "Request for unknown model: 'nope' is not found on this server",
        )


async def test_an_inference_request_is_answered_as_one(serving, asking):
    body = {"inputs": [{"name": "T", "datatype": "FP32", "shape": [1], "data": [1.5]}]}
    async with serving() as site:
        found = await site.ask(asking(GENERATE, body, model="id"))
        assert found.json["outputs"][0]["data"] == [1.5]


async def test_long_bodies_and_answers_go_through_a_thread(serving, asking):
    values = np.arange(70_000, dtype=np.float32).tolist()
    async with serving() as site:
        found = await site.ask(asking(GENERATE, {"T": values}, model="id"))
        assert found.json["T"] == values


@pytest.mark.parametrize("path", [GENERATE, STREAM, INFER_STREAM])
async def test_a_plain_body_may_be_longer_than_8_mib(talking, asking, scripted, path):
    values = ",".join(["0.5"] * (5 << 19))
    text = '{"inputs":[{"name":"T","datatype":"FP32","shape":[-1],"data":[%s]}]}'
    body = (text if path == INFER_STREAM else '{"T":[%s]}') % values
    async with talking() as site:
        scripted.say.put_nowait(2.5)
        scripted.say.put_nowait(None)
        assert (await whole(site, asking(path, body.encode(), CLOSE)))[0] == 200
        [tensor] = scripted.requests[0].inputs
        assert tensor.shape == (5 << 19,)
        assert set(tensor.numpy().tolist()) == {0.5}


async def test_a_full_server_reads_no_long_bodies(talking, asking):
    async with talking() as site:
        site.engine.capacity.max_requests = 0
        found = await site.ask(asking(GENERATE, {"T": [0.5] * 30_000}))
        assert (found.status, found.headers["retry-after"]) == (503, "1")


# --- inference requests with bytes behind the JSON, or in shared memory ---


@pytest.mark.parametrize("path", [GENERATE, STREAM, INFER_STREAM])
async def test_binary_data_are_taken_and_the_answer_is_json(talking, asking, scripted, path):
    tensor = {"name": "T", "datatype": "FP32", "shape": [1]}
    tensor["parameters"] = {"binary_data_size": 4}
    wanted = {"name": "T", "parameters": {"binary_data": True}}
    head = json.dumps({"inputs": [tensor], "outputs": [wanted]}).encode()
    line = f"Inference-Header-Content-Length: {len(head)}"
    async with talking() as site:
        scripted.say.put_nowait(2.5)
        scripted.say.put_nowait(None)
        request = asking(path, head + np.float32(1.5).tobytes(), line, CLOSE)
        status, content = await whole(site, request)
        assert status == 200 and b'"data":[2.5]' in content
        assert scripted.requests[0].inputs[0].numpy() == [1.5]


@pytest.mark.parametrize("path", [GENERATE, STREAM, INFER_STREAM])
async def test_a_request_whose_body_got_lost_is_400(serving, asking, path):
    async with serving() as site:
        status, content = await whole(site, asking(path, b"", CLOSE, model="id"))
        assert status == 400 and b"the request has no body" in content
        line = "Inference-Header-Content-Length: 0"
        status, content = await whole(site, asking(path, b"", line, CLOSE, model="id"))
        assert status == 200 and b'"shape":[0]' in content


@pytest.mark.parametrize("path", [GENERATE, STREAM, INFER_STREAM])
async def test_a_raw_body_is_the_one_string_itself(serving, asking, add_model, identity, path):
    async with serving() as site:
        add_model(site.engine, "words", identity, datatype=DataType.BYTES, dims=(1,))
        line = "Inference-Header-Content-Length: 0"
        status, content = await whole(site, asking(path, b"hi", line, CLOSE, model="words"))
        assert status == 200 and b'"data":["hi"]' in content


@pytest.mark.parametrize("path", [GENERATE, STREAM, INFER_STREAM])
async def test_tensors_may_be_in_shared_memory(talking, asking, scripted, shared, post, path):
    given = shared()
    given.write(np.float32([1.5]))

    def at(offset):
        values = {"region": "r", "offset": offset, "byte_size": 4}
        return {f"shared_memory_{key}": value for key, value in values.items()}

    tensor = {"name": "T", "datatype": "FP32", "shape": [1], "parameters": at(0)}
    body = {"inputs": [tensor], "outputs": [{"name": "T", "parameters": at(64)}]}
    async with talking() as site:
        region = json.dumps({"key": given.key, "byte_size": 4096}).encode()
        await site.ask(post("/v2/systemsharedmemory/region/r/register", region))
        scripted.say.put_nowait(2.5)
        scripted.say.put_nowait(None)
        status, content = await whole(site, asking(path, body, CLOSE))
        assert status == 200 and b'"shape":[1]}' in content
        assert scripted.requests[0].inputs[0].numpy() == [1.5]
        assert given.read(np.float32, 1, 64).tolist() == [2.5]


# --- generate_stream ---


async def test_each_answer_is_an_event_as_soon_as_it_comes(talking, asking, scripted):
    async with talking() as site:
        stream = await opened(site, asking(STREAM, {"T": 1, "id": "z"}))
        scripted.say.put_nowait(0.5)
        assert await stream.head() == 200
        assert stream.headers == {
            "content-type": EVENTS,
            "transfer-encoding": "chunked",
            "cache-control": "no-store",
            "x-accel-buffering": "no",
        }
        assert await stream.event() == {**answer(0.5), "id": "z"}
        for value in (1.5, 2.5):
            scripted.say.put_nowait(value)
            assert await stream.event() == {**answer(value), "id": "z"}
        scripted.say.put_nowait(None)
        assert await stream.event() is None
        # The connection lives on.
        assert (await stream.client.ask(LIVE)).status == 200


async def test_a_model_that_answers_once_gives_one_event(serving, asking):
    async with serving() as site:
        stream = await opened(site, asking(STREAM, {"T": [1.5]}, model="id"))
        assert await stream.head() == 200
        assert (await stream.event())["T"] == 1.5
        assert await stream.event() is None


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (STREAM, {"T": 1.5}),
        (STREAM, {"inputs": [{"name": "T", "datatype": "FP32", "shape": [1], "data": [1.5]}]}),
    ],
)
async def test_a_stream_keeps_nothing_of_its_body(scripted, add_model, path, content):
    engine = Engine()
    add_model(engine, "s", scripted, decoupled=True)
    rules = JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=2**20)
    body = bytearray(json.dumps(content).encode())
    target = path.format("s").encode()
    request = HttpRequest(b"POST", target, {}, True, False, memoryview(body))
    scripted.say.put_nowait(2.5)
    found = await HttpRoutes(engine, rules, not_ready_status=400).answer(request)
    request.body = NO_BODY  # as its connection forgets it
    body.clear()  # raises BufferError while there is a view of it
    await found.rest.aclose()
    assert found.status == 200


async def test_no_answer_is_an_empty_stream(talking, asking, scripted):
    async with talking() as site:
        scripted.say.put_nowait(None)
        stream = await opened(site, asking(STREAM))
        assert await stream.head() == 200
        assert await stream.event() is None


@pytest.mark.parametrize(
    ("error", "text"),
    [(BackendFailed("it broke"), "it broke"), (ArithmeticError("a secret"), "does not understand")],
)
async def test_a_late_failure_is_the_last_event(talking, asking, scripted, error, text):
    async with talking() as site:
        for one in (0.5, error, 1.5):
            scripted.say.put_nowait(one)
        stream = await opened(site, asking(STREAM))
        assert await stream.head() == 200
        assert await stream.event() == answer(0.5)
        failed = await stream.event()
        assert list(failed) == ["error"] and text in failed["error"]
        assert await stream.event() is None
        assert scripted.left.is_set()


@pytest.mark.parametrize(("before", "status"), [([0.5], 200), ([], 503)])
async def test_an_error_among_the_answers_is_one_event_of_many(
    talking, asking, scripted, before, status
):
    async with talking() as site:
        error = InferResponse("", "", final=False, error=Unavailable("busy"))
        for one in (*before, error, 1.5, None):
            scripted.say.put_nowait(one)
        stream = await opened(site, asking(STREAM))
        assert await stream.head() == status
        for one in before:
            assert await stream.event() == answer(one)
        assert await stream.event() == {"error": "busy"}
        assert await stream.event() == answer(1.5)
        assert await stream.event() is None
        [row] = site.engine.whole.statistics("s")
        assert (row.inference_stats.success.count, row.inference_count) == (0, 0)


async def test_generate_fails_when_an_error_is_among_the_answers(talking, asking, scripted):
    async with talking() as site:
        scripted.say.put_nowait(InferResponse("", "", final=False, error=Unavailable("busy")))
        client = await site.connect()
        refused = await client.ask(asking(GENERATE))
        assert (refused.status, refused.error) == (503, "busy")


async def test_a_first_failure_has_its_status_and_is_an_event_still(talking, asking, scripted):
    async with talking() as site:
        scripted.say.put_nowait(Unavailable("busy"))
        stream = await opened(site, asking(STREAM))
        assert await stream.head() == 503
        assert stream.headers["content-type"] == EVENTS
        assert await stream.event() == {"error": "busy"}
        assert await stream.event() is None


async def test_what_json_cannot_say_ends_the_stream_in_words(talking, asking, scripted):
    async with talking(non_finite="error") as site:
        scripted.say.put_nowait(0.5)
        scripted.say.put_nowait(float("nan"))
        stream = await opened(site, asking(STREAM))
        assert await stream.head() == 200
        assert await stream.event() == answer(0.5)
        assert "output 'T' holds nan" in (await stream.event())["error"]
        assert await stream.event() is None
        assert scripted.left.is_set()


async def test_http_10_gets_events_until_the_connection_ends(talking, asking, scripted):
    async with talking() as site:
        for one in (0.5, 1.5, None):
            scripted.say.put_nowait(one)
        stream = await opened(site, asking(STREAM, None, "Connection: keep-alive", version="1.0"))
        assert await stream.head() == 200
        assert "transfer-encoding" not in stream.headers
        assert stream.headers["connection"] == "close"
        rest = await stream.client.rest()
        assert [json.loads(event[6:])["T"] for event in rest.decode().split("\n\n")[:-1]] == [
            0.5,
            1.5,
        ]


async def test_connection_close_is_honoured_after_the_last_event(talking, asking, scripted):
    async with talking() as site:
        for one in (0.5, None):
            scripted.say.put_nowait(one)
        stream = await opened(site, asking(STREAM, None, "Connection: close"))
        assert await stream.head() == 200
        assert stream.headers["connection"] == "close"
        assert await stream.event() == answer(0.5)
        assert await stream.event() is None
        assert await stream.client.rest() == b""


async def test_what_is_asked_meanwhile_is_answered_afterwards(talking, asking, scripted):
    async with talking() as site:
        stream = await opened(site, asking(STREAM) + LIVE)
        scripted.say.put_nowait(0.5)
        assert await stream.head() == 200
        assert await stream.event() == answer(0.5)
        scripted.say.put_nowait(None)
        assert await stream.event() is None
        assert (await stream.client.answer()).json == {"live": True}


async def test_a_draining_server_lets_a_stream_end_and_then_closes(talking, asking, scripted):
    async with talking() as site:
        stream = await opened(site, asking(STREAM))
        scripted.say.put_nowait(0.5)
        assert await stream.head() == 200
        assert await stream.event() == answer(0.5)
        await site.server.stop_accepting()
        scripted.say.put_nowait(1.5)
        assert await stream.event() == answer(1.5)
        scripted.say.put_nowait(None)
        assert await stream.event() is None
        site.pass_time(2)  # the window of a connection that has nothing to answer
        assert await stream.client.rest() == b""


# --- clients that are slow, or leave ---


def flood(scripted):
    """Have the model say more than any socket takes, 80 KB at a time."""
    values = np.ones(20_000, np.float32)
    for _ in range(300):
        scripted.say.put_nowait(values)


@pytest.mark.slow
async def test_a_slow_client_holds_its_model_up_and_memory_is_bounded(talking, asking, scripted):
    async with talking() as site:
        client = await site.connect(SO_RCVBUF=4096)
        await client.send(asking(STREAM))
        flood(scripted)
        await scripted.started.wait()
        [connection] = site.server.endpoint.connections
        await until(lambda: connection._writer.is_stalled)
        taken = scripted.taken
        for _ in range(100):
            await asyncio.sleep(0)
        assert scripted.taken - taken <= 1
        assert connection._transport.get_write_buffer_size() < 500_000
        assert (await site.ask(LIVE)).status == 200
        # It reads again, and the model goes on.
        stream = Stream(client)
        assert await stream.head() == 200
        for _ in range(taken + 5):
            assert len((await stream.event())["T"]) == 20_000
        assert scripted.taken > taken
        client.reset()
        await scripted.left.wait()


@pytest.mark.slow
async def test_a_client_that_reads_nothing_for_long_is_cut(talking, asking, scripted):
    async with talking(write_timeout_s=10.0) as site:
        client = await site.connect(SO_RCVBUF=4096)
        await client.send(asking(STREAM))
        flood(scripted)
        await scripted.started.wait()
        [connection] = site.server.endpoint.connections
        await until(lambda: connection._writer.is_stalled)
        site.pass_time(0)
        site.pass_time(9)
        assert not scripted.left.is_set()
        site.pass_time(2)
        await scripted.left.wait()
        assert await site.server.endpoint.wait_until_empty(30)


async def test_a_client_that_reads_is_not_cut_however_slow_the_model(talking, asking, scripted):
    async with talking(write_timeout_s=10.0, idle_timeout_s=10.0) as site:
        stream = await opened(site, asking(STREAM))
        for value in (0.5, 1.5):
            scripted.say.put_nowait(value)
            if value == 0.5:
                assert await stream.head() == 200
            assert await stream.event() == answer(value)
            for _ in range(100):
                site.pass_time(1)


@pytest.mark.parametrize("how", ["reset", pytest.param("close", marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_begun", [False, True])
async def test_a_client_that_leaves_ends_its_models_stream(
    talking, asking, scripted, how, is_begun
):
    async with talking() as site:
        stream = await opened(site, asking(STREAM))
        await scripted.started.wait()
        if is_begun:
            scripted.say.put_nowait(0.5)
            assert await stream.head() == 200
        getattr(stream.client, how)()
        await asyncio.wait_for(scripted.left.wait(), 10)  # though the model says nothing
        assert await site.server.endpoint.wait_until_empty(30)


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("said", [[], [0.5], [0.5, None], [0.5] * 500, [Unavailable("no")]])
async def test_a_client_that_leaves_at_once_leaves_nothing_behind(
    talking, asking, scripted, said, version, caplog
):
    async with talking() as site:
        for one in said:
            scripted.say.put_nowait(one)
        for wait in range(10):
            client = await site.connect()
            await client.send(asking(STREAM, None, version=version))
            for _ in range(wait):
                await asyncio.sleep(0)
            client.reset()
            assert await site.server.endpoint.wait_until_empty(30)
        await until(lambda: not scripted.requests or scripted.left.is_set())
    assert not caplog.records


async def test_a_half_closed_client_reads_on_and_sees_no_interim_answer(talking, asking, scripted):
    async with talking() as site:
        stream = await opened(site, asking(STREAM))
        scripted.say.put_nowait(0.5)
        assert await stream.head() == 200
        assert await stream.event() == answer(0.5)
        stream.client.end()
        assert await stream.chunk() == b":\n\n"  # is it still there?
        scripted.say.put_nowait(1.5)
        scripted.say.put_nowait(None)
        chunks = [chunk async for chunk in rest_of(stream)]
        assert [chunk for chunk in chunks if chunk != b":\n\n"] == [
            b'data: {"T":1.5,"model_name":"s","model_version":"1"}\n\n'
        ]
        assert await stream.client.rest() == b""


async def rest_of(stream):
    while chunk := await stream.chunk():
        yield chunk


async def test_a_stream_over_tls(talking, asking, scripted, tls_context):
    async with talking(ssl_context=tls_context) as site:
        for one in (0.5, 1.5, None):
            scripted.say.put_nowait(one)
        trusting = ssl._create_unverified_context()
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=trusting)
        writer.write(asking(STREAM, None, "Connection: close"))
        body = (await reader.read()).partition(b"\r\n\r\n")[2]
        writer.close()
        assert body.count(b"data: ") == 2 and body.endswith(b"\r\n0\r\n\r\n")
