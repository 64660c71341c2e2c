"""Dynamic batching as clients see it: over sockets, REST and gRPC, with the backends there are."""

import asyncio
import json
import socket
import threading
from typing import Annotated

import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from onnx import TensorProto, helper
from patience import PATIENCE_S, until
from tritonclient.utils import InferenceServerException

import inferd
from inferd.aio.event_loop import new_event_loop
from inferd.config.server import ServerConfig
from inferd.server.server import Server

A_MINUTE_US = 60_000_000
ECHO = """
backend: "identity"
max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: 1 }
output { name: "X" data_type: TYPE_FP32 dims: 1 }
"""
LARGE = 2**23  # bytes of one row of the large model: more than the system's buffers take


@pytest.fixture
def models(tmp_path):
    """models(name=(config, graph or None)) writes a repository and returns its path."""

    def write(**given):
        for name, (config, graph) in given.items():
            (tmp_path / name / "1").mkdir(parents=True)
            (tmp_path / name / "config.pbtxt").write_text(config)
            if graph is not None:
                opsets = [helper.make_opsetid("", 21)]
                model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
                (tmp_path / name / "1" / "model.onnx").write_bytes(model.SerializeToString())
        return tmp_path

    return write


def negation(elements):
    """Y = -X, FP32 [n, elements]."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", elements]) for name in "XY"
    ]
    node = helper.make_node("Neg", ["X"], ["Y"])
    return helper.make_graph([node], "graph", values[:1], values[1:])


def batching(**fields):
    return f"dynamic_batching {{ {' '.join(f'{key}: {value}' for key, value in fields.items())} }}"


class Rest:
    """One client's connection."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, server, receive_bytes=0):
        client = socket.create_connection(("127.0.0.1", server.http_port))
        if receive_bytes:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        return cls(*await asyncio.open_connection(sock=client))

    def ask(self, model, values, **parameters):
        """Send an inference request; `values` is one number for each item of the batch."""
        given = {"name": "X", "datatype": "FP32", "shape": [len(values), 1], "data": values}
        self.post(f"/v2/models/{model}/infer", {"inputs": [given], "parameters": parameters})

    def post(self, path, document, binary=b""):
        head = json.dumps(document).encode()
        self.writer.write(
            f"POST {path} HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {len(head)}\r\n"
            f"Content-Length: {len(head) + len(binary)}\r\n\r\n".encode()
        )
        self.writer.write(head + binary)

    async def answer(self):
        """Return status, JSON and the bytes behind it."""
        async with asyncio.timeout(PATIENCE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
            sizes = {
                name: int(value)
                for name, _, value in (line.partition(": ") for line in head.splitlines())
                if name in ("content-length", "inference-header-content-length")
            }
            body = await self.reader.readexactly(sizes["content-length"])
        size = sizes.get("inference-header-content-length", len(body))
        return int(head.split()[1]), json.loads(body[:size]), body[size:]

    async def data(self):
        status, document, _ = await self.answer()
        assert status == 200, document
        return document["outputs"][0]["data"]

    async def statistics(self, model):
        self.writer.write(f"GET /v2/models/{model}/stats HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        [row] = (await self.answer())[1]["model_stats"]
        return row

    async def batches(self, model):
        """Return how many executions there were of each batch size."""
        rows = (await self.statistics(model))["batch_stats"]
        return {row["batch_size"]: row["compute_infer"]["count"] for row in rows}


def serving(repository, serve, *models):
    """Run serve(server, connect) beside a server on uvloop, which keeps views of what it writes.

    It serves what is in `repository`, if any, and `models`.
    """
    opened = []

    async def whole():
        paths = (str(repository),) if repository else ()
        config = ServerConfig(http_port=0, grpc_port=0, model_repository=paths)
        async with Server(config, models=models) as server:

            async def connect(**how):
                opened.append(await Rest.connect(server, **how))
                return opened[-1]

            try:
                return await serve(server, connect)
            finally:
                for one in opened:
                    one.writer.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(asyncio.wait_for(whole(), 2 * PATIENCE_S))


FOUND = """
backend: "onnxruntime"
max_batch_size: 4
input { name: "X" data_type: TYPE_FP32 dims: 2 }
output { name: "Y" data_type: TYPE_INT64 dims: 2 }
"""


def where_not_zero():
    """Y is INT64 [any, 2]: the row and column of each element of X, FP32 [n, 2], that is not 0."""
    given = helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 2])
    found = helper.make_tensor_value_info("Y", TensorProto.INT64, [None, 2])
    nodes = [
        helper.make_node("NonZero", ["X"], ["T"]),
        helper.make_node("Transpose", ["T"], ["Y"], perm=[1, 0]),
    ]
    return helper.make_graph(nodes, "graph", [given], [found])


