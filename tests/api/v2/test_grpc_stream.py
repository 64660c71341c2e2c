"""ModelStreamInfer over real sockets on both transports, with models the test plays."""

import asyncio
import queue
import random
from collections import defaultdict
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc
import grpc.aio
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from inferd.aio.inline import INLINE_TYPED_BYTES
from inferd.api.inference import GrpcInference
from inferd.api.v2.grpc_stream import MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES, MAX_READY, stream_handler
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.config.server import ServerConfig
from inferd.core.request import InferResponse
from inferd.engine.engine import Engine
from inferd.engine.serving.served import Served
from inferd.errors import BackendFailed, InvalidRequest, Unavailable
from inferd.server.options import grpc_options
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.transport.grpc_server import GrpcServer
from inferd.transport.http2_server import Http2Server
from inferd.wire.v2.grpc.codec import V2Grpc

FP32 = DataType.FP32
LARGE = bytes(1_000_000)


def answer_of(request, values=None):
    [tensor] = request.inputs
    data = tensor.data if values is None else np.asarray(values, "f4")
    count = len(data) if values is not None else tensor.shape[0]
    return InferResponse("", "", outputs=[Tensor("OUT_T", FP32, (count,), data)])


class Identity:
    """Gives back its input."""

    async def run(self, request):
        return answer_of(request)


class Failing:
    """Raises `error`."""

    def __init__(self, error):
        self.error = error

    async def run(self, request):
        raise self.error

    async def stream(self, request):
        raise self.error
        yield


class Repeating:
    """Decoupled: as many answers as the tensor has elements; -1 fails, -2 is an error as answer."""

    def __init__(self, *, tells_the_end=True):
        self.tells_the_end = tells_the_end

    async def stream(self, request):
        values = request.inputs[0].numpy().tolist()
        for index, value in enumerate(values):
            error = BackendFailed("late failure")
            if value == -1:
                raise error
            response = answer_of(request, [value])
            if value < 0:
                response = InferResponse("", "", error=error)
            response.final = self.tells_the_end and index == len(values) - 1
            yield response


class Played:
    """The test says what comes, by the id of the request; it answers once, or as a stream.

    `begun` and `ended` are the ids of requests in the order they came and went; `taken` counts the
    answers of streams.
    """

    def __init__(self):
        self.begun = []
        self.ended = []
        self.cancelled = []
        self.taken = 0
        self.say = defaultdict(asyncio.Queue)

    async def run(self, request):
        self.begun.append(request.id)
        try:
            said = await self.say[request.id].get()
        except asyncio.CancelledError:
            self.cancelled.append(request.id)
            raise
        finally:
            self.ended.append(request.id)
        if isinstance(said, BaseException):
            raise said
        return answer_of(request, [said])

    async def stream(self, request):
        self.begun.append(request.id)
        try:
            while (said := await self.say[request.id].get()) is not None:
                self.taken += 1
                response = answer_of(request, np.atleast_1d(said))
                response.final = False
                yield response
        finally:
            self.ended.append(request.id)


def served(name, scheduler, **settings):
    config = ModelConfig(
        name=name,
        input=(ModelInput("T", FP32, (-1,)),),
        output=(ModelOutput("OUT_T", FP32, (-1,)),),
        **settings,
    )
    return Served(config, 1, "onnx_onnxv1", scheduler)


class Bench:
    """A server with models id, gen (Repeating), once and often (Played), and an open channel."""

    def __init__(self, server, stub, channel):
        self.server, self.stub, self.channel = server, stub, channel

    def open(self, **options):
        """Open a stream; it has `write`, `read`, `done_writing`, `cancel`."""
        return self.stub.ModelStreamInfer(**options)

    async def ask(self, *requests, **options):
        """Send requests at once, and return the answers when the stream has ended."""
        return [answer async for answer in self.stub.ModelStreamInfer(iter(requests), **options)]


