"""Work that nobody waits for, and models that break, as clients see them: over sockets."""

import asyncio
import contextlib
import json
import socket
import struct

import grpc
import grpc.aio
import numpy as np
import pytest
from patience import PATIENCE_S, until
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from inferd.aio.event_loop import new_event_loop
from inferd.config.server import ServerConfig
from inferd.server.server import Server

NEVER_US = 2**63 - 1  # gRPC's largest number of microseconds
TENSORS = """
input { name: "X" data_type: TYPE_FP32 dims: 1 }
output { name: "X" data_type: TYPE_FP32 dims: 1 }
"""
FAULTY = f'backend: "faulty" {TENSORS}'
HANGS = f'{FAULTY} parameters {{ key: "fault" value {{ string_value: "hang" }} }}'
POLICY = """
  default_timeout_microseconds: 9000000000 allow_timeout_override: true max_queue_size: 2
"""
DECOUPLED = f"{HANGS} model_transaction_policy {{ decoupled: true }}"
MODELS = {
    "ok": f'backend: "identity" {TENSORS}',
    "faulty": FAULTY,
    "direct": HANGS,
    "batched": f"{HANGS} max_batch_size: 1 dynamic_batching {{ }}",
    "policy": f"{HANGS} max_batch_size: 1 dynamic_batching {{ default_queue_policy {{{POLICY}}} }}",
    "sequence": f"{HANGS} max_batch_size: 1 sequence_batching {{ }}",
    "hasty": f"""{DECOUPLED} dynamic_batching {{
        default_queue_policy {{ default_timeout_microseconds: 20000 }} }}""",
    "narrow": f"""{DECOUPLED} dynamic_batching {{
        default_queue_policy {{ max_queue_size: 1 }} }}""",
    "levels": f"""backend: "identity" max_batch_size: 4 {TENSORS} dynamic_batching {{
        priority_levels: 2 default_priority_level: 2 }}""",
}
WAITING = ["direct", "batched", "policy", "sequence"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, config in MODELS.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(config)
    return root


class Site:
    """A server, a way to ask it over REST, and its gRPC stub."""

    def __init__(self, server, stub):
        self.server = server
        self.stub = stub

    async def post(self, model, **parameters):
        """Return the status and the document of one inference on a connection of its own."""
        shape = [1, 1] if "max_batch" in MODELS[model] else [1]
        tensor = {"name": "X", "datatype": "FP32", "shape": shape, "data": [1.5]}
        body = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.http_port)
        try:
            head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            async with asyncio.timeout(PATIENCE_S):
                answer = await reader.read()
        finally:  # with a reset: half closed connections are asked for a while
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)

    def call(self, model, timeout=None, **parameters):
        """Call with a deadline of so many seconds."""
        return self.stub.ModelInfer(message(model, **parameters), timeout=timeout)

    def ask(self, model, timeout_us, **parameters):
        """Call without a deadline, but with the parameter timeout."""
        return self.stub.ModelInfer(message(model, timeout=timeout_us, **parameters))

    @contextlib.asynccontextmanager
    async def busy(self, model):
        """Have the one instance of a model hang meanwhile, with all it needs."""
        first = asyncio.ensure_future(self.call(model, **sequence(model, 1)))
        await until(lambda: self.count(model) == (1, 0))
        try:
            yield
        finally:
            first.cancel()

    def count(self, model):
        """Return how many requests are under way on the server, and how many wait for a model."""
        [served] = self.server.engine.catalog.served(model)
        return self.server.engine.capacity.request_count, served.scheduler.pending_count


def message(model, **parameters):
    shape = [1, 1] if "max_batch" in MODELS[model] else [1]
    request = pb.ModelInferRequest(
        model_name=model,
        inputs=[{"name": "X", "datatype": "FP32", "shape": shape}],
        raw_input_contents=[np.float32([1.5]).tobytes()],
    )
    for name, value in parameters.items():
        kind = {bool: "bool_param", str: "string_param"}.get(type(value), "int64_param")
        setattr(request.parameters[name], kind, value)
    return request


def sequence(model, number):
    """Return the parameters that a first request of a sequence model needs."""
    return {"sequence_id": number, "sequence_start": True} if model == "sequence" else {}


def serving(repository, test, transport="own", **options):
    async def whole():
        config = ServerConfig(
            http_port=0,
            grpc_port=0,
            model_repository=(str(repository),),
            grpc_transport=transport,
            **options,
        )
        server = Server(config)
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
                await test(Site(server, service_pb2_grpc.GRPCInferenceServiceStub(channel)))
        finally:
            for served in server.engine.catalog.served():
                release(served.scheduler)
            await server.stop()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(whole(), 2 * PATIENCE_S))


def release(scheduler):
    """Let go of what hangs: stopping would wait for it."""
    execution = (
        scheduler._instances.all()[0].execution
        if hasattr(scheduler, "_instances")
        else scheduler._execution
    )
    for instance in execution.instances:
        instance.close()