def test_a_model_whose_rows_are_not_its_items_is_joined_no_more(models):
    config = FOUND + batching(preferred_batch_size=2, max_queue_delay_microseconds=A_MINUTE_US)
    repository = models(found=(config, where_not_zero()))

    async def serve(_, connect):
        clients = [await connect(), await connect()]

        async def ask(*rows):
            for client, row in zip(clients, rows, strict=True):
                given = {"name": "X", "datatype": "FP32", "shape": [1, 2], "data": row}
                client.post("/v2/models/found/infer", {"inputs": [given]})
            return [await client.data() for client in clients]

        # Joined these have four rows, which do not fit; each runs again, and has two for one item.
        assert await ask([1, 1], [1, 1]) == [[0, 0, 0, 1]] * 2
        # Joined these would have two rows, one for each item, both of them the second's.
        assert await ask([0, 0], [1, 1]) == [[], [0, 0, 0, 1]]
        both = {"name": "X", "datatype": "FP32", "shape": [2, 2], "data": [0, 1, 1, 0]}
        clients[0].post("/v2/models/found/infer", {"inputs": [both]})
        assert await clients[0].data() == [0, 1, 1, 0]  # a batch of two is one request as before

    serving(repository, serve)


def test_a_server_that_ends_lets_nobody_wait_for_others(models):
    config = ECHO + batching(max_queue_delay_microseconds=A_MINUTE_US)
    sequence = "sequence_batching { oldest { max_queue_delay_microseconds: 60000000 } }"

    async def serve(server, connect):
        batched, sequenced = await connect(), await connect()
        batched.ask("m", [1.5])
        sequenced.ask("s", [2.5], sequence_id=1, sequence_start=True)
        await until(lambda: waiting_count(server, "m") and waiting_count(server, "s"))
        assert await server.drain(PATIENCE_S)
        assert await batched.data() == [1.5]
        assert await sequenced.data() == [2.5]

    serving(models(m=(config, None), s=(ECHO + sequence, None)), serve)


def waiting_count(server, model):
    [served] = server.engine.catalog.served(model)
    return served.scheduler.pending_count


def grpc_input(values):
    one = triton.InferInput("X", [len(values), 1], "FP32")
    one.set_data_from_numpy(np.array(values, np.float32).reshape(-1, 1))
    return one


def test_clients_of_both_protocols_share_a_batch_and_each_gets_its_own(models):
    config = ECHO + batching(preferred_batch_size=8, max_queue_delay_microseconds=A_MINUTE_US)

    async def serve(server, connect):
        rest = [await connect() for _ in range(3)]
        async with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            calls = [
                asyncio.create_task(client.infer("m", [grpc_input(values)]))
                for values in ([1], [2, 3])
            ]
            for number, one in enumerate(rest):
                one.ask("m", [10 * number] * (2 if number else 1))
            got = [(await call).as_numpy("X").ravel().tolist() for call in calls]
            assert got == [[1], [2, 3]]
            assert [await one.data() for one in rest] == [[0], [10, 10], [20, 20]]
        row = await rest[0].statistics("m")
        assert await rest[0].batches("m") == {8: 1}
        assert (row["inference_count"], row["execution_count"]) == (8, 1)
        assert row["inference_stats"]["success"]["count"] == 5
        assert row["inference_stats"]["queue"]["count"] == 5

    serving(models(m=(config, None)), serve)