def complaints(caplog):
    """Return what was logged, but for grpcio's own word when a cancel cuts off its write."""
    return [
        record
        for record in caplog.records
        if not record.name.startswith("grpc.") and "_cython.cygrpc" not in record.getMessage()
    ]


@pytest.fixture(params=[Http2Server, GrpcServer], ids=["own", "grpcio"])
def streaming(request):
    """`async with streaming(NAME=scheduler, option=...) as bench` runs a server."""

    @asynccontextmanager
    async def serve(*models, **options):
        engine = Engine()
        once, often = Played(), Played()
        engine.catalog.add(served("id", Identity()))
        engine.catalog.add(served("gen", Repeating(), decoupled=True))
        engine.catalog.add(served("once", once))
        engine.catalog.add(served("often", often, decoupled=True))
        for model in models:
            engine.catalog.add(model)
        engine.readiness.finish_loading()
        server = request.param(engine, grpc_options(ServerConfig(**options)))
        port = await server.start("127.0.0.1", 0)
        limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=limits) as channel:
                bench = Bench(server, service_pb2_grpc.GRPCInferenceServiceStub(channel), channel)
                bench.once, bench.often, bench.address = once, often, f"127.0.0.1:{port}"
                yield bench
        finally:
            await server.stop(0)
            if request.param is Http2Server:
                assert server.endpoint.capacity.buffered_bytes == 0

    return serve