async def failed(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


# --- the parameter timeout ---


@pytest.mark.parametrize("model", WAITING)
@pytest.mark.parametrize("timeout_us", [1, 20_000])
def test_a_request_behind_a_model_that_hangs_waits_for_its_timeout(repository, model, timeout_us):
    async def test(site):
        async with site.busy(model):
            status, document = await site.post(model, timeout=timeout_us, **sequence(model, 2))
            assert status == 503 and f"waited for {timeout_us} micros" in document["error"]
            code, details = await failed(site.ask(model, timeout_us, **sequence(model, 3)))
            assert code is grpc.StatusCode.UNAVAILABLE and "its timeout in the queue" in details
            await until(lambda: site.count(model) == (1, 0))
            assert (await site.post("ok"))[0] == 200

    serving(repository, test)


@pytest.mark.parametrize("model", WAITING)
@pytest.mark.parametrize("timeout_us", [0, NEVER_US, 2**64 - 1])
def test_no_timeout_and_the_longest_wait_for_ever(repository, model, timeout_us):
    async def test(site):
        async with site.busy(model):
            parameters = {"timeout": timeout_us, **sequence(model, 2)}
            requested = asyncio.ensure_future(site.post(model, **parameters))
            await until(lambda: site.count(model) == (2, 1))
            await failed(site.ask(model, 20_000, **sequence(model, 3)))  # time passes
            assert site.count(model) == (2, 1)
            requested.cancel()
            await until(lambda: site.count(model) == (1, 0))

    serving(repository, test)


@pytest.mark.parametrize("timeout_us", [1, 2**64 - 1])
@pytest.mark.parametrize("model", ["ok", "levels", "faulty"])
def test_what_need_not_wait_is_answered_whatever_its_timeout(repository, model, timeout_us):
    async def test(site):
        for _ in range(20):
            assert (await site.post(model, timeout=timeout_us))[0] == 200

    serving(repository, test)


@pytest.mark.parametrize("value", [-1, 2**64, 1.5, "5", True])
@pytest.mark.parametrize("name", ["timeout", "priority"])
def test_a_timeout_or_priority_that_is_none_is_refused(repository, name, value):
    async def test(site):
        status, document = await site.post("ok", **{name: value})
        assert status == 400 and f"'{name}'" in document["error"]
        if type(value) in (str, bool) or value == -1:
            code, details = await failed(site.stub.ModelInfer(message("ok", **{name: value})))
            assert code is grpc.StatusCode.INVALID_ARGUMENT and f"'{name}'" in details

    serving(repository, test)


@pytest.mark.parametrize("priority", [0, 1, 2, 3, 2**32, 2**63 - 1])
@pytest.mark.parametrize("model", ["levels", "ok"])
def test_a_priority_of_no_level_there_is_means_the_default(repository, model, priority):
    async def test(site):
        assert (await site.post(model, priority=priority))[0] == 200
        assert (await site.call(model, priority=priority)).model_name == model

    serving(repository, test)


# --- the deadline of a call ---


@pytest.mark.parametrize("transport", ["own", "grpcio"])
@pytest.mark.parametrize("model", WAITING)
def test_what_waits_when_its_deadline_comes_leaves_the_queue(repository, model, transport):
    async def test(site):
        async with site.busy(model):
            code, _ = await failed(site.call(model, timeout=0.1, **sequence(model, 2)))
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED
            await until(lambda: site.count(model) == (1, 0))
            assert (await site.call("ok", timeout=PATIENCE_S)).model_name == "ok"

    serving(repository, test, transport)


def test_a_rest_client_that_leaves_takes_what_waits_along(repository):
    async def test(site):
        async with site.busy("direct"):
            requested = asyncio.ensure_future(site.post("direct"))
            await until(lambda: site.count("direct") == (2, 1))
            requested.cancel()
            await until(lambda: site.count("direct") == (1, 0))

    serving(repository, test)


# --- a queue policy without batches ---


@pytest.mark.parametrize("transport", ["own", "grpcio"])
@pytest.mark.parametrize(
    ("model", "more", "text"),
    [("hasty", 1, "waited for 20000 microseconds"), ("narrow", 2, "max_queue_size is 1")],
)
def test_the_queue_policy_of_a_decoupled_model_holds(repository, transport, model, more, text):
    async def test(site):
        stream = site.stub.ModelStreamInfer()
        await stream.write(message(model))
        assert (await stream.read()).error_message == ""  # and then the model hangs
        for _ in range(more):
            await stream.write(message(model))
        assert text in (await stream.read()).error_message
        stream.cancel()

    serving(repository, test, transport)


# --- shared resources ---


@pytest.fixture
def sharing(tmp_path):
    """Models that need the same resource: `direct` hangs, `ok` does not."""
    group = 'instance_group { kind: KIND_CPU rate_limiter { resources { name: "R" count: 1 } } }'
    for name in ("direct", "ok"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(f"{MODELS[name]} {group}")
    return tmp_path


def test_what_waits_for_a_resource_leaves_when_nobody_waits_for_it(sharing):
    async def test(site):
        async with site.busy("direct"):
            status, document = await site.post("ok", timeout=20_000)
            assert status == 503 and "its timeout in the queue" in document["error"]
            code, _ = await failed(site.call("ok", timeout=0.1))
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED
            await until(lambda: site.count("ok") == (1, 0))
        rows = site.server.engine.whole.statistics("ok")
        assert rows[0].execution_count == 0

    serving(sharing, test, rate_limit="execution_count")


# --- models that break ---


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("raise", "failed: ArithmeticError: on purpose"),
        ("too_few", "gave 0 answers to 1 requests"),
        ("too_many", "gave 2 answers to 1 requests"),
        ("wrong_shape", "produced output 'X' as FP32 [1, 1], its configuration says FP32 [1]"),
        ("wrong_datatype", "produced output 'X' as INT8 [1], its configuration says FP32 [1]"),
        ("wrong_name", "gave outputs 'X_wrong', expected 'X'"),
        ("missing_output", "gave outputs none, expected 'X'"),
    ],
)
def test_a_model_that_breaks_its_word_fails_that_request_and_no_other(repository, fault, text):
    async def test(site):
        status, document = await site.post("faulty", fault=fault)
        assert status == 500 and text in document["error"]
        code, details = await failed(site.call("faulty", fault=fault))
        assert code is grpc.StatusCode.INTERNAL and text in details
        assert (await site.post("faulty"))[0] == 200

    serving(repository, test)