WIDE = 70_000  # elements of one row, whose bytes come in several pieces


class Wide:
    """Four clients that ask the model "wide" for rows of WIDE elements."""

    def __init__(self, clients):
        self.clients = clients

    async def ask(self, numbers, order, pieces, **fields):
        """Send a request of each client in `pieces`, by turns; return what elements each gets."""
        cuts = np.linspace(0, 4 * WIDE, pieces + 1).astype(int)
        for piece in range(pieces):
            for index in order:
                client = self.clients[index]
                data = np.full(WIDE, numbers[index], np.float32).tobytes()
                part = data[cuts[piece] : cuts[piece + 1]]
                client.writer.write(part if piece else head(fields) + part)
                await client.writer.drain()
                await asyncio.sleep(0)
        return [await self.answer(client, fields) for client in self.clients]

    async def answer(self, client, fields):
        status, document, data = await client.answer()
        assert status == 200, document
        assert document.get("id", "") == fields.get("id", "")
        return set(np.frombuffer(data, np.float32))


def head(fields):
    """Return all of a request to the model "wide" that comes before its binary part."""
    given = {"name": "X", "datatype": "FP32", "shape": [1, WIDE]}
    given["parameters"] = {"binary_data_size": 4 * WIDE}
    document = {"inputs": [given], "parameters": {"binary_data_output": True}} | fields
    text = json.dumps(document).encode()
    return (
        f"POST /v2/models/wide/infer HTTP/1.1\r\nHost: x\r\n"
        f"Inference-Header-Content-Length: {len(text)}\r\n"
        f"Content-Length: {len(text) + 4 * WIDE}\r\n\r\n".encode()
    ) + text


def test_large_bodies_that_arrive_in_pieces_are_joined_and_each_gets_its_own_answer(models):
    """Whatever order they arrive in, in whatever pieces, and whatever their ids."""
    config = f"""
    backend: "onnxruntime"
    max_batch_size: 8
    input {{ name: "X" data_type: TYPE_FP32 dims: {WIDE} }}
    output {{ name: "Y" data_type: TYPE_FP32 dims: {WIDE} }}
    {batching(preferred_batch_size=4, max_queue_delay_microseconds=A_MINUTE_US)}
    """

    async def serve(server, connect):
        wide = Wide([await connect() for _ in range(4)])
        random = np.random.default_rng(3)
        for turn in range(24):
            numbers = random.integers(1, 1000, 4).tolist()
            order = random.permutation(4) if turn % 3 else range(4)
            fields = {"id": f"turn {turn}"} if turn % 5 == 0 else {}
            got = await wide.ask(numbers, order, 1 + turn % 4, **fields)
            assert got == [{-number} for number in numbers]
        assert server.engine.capacity.buffered_bytes == 0

    serving(models(wide=(config, negation(WIDE))), serve)


def test_a_full_queue_refuses_over_both_protocols_until_there_is_room(models):
    config = ECHO + batching(
        preferred_batch_size=3,
        max_queue_delay_microseconds=A_MINUTE_US,
        default_queue_policy="{ max_queue_size: 2 }",
    )
    text = (
        "Exceeds maximum queue size: the queue of model 'm' is full: its max_queue_size is 2; "
        "try again later"
    )

    async def serve(server, connect):
        early = [await connect() for _ in range(2)]
        for number, one in enumerate(early):
            one.ask("m", [number])
        await until(lambda: waiting_count(server, "m") == 2)
        late = await connect()
        for _ in range(2):
            late.ask("m", [9])
            assert (await late.answer())[:2] == (503, {"error": text})
        async with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            with pytest.raises(InferenceServerException, match=f"{text}$") as got:
                await client.infer("m", [grpc_input([9])])
            assert got.value.status() == "StatusCode.UNAVAILABLE"
        early[0].writer.transport.abort()
        await until(lambda: waiting_count(server, "m") == 1)
        late.ask("m", [2, 3])
        assert await early[1].data() == [1]
        assert await late.data() == [2, 3]

    serving(models(m=(config, None)), serve)