def asked(model="id", data=b"\0\0\x80?", **fields):
    tensor = {"name": "T", "datatype": "FP32", "shape": [len(data) // 4]}
    return pb.ModelInferRequest(
        model_name=model, inputs=[tensor], raw_input_contents=[data], **fields
    )


def floats(*values):
    return np.array(values, "f4").tobytes()


def final_of(answer):
    return answer.infer_response.parameters["triton_final_response"].bool_param


def ids(answers):
    return [answer.infer_response.id for answer in answers]


def value_of(answer):
    assert not answer.error_message
    return np.frombuffer(answer.infer_response.raw_output_contents[0], "f4")[0]


async def until(is_so):
    """Let the loop run until `is_so()`; a thread of grpcio's may have to do something for it."""
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110  what is awaited tells nobody
            await asyncio.sleep(0.001)


async def until_idle():
    """Let both sides act on what they have been sent, the client's thread among them."""
    loop = asyncio.get_running_loop()
    enough = loop.time() + 0.03
    while loop.time() < enough:  # noqa: ASYNC110  nobody tells that nothing more is to come
        await asyncio.sleep(0.001)


# --- what is answered ---


async def test_requests_of_a_stream_are_answered_in_their_order(streaming):
    async with streaming() as bench:
        answers = await bench.ask(*(asked(data=floats(n), id=str(n)) for n in range(200)))
        assert ids(answers) == [str(n) for n in range(200)]
        assert answers[3].infer_response.raw_output_contents[0] == floats(3)
        assert all(final_of(answer) and not answer.error_message for answer in answers)


@pytest.mark.slow
async def test_thousands_of_small_answers_are_no_flood(streaming):
    async with streaming() as bench:
        answers = await bench.ask(*(asked(id=str(n)) for n in range(5000)))
        assert ids(answers) == [str(n) for n in range(5000)]


async def test_a_stream_without_requests_ends_well(streaming):
    async with streaming() as bench:
        assert await bench.ask() == []


async def test_a_decoupled_model_answers_any_number_of_times(streaming):
    async with streaming() as bench:
        answers = await bench.ask(asked("gen", b"", id="e"), asked("gen", floats(4, 5, 6), id="t"))
        assert [value_of(answer) for answer in answers] == [4, 5, 6]
        assert [final_of(answer) for answer in answers] == [False, False, True]


@pytest.mark.parametrize("values", [(1,), ()])
async def test_an_empty_last_answer_comes_when_it_is_asked_for(streaming, values):
    gen = served("untold", Repeating(tells_the_end=False), decoupled=True)
    request = asked("untold", floats(*values), id="7")
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    async with streaming(gen) as bench:
        *others, last = await bench.ask(request)
        assert [final_of(answer) for answer in others] == [False] * len(values)
        assert final_of(last)
        answer = last.infer_response
        assert (answer.model_name, answer.model_version, answer.id) == ("untold", "", "7")
        assert not answer.outputs


async def test_no_empty_answer_follows_one_that_was_the_last(streaming):
    request = asked("gen", floats(1))
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    async with streaming() as bench:
        assert [value_of(answer) for answer in await bench.ask(request)] == [1]


async def test_tritons_client_streams(streaming):
    def ask(address):
        answers = queue.SimpleQueue()
        with triton.InferenceServerClient(address) as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            tensor = triton.InferInput("T", [2], "FP32")
            tensor.set_data_from_numpy(np.array([1, 2], "f4"))
            client.async_stream_infer("gen", [tensor])
            got = [answers.get(timeout=20) for _ in range(2)]
            client.stop_stream()
        return [(result.as_numpy("OUT_T").tolist(), error) for result, error in got]

    async with streaming() as bench:
        found = await asyncio.to_thread(ask, bench.address)
        assert found == [([1.0], None), ([2.0], None)]


async def test_classes_come_in_a_stream_too(streaming):
    requests = [asked("id", floats(1, 3, 2)), asked("gen", floats(7))]
    for request in requests:
        request.outputs.add(name="OUT_T").parameters["classification"].int64_param = 1
    async with streaming() as bench:
        answers = await bench.ask(*requests)
        raw = [answer.infer_response.raw_output_contents[0] for answer in answers]
        assert sorted(raw) == [b"\x0a\0\0\x003.000000:1", b"\x0a\0\0\x007.000000:0"]


# --- how requests overlap ---


async def test_requests_overlap_and_their_answers_keep_their_order(streaming):
    async with streaming() as bench:
        call = bench.open()
        for name in "abc":
            await call.write(asked("once", id=name))
        once = bench.once
        await until(lambda: once.begun == ["a", "b", "c"])
        for name in "cb":
            once.say[name].put_nowait(2)
            await until(lambda name=name: name in once.ended)
        first = asyncio.ensure_future(call.read())
        await until_idle()
        assert not first.done()
        once.say["a"].put_nowait(1)
        answers = [await first, await call.read(), await call.read()]
        assert ids(answers) == ["a", "b", "c"]
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF


async def test_requests_reach_their_model_in_order_however_long_they_are(streaming):
    long = pb.ModelInferRequest(model_name="once", id="long")
    count = INLINE_TYPED_BYTES  # read in a thread
    tensor = long.inputs.add(name="T", datatype="FP32")
    tensor.shape.extend([count])
    tensor.contents.fp32_contents.extend([0.0] * count)
    async with streaming() as bench:
        call = bench.open()
        await call.write(long)
        await call.write(asked("once", id="short"))
        await until(lambda: len(bench.once.begun) == 2)
        assert bench.once.begun == ["long", "short"]
        call.cancel()


async def test_answers_of_decoupled_models_come_as_they_are_made(streaming):
    async with streaming() as bench:
        call = bench.open()
        await call.write(asked("once", id="held"))
        for name in "ab":
            await call.write(asked("often", id=name))
        await until(lambda: len(bench.often.begun) == 2)
        for name in "abbaab":
            bench.often.say[name].put_nowait(1)
            assert (await call.read()).infer_response.id == name
        bench.once.say["held"].put_nowait(1)
        assert (await call.read()).infer_response.id == "held"
        for name in "ab":
            bench.often.say[name].put_nowait(None)
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF


async def test_only_so_many_requests_are_under_way(streaming):
    async with streaming() as bench:
        call = bench.open()
        writing = asyncio.ensure_future(
            write(call, *(asked("once", id=str(n)) for n in range(MAX_IN_FLIGHT + 9)))
        )
        once = bench.once
        await until(lambda: len(once.begun) == MAX_IN_FLIGHT)
        await until_idle()
        assert len(once.begun) == MAX_IN_FLIGHT
        once.say["1"].put_nowait(1)  # not the first: it is still under way, for its answer waits
        await until_idle()
        assert len(once.begun) == MAX_IN_FLIGHT
        once.say["0"].put_nowait(1)
        assert ids([await call.read(), await call.read()]) == ["0", "1"]
        await until(lambda: len(once.begun) == MAX_IN_FLIGHT + 2)
        call.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def write(call, *requests):
    for request in requests:
        await call.write(request)


async def test_only_so_many_bytes_are_under_way(streaming):
    large = bytes(MAX_IN_FLIGHT_BYTES // 2 + 4)
    async with streaming() as bench:
        call = bench.open()
        requests = [asked("once", large, id=str(n)) for n in range(4)]
        writing = asyncio.ensure_future(write(call, *requests))
        once = bench.once
        await until(lambda: len(once.begun) == 2)
        await until_idle()
        assert once.begun == ["0", "1"]
        if isinstance(bench.server, Http2Server):
            assert bench.server.endpoint.capacity.buffered_bytes > 2 * len(large)
        once.say["0"].put_nowait(1)
        await until(lambda: len(once.begun) == 3)
        call.cancel()
        await asyncio.gather(writing, return_exceptions=True)


@pytest.mark.slow
async def test_a_small_request_that_ends_lets_no_large_one_in(streaming):
    small, large = asked("often", id="small"), bytes(MAX_IN_FLIGHT_BYTES + 4)
    async with streaming() as bench:
        call = bench.open()
        requests = [small, asked("once", large, id="a"), asked("once", large, id="b")]
        writing = asyncio.ensure_future(write(call, *requests))
        await until(lambda: bench.once.begun == ["a"])
        bench.often.say["small"].put_nowait(None)
        await until(lambda: bench.often.ended)
        await until_idle()
        assert bench.once.begun == ["a"]
        bench.once.say["a"].put_nowait(1)
        await until(lambda: bench.once.begun == ["a", "b"])
        call.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def test_all_answers_come_after_the_client_has_said_all(streaming):
    async with streaming() as bench:
        call = bench.open()
        await write(call, asked("once", id="a"), asked("often", id="b"), asked("once", id="c"))
        await call.done_writing()
        await until(lambda: len(bench.once.begun) == 2 and bench.often.begun)
        bench.often.say["b"].put_nowait(1)
        bench.once.say["c"].put_nowait(1)
        bench.once.say["a"].put_nowait(1)
        bench.often.say["b"].put_nowait(None)
        assert sorted(ids([answer async for answer in call])) == ["a", "b", "c"]
        assert await call.code() is grpc.StatusCode.OK


class Memory:
    """A Call of no transport: what is held, no metadata, and no log."""

    metadata = ()
    notes = None

    def __init__(self):
        self.held = self.most = 0

    def hold(self, size_bytes):
        self.held += size_bytes
        self.most = max(self.most, self.held)

    def release(self, size_bytes):
        self.held -= size_bytes


def engine_of(**models):
    engine = Engine()
    for name, scheduler in models.items():
        engine.catalog.add(served(name, scheduler, decoupled=name == "often"))
    return engine


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_when_every_request_is_answered_and_in_order(seed):
    chance = random.Random(seed)
    once, often = Played(), Played()
    engine = engine_of(once=once, often=often, id=Identity())
    models = [chance.choice(["once", "often", "id", "nope"]) for _ in range(300)]
    counts = [chance.randrange(4) if name == "often" else 1 for name in models]
    jobs = list(range(300))
    chance.shuffle(jobs)

    async def messages():
        for number, name in enumerate(models):
            if chance.random() < 0.2:
                await asyncio.sleep(0)
            size = chance.choice([4, 4, 4, 2_000_000])
            yield asked(name, bytes(size), id=str(number)).SerializeToString()

    async def play():
        for number in jobs:  # what is said before it is asked is kept
            said = once if models[number] == "once" else often
            for _ in range(counts[number]):
                said.say[str(number)].put_nowait(1)
            said.say[str(number)].put_nowait(None)
            if chance.random() < 0.5:
                await asyncio.sleep(0)

    memory = Memory()
    handler = stream_handler(GrpcInference(engine, V2Grpc(engine.regions.span), None))
    playing = asyncio.ensure_future(play())
    got = []
    async for buffers in handler(messages(), memory):
        got.append(pb.ModelStreamInferResponse.FromString(b"".join(buffers)))
        if chance.random() < 0.2:
            await asyncio.sleep(0)
    await playing
    found = [int(answer.infer_response.id) for answer in got]
    assert {number: found.count(number) for number in range(300)} == dict(enumerate(counts))
    in_order = [number for number in found if models[number] != "often"]
    assert in_order == sorted(in_order)
    assert once.begun == [str(number) for number in range(300) if models[number] == "once"]
    assert often.begun == [str(number) for number in range(300) if models[number] == "often"]
    assert memory.held == 0
    assert memory.most <= MAX_IN_FLIGHT_BYTES + 2_100_000


# --- errors ---


@pytest.mark.parametrize("grpc_error", [False, True])
async def test_a_model_goes_on_after_an_error_among_its_answers(streaming, grpc_error):
    request = asked("gen", floats(1, -2, 3, -2), id="e")
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    async with streaming() as bench:
        if grpc_error:
            with pytest.raises(grpc.RpcError, match="late failure"):
                await bench.ask(request, metadata=[("triton_grpc_error", "true")])
            return
        first, error, second, last = await bench.ask(request)
        assert (value_of(first), value_of(second)) == (1, 3)
        assert [final_of(one) for one in (first, error, second, last)] == [0, 0, 0, 1]
        assert error.error_message == last.error_message == "late failure"
        assert error.infer_response.model_name == "gen"


async def test_errors_are_told_inside_the_stream_which_goes_on(streaming):
    reserved = asked(id="r")
    reserved.parameters["triton_other"].int64_param = 1
    requests = [
        asked("nope", id="u"),
        asked("gen", floats(1, -1), id="l", model_version="1"),
        reserved,
        asked("id", id="o"),
        pb.ModelInferRequest(model_name="id", id="s"),
    ]
    async with streaming() as bench:
        answers = defaultdict(list)
        for answer in await bench.ask(*requests):
            answers[answer.infer_response.id].append(answer)
    [unknown], [first, late], [bad], [fine], [short] = (answers[name] for name in "ulros")
    assert "nope" in unknown.error_message and not unknown.infer_response.model_name
    assert value_of(first) == 1
    assert late.error_message == "late failure"
    assert (late.infer_response.model_name, late.infer_response.model_version) == ("gen", "1")
    assert final_of(late) and "triton_final_response" not in unknown.infer_response.parameters
    assert "triton_other" in bad.error_message
    assert value_of(fine) == 1
    assert (
        "missing required input(s) ['T']" in short.error_message
        and not short.infer_response.model_name
    )


async def test_an_error_waits_for_its_turn(streaming):
    async with streaming() as bench:
        call = bench.open()
        await write(call, asked("once", id="a"), asked("nope", id="b"), asked("once", id="c"))
        await until(lambda: bench.once.begun == ["a", "c"])
        bench.once.say["c"].put_nowait(BackendFailed("broken"))
        bench.once.say["a"].put_nowait(1)
        answers = [await call.read() for _ in range(3)]
        assert ids(answers) == ["a", "b", "c"]
        assert [bool(answer.error_message) for answer in answers] == [False, True, True]
        call.cancel()


async def test_a_message_that_is_none_is_told_of(streaming):
    async with streaming() as bench:
        method = bench.channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        garbled = b"\x1a\x017\xff\xff"
        answers = [one async for one in method(iter([garbled, asked(id="o").SerializeToString()]))]
        assert answers[0].error_message and not answers[1].error_message


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (asked("nope"), grpc.StatusCode.NOT_FOUND),
        (asked("gen", floats(-1)), grpc.StatusCode.INTERNAL),
        (asked("busy"), grpc.StatusCode.UNAVAILABLE),
    ],
)
async def test_a_client_may_ask_for_the_first_error_to_end_the_stream(streaming, request_, code):
    busy = served("busy", Failing(Unavailable("busy")))
    async with streaming(busy) as bench:
        call = bench.open(metadata=(("triton_grpc_error", "true"),))
        await write(call, asked("once", id="a"), asked("once", id="b"))
        await until(lambda: bench.once.begun == ["a", "b"])
        if request_.model_name != "gen":  # which does not wait for its turn
            bench.once.say["a"].put_nowait(1)
            bench.once.say["b"].put_nowait(2)
        await call.write(request_)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
        assert caught.value.code() is code
        await until(lambda: len(bench.once.ended) == 2)


async def test_an_error_that_ends_the_stream_ends_what_is_under_way(streaming):
    async with streaming() as bench:
        call = bench.open(metadata=(("triton_grpc_error", "true"),))
        await write(call, asked("once", id="a"), asked("often", id="b"), asked("once", id="c"))
        await until(lambda: len(bench.once.begun) == 2 and bench.often.begun)
        bench.once.say["a"].put_nowait(InvalidRequest("no"))
        with pytest.raises(grpc.aio.AioRpcError, match="no"):
            await call.read()
        await until(lambda: bench.once.cancelled == ["c"] and bench.often.ended == ["b"])


async def test_what_fails_a_request_unexpectedly_stays_here(streaming, caplog):
    async with streaming(served("bad", Failing(ZeroDivisionError("secret")))) as bench:
        [answer] = await bench.ask(asked("bad", id="1"))
        assert "secret" not in answer.error_message and "ZeroDivisionError" in caplog.text


# --- clients that are slow, or leave ---


@pytest.mark.slow
async def test_a_client_that_does_not_read_holds_its_models_up_alone(streaming):
    async with streaming() as bench:
        call = bench.open()
        await write(call, asked("often", id="a"), asked("often", id="b"))
        values = np.zeros(250_000, "f4")
        for name in "ab":
            for _ in range(100):
                bench.often.say[name].put_nowait(values)
        await until(lambda: bench.often.taken > MAX_READY)
        before = -1
        while before != bench.often.taken:
            before = bench.often.taken
            await until_idle()
        assert before < 100
        assert value_of((await bench.ask(asked()))[0]) == 1  # others go on
        for _ in range(150):
            await call.read()
        assert bench.often.taken > before
        call.cancel()
        await until(lambda: len(bench.often.ended) == 2)


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_not_read_from_either(streaming):
    async with streaming() as bench:
        call = bench.open()
        sent = 0

        async def flood():
            nonlocal sent
            for _ in range(200):
                await call.write(asked("id", LARGE))
                sent += 1

        writing = asyncio.ensure_future(flood())
        before = -1
        while before != sent:
            before = sent
            await until_idle()
        assert sent < 200
        got = 0
        while got < 200:
            assert len((await call.read()).infer_response.raw_output_contents[0]) == len(LARGE)
            got += 1
        await writing
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF


@pytest.mark.parametrize(
    "how", ["cancel", "connection", pytest.param("deadline", marks=pytest.mark.slow)]
)
async def test_a_client_that_leaves_ends_all_its_requests(streaming, how, caplog):
    async with streaming() as bench:
        async with grpc.aio.insecure_channel(bench.address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            call = stub.ModelStreamInfer(timeout=0.3 if how == "deadline" else None)
            await write(call, asked("once", id="a"), asked("often", id="b"), asked("once", id="c"))
            await until(lambda: len(bench.once.begun) == 2 and bench.often.begun)
            if how == "cancel":
                call.cancel()
            elif how == "connection":
                await channel.close()
            await until(
                lambda: sorted(bench.once.cancelled) == ["a", "c"] and bench.often.ended == ["b"]
            )
        assert value_of((await bench.ask(asked()))[0]) == 1
    assert not complaints(caplog)


async def test_a_client_that_leaves_while_it_does_not_read_ends_all_its_requests(streaming, caplog):
    async with streaming() as bench:
        call = bench.open()
        await write(call, asked("often", id="a"))
        values = np.zeros(250_000, "f4")
        for _ in range(100):
            bench.often.say["a"].put_nowait(values)
        await until(lambda: bench.often.taken > MAX_READY)
        call.cancel()
        await until(lambda: bench.often.ended == ["a"])
    assert not complaints(caplog)


async def test_a_request_hears_of_a_client_that_leaves_in_the_same_breath():
    class Left(Played):
        async def run(self, request):
            reading.cancel()
            return await super().run(request)

    model = Left()
    engine = Engine()
    engine.catalog.add(served("once", model))
    engine.readiness.finish_loading()

    async def messages():
        yield asked("once", id="a").SerializeToString()
        await asyncio.Event().wait()

    call = SimpleNamespace(metadata=(), notes=None, hold=lambda _: None, release=lambda _: None)
    handler = stream_handler(GrpcInference(engine, V2Grpc(engine.regions.span), None))
    answers = handler(messages(), call)
    reading = asyncio.ensure_future(anext(answers))
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert model.cancelled == ["a"]


async def test_what_a_model_cancels_by_itself_is_an_error_and_the_stream_goes_on(streaming):
    gives_up = asyncio.CancelledError()
    cancels = served("cancels", Failing(gives_up))
    async with streaming(cancels, served("stops", Failing(gives_up), decoupled=True)) as bench:
        requests = [
            asked("cancels", id="now"),
            asked("once", id="later"),
            asked("stops", id="often"),
        ]
        bench.once.say["later"].put_nowait(gives_up)
        answers = await bench.ask(*requests, asked(id="last"))
        errors = {one.infer_response.id: one.error_message for one in answers}
        assert errors.pop("last") == ""
        assert sorted(errors) == ["later", "now", "often"]
        assert all(errors.values())


async def test_a_server_that_stops_ends_streams_that_wait(streaming):
    async with streaming() as bench:
        call = bench.open()
        await write(call, asked("once", id="a"))
        await until(lambda: bench.once.begun)
        await bench.server.stop(0)
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()
        await until(lambda: bench.once.cancelled == ["a"])


# --- when the server stops ---

STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"


async def test_when_the_server_stops_a_stream_answers_what_it_has_and_takes_no_more(streaming):
    async with streaming() as bench:
        call = bench.open()
        await call.write(asked("once", id="before"))
        await until(lambda: bench.once.begun)
        stopping = asyncio.create_task(bench.server.stop(30))
        await until_idle()
        await call.write(asked(id="after"))
        await call.write(asked("none", id="wrong"))
        sequence = {"sequence_id": pb.InferParameter(int64_param=7)}
        await call.write(asked(id="goes on", parameters=sequence))
        bench.once.say["before"].put_nowait(1)
        answers = [await call.read() for _ in range(4)]
        assert ids(answers) == ["before", "after", "wrong", "goes on"]
        assert [one.error_message for one in answers] == ["", STOPPING, STOPPING, ""]
        assert (await call.code(), await call.details()) == (grpc.StatusCode.UNAVAILABLE, STOPPING)
        await stopping


async def test_a_stream_that_ends_at_errors_ends_unavailable_when_the_server_stops(streaming):
    async with streaming() as bench:
        call = bench.open(metadata=[("triton_grpc_error", "true")])
        await call.write(asked(id="before"))
        assert ids([await call.read()]) == ["before"]
        stopping = asyncio.create_task(bench.server.stop(30))
        await until_idle()
        await call.write(asked(id="after"))
        assert (await call.code(), await call.details()) == (grpc.StatusCode.UNAVAILABLE, STOPPING)
        await stopping


async def test_an_idle_stream_does_not_hold_up_the_end_of_the_server(streaming):
    async with streaming() as bench:
        call = bench.open()
        await call.write(asked(id="before"))
        await call.read()
        async with asyncio.timeout(15):
            await bench.server.stop(60)
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