@pytest.mark.parametrize(
    ("requested_us", "got_us"), [(0, 30_000), (10_000, 10_000), (90_000, 30_000)]
)
def test_a_request_that_waits_too_long_is_refused_over_both_protocols(models, requested_us, got_us):
    policy = "{ default_timeout_microseconds: 30000 allow_timeout_override: true }"
    config = ECHO + batching(max_queue_delay_microseconds=A_MINUTE_US, default_queue_policy=policy)
    text = (
        f"Request timeout expired: model 'm': the request has waited for {got_us} microseconds, "
        f"which is its timeout in the queue"
    )

    async def serve(server, connect):
        rest = await connect()
        rest.ask("m", [1], timeout=requested_us)
        assert (await rest.answer())[:2] == (503, {"error": text})
        async with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            with pytest.raises(InferenceServerException, match=text) as got:
                await client.infer("m", [grpc_input([1])], timeout=requested_us)
            assert got.value.status() == "StatusCode.UNAVAILABLE"
        row = await rest.statistics("m")
        assert (row["inference_stats"]["fail"]["count"], row["execution_count"]) == (2, 0)

    serving(models(m=(config, None)), serve)


def test_priority_overtakes_over_both_protocols():
    begun, may_end = [], threading.Event()

    def model(X: Annotated[np.ndarray, inferd.Spec("FP32", [-1, 1])]):  # noqa: N803
        begun.extend(X.ravel().tolist())
        may_end.wait(2 * PATIENCE_S)
        return {"Y": X}

    levels = {"priority_levels": 2, "default_priority_level": 2}
    outputs = {"Y": inferd.Spec("FP32", [-1, 1])}
    settings = {"max_batch_size": 1, "dynamic_batching": levels}
    given = inferd.Model(model, "m", outputs=outputs, batched=True, **settings).given

    async def serve(server, connect):
        async def over_rest(value, priority):
            client = await connect()
            client.ask("m", [value], priority=priority)
            assert await client.data() == [value]

        async def over_grpc(value, priority):
            async with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
                await client.infer("m", [grpc_input([value])], priority=priority)

        try:
            calls = [asyncio.create_task(over_rest(0, 0))]
            await until(lambda: begun == [0])
            for one in (over_rest(1, 2), over_grpc(2, 0), over_rest(3, 1), over_grpc(4, 1)):
                calls.append(asyncio.create_task(one))
                await until(lambda: waiting_count(server, "m") == len(calls) - 1)
        finally:
            may_end.set()
        await asyncio.gather(*calls)

    serving(None, serve, given)
    assert begun == [0, 3, 4, 1, 2]


def test_who_disconnects_or_cancels_leaves_the_queue(models):
    config = ECHO + batching(max_queue_delay_microseconds=A_MINUTE_US)

    async def serve(server, connect):
        rest = await connect()
        rest.ask("m", [1])
        async with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            call = asyncio.create_task(client.infer("m", [grpc_input([2])]))
            await until(lambda: waiting_count(server, "m") == 2)
            call.cancel()
            await until(lambda: waiting_count(server, "m") == 1)
            is_seen, timeout_s = False, 0.05
            while not is_seen:  # on a busy machine the deadline may come before the request
                late = asyncio.create_task(
                    client.infer("m", [grpc_input([3])], client_timeout=timeout_s)
                )
                await until(lambda task=late: waiting_count(server, "m") == 2 or task.done())
                is_seen, timeout_s = not late.done(), timeout_s * 2
                with pytest.raises(InferenceServerException, match="DEADLINE"):
                    await late
            await until(lambda: waiting_count(server, "m") == 1)
        rest.writer.transport.abort()
        await until(lambda: waiting_count(server, "m") == 0)

    serving(models(m=(config, None)), serve)


@pytest.mark.slow
def test_a_slow_reader_gets_its_own_answer_whatever_others_ask_meanwhile(models):
    """Answers are views of what the model gave; uvloop holds them until the client reads."""
    elements = LARGE // 4
    config = "max_batch_size: 4\n" + batching(
        preferred_batch_size=2, max_queue_delay_microseconds=A_MINUTE_US
    )

    def ask(client, value):
        given = {
            "name": "X",
            "datatype": "FP32",
            "shape": [1, elements],
            "parameters": {"binary_data_size": LARGE},
        }
        document = {"inputs": [given], "parameters": {"binary_data_output": True}}
        row = np.full(elements, value, np.float32)
        client.post("/v2/models/m/infer", document, row.tobytes())

    async def check(client, value):
        status, _, row = await client.answer()
        assert status == 200
        assert (np.frombuffer(row, np.float32) == -value).all()

    async def serve(server, connect):
        slow = [await connect(receive_bytes=65536) for _ in range(2)]
        for number, one in enumerate(slow, 1):
            ask(one, number)
        quick = [await connect() for _ in range(4)]
        for turn in range(3):
            for number, one in enumerate(quick):
                ask(one, 100 * turn + number + 10)
            for number, one in enumerate(quick):
                await check(one, 100 * turn + number + 10)

        def buffered_count():
            buffered = [
                one._transport.get_write_buffer_size() for one in server._http.endpoint.connections
            ]
            return sum(size > 0 for size in buffered)

        await until(lambda: buffered_count() == len(slow))
        for number, one in enumerate(slow, 1):
            await check(one, number)
        assert await quick[0].batches("m") == {2: 7}

    serving(models(m=(config, negation(elements))), serve)


def test_one_clients_bad_data_does_not_fail_the_others_in_its_batch(models):
    """Y = T[X]: an index that is not in the table fails the run it is in."""
    values = [
        helper.make_tensor_value_info("X", TensorProto.INT64, ["n", 1]),
        helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["n", 1]),
    ]
    table = helper.make_tensor("T", TensorProto.FLOAT, [3], [5, 6, 7])
    node = helper.make_node("Gather", ["T", "X"], ["Y"])
    graph = helper.make_graph([node], "graph", values[:1], values[1:], [table])
    config = "max_batch_size: 4\n" + batching(
        preferred_batch_size=3, max_queue_delay_microseconds=A_MINUTE_US
    )

    async def serve(server, connect):
        clients = [await connect() for _ in range(3)]
        for one, index in zip(clients, (2, 99, 0), strict=True):
            given = {"name": "X", "datatype": "INT64", "shape": [1, 1], "data": [index]}
            one.post("/v2/models/m/infer", {"inputs": [given]})
        assert await clients[0].data() == [7]
        assert await clients[2].data() == [5]
        status, document, _ = await clients[1].answer()
        assert status in (400, 500)
        assert "out of" in document["error"]

    serving(models(m=(config, graph)), serve)


@pytest.mark.parametrize("together", [True, False])
def test_ragged_requests_and_what_tells_them_apart(models, together):
    """Y = 2 R, cut by the shapes of R; N = how many elements each request has."""
    values = [
        helper.make_tensor_value_info("R", TensorProto.FLOAT, ["elements"]),
        helper.make_tensor_value_info("COUNTS", TensorProto.INT32, ["requests"]),
        helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["elements"]),
        helper.make_tensor_value_info("N", TensorProto.INT32, ["requests", 1]),
    ]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("Add", ["R", "R"], ["Y"]),
        helper.make_node("Unsqueeze", ["COUNTS", "axes"], ["N"]),
    ]
    graph = helper.make_graph(nodes, "graph", values[:2], values[2:], [axes])
    config = """
        max_batch_size: 8
        input { name: "R" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
        output { name: "Y" data_type: TYPE_FP32 dims: -1 }
        output { name: "N" data_type: TYPE_INT32 dims: 1 }
        batch_input {
          kind: BATCH_ELEMENT_COUNT target_name: "COUNTS" data_type: TYPE_INT32 source_input: "R"
        }
        batch_output { target_name: "Y" source_input: "R" }
    """
    if together:
        config += batching(preferred_batch_size=3, max_queue_delay_microseconds=A_MINUTE_US)

    async def serve(server, connect):
        clients = [await connect() for _ in range(3)]
        rows = [[1.0, 2.0, 3.0], [4.0], [5.0, 6.0]]
        for one, row in zip(clients, rows, strict=True):
            given = {"name": "R", "datatype": "FP32", "shape": [1, len(row)], "data": row}
            one.post("/v2/models/m/infer", {"inputs": [given]})
        for one, row in zip(clients, rows, strict=True):
            status, document, _ = await one.answer()
            assert status == 200, document
            got = {output["name"]: output for output in document["outputs"]}
            assert got["Y"]["shape"] == [1, len(row)]
            assert got["Y"]["data"] == [2 * value for value in row]
            assert got["N"]["data"] == [len(row)]
        assert await clients[0].batches("m") == ({3: 1} if together else {1: 3})

    serving(models(m=(config, graph)), serve)


WIDTH, LAYERS = 1024, 8


def doubling():
    """Y = 2^LAYERS X, for X of 0 or more: each layer reads all its weights, however many rows."""
    names = ["X", *(f"X{layer}" for layer in range(1, LAYERS)), "Y"]
    eye = 2 * np.eye(WIDTH, dtype=np.float32)
    weights = helper.make_tensor("W", TensorProto.FLOAT, eye.shape, eye.tobytes(), raw=True)
    nodes = [
        helper.make_node("MatMul", [names[layer], "W"], [names[layer + 1]])
        for layer in range(LAYERS)
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in "XY"]
    return helper.make_graph(nodes, "graph", values[:1], values[1:], [weights])


async def ask_over_rest(client, number):
    """Ask for one to three rows at a time, and now and then for what has the wrong shape."""
    right_count = 0
    for turn in range(12):
        is_wrong = turn % 5 == 4
        rows = np.full((1 + turn % 3, WIDTH + is_wrong), number + 100 * turn, np.float32)
        size = {"binary_data_size": rows.nbytes}
        given = {"name": "X", "datatype": "FP32", "shape": rows.shape, "parameters": size}
        document = {"inputs": [given], "parameters": {"binary_data_output": True}}
        client.post("/v2/models/m/infer", document, rows.tobytes())
        status, _, got = await client.answer()
        assert status == (400 if is_wrong else 200)
        right_count += not is_wrong and got == (rows * 2**LAYERS).tobytes()
    return right_count


async def ask_over_grpc(client, number):
    """Ask for one row at a time, and now and then give up."""
    right_count = 0
    for turn in range(12):
        rows = np.full((1, WIDTH), number + 100 * turn, np.float32)
        given = triton.InferInput("X", rows.shape, "FP32")
        given.set_data_from_numpy(rows)
        call = asyncio.create_task(client.infer("m", [given]))
        if turn % 4 == 3:
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
        else:
            right_count += ((await call).as_numpy("Y") == rows * 2**LAYERS).all()
    return right_count


@pytest.mark.slow
def test_many_clients_of_a_model_that_finds_its_own_pace_get_their_own_answers(models):
    config = 'max_batch_size: 16\nbackend: "onnxruntime"'  # the rest is filled in: it batches

    async def serve(server, connect):
        clients = [await connect() for _ in range(24)]
        async with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            for _ in range(20):  # where it is busy elsewhere, requests may come one by one
                right_counts = await asyncio.gather(
                    *(ask_over_rest(one, number) for number, one in enumerate(clients)),
                    *(ask_over_grpc(client, number) for number in range(50, 58)),
                )
                assert right_counts == [10] * 24 + [9] * 8
                if max(await clients[0].batches("m")) > 3:
                    return
        pytest.fail("no more than three rows ever came together")

    serving(models(m=(config, doubling())), serve)
