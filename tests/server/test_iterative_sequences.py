"""Sequences of decoupled models, and iterative ones, as clients of REST and gRPC see them."""

import asyncio
import contextlib
import json

import numpy as np
import pytest
import tritonclient.grpc.aio as triton_grpc
import tritonclient.http.aio as triton_http
from tritonclient.utils import InferenceServerException

from inferd.aio.event_loop import new_event_loop
from inferd.config.server import ServerConfig
from inferd.server.server import Server

PATIENCE_S = 30
TENSORS = """
backend: "repeat"
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
input { name: "DELAY" data_type: TYPE_UINT32 dims: -1 optional: true }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
output { name: "IDX" data_type: TYPE_UINT32 dims: 1 }
instance_group { kind: KIND_CPU count: 1 }
"""
DECOUPLED = TENSORS + "model_transaction_policy { decoupled: true }\n"
START = (
    'control_input { name: "START" '
    "control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } }"
)
ROUNDS = (
    "sequence_batching { iterative_sequence: true oldest { max_candidate_sequences: 4 } "
    'state { input_name: "AT" output_name: "NEXT" data_type: TYPE_INT32 dims: 1 } }'
)
MODELS = {
    "stream": DECOUPLED + f"sequence_batching {{ {START} }}",
    "queued": DECOUPLED + "dynamic_batching { default_queue_policy { max_queue_size: 1 } }",
    "rounds": DECOUPLED + ROUNDS,
    "last": TENSORS + ROUNDS,
}


@pytest.fixture
def repository(tmp_path):
    for name, text in MODELS.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(text)
    return tmp_path


@pytest.fixture(params=["own", "grpcio"])
def transport(request):
    return request.param


class Clients:
    def __init__(self, server):
        self.server = server
        self.grpc = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        self.http = triton_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")

    async def stream(self, *requested):
        """Send (model, elements, fields) over one stream; return the elements and errors, by id."""

        async def requests():
            for number, (model, elements, fields) in enumerate(requested):
                yield {
                    "model_name": model,
                    "inputs": _inputs(triton_grpc, elements, fields.pop("delays", None)),
                    "request_id": str(number),
                    "enable_empty_final_response": True,
                    **fields,
                }

        got = {str(number): [] for number in range(len(requested))}
        order, missing = [], set(got)
        responses = self.grpc.stream_infer(requests())
        async for result, error in responses:
            if error is not None:
                return got, order, error
            answer = result.get_response()
            if answer.outputs:
                got[answer.id].append(int(result.as_numpy("OUT")[0]))
                order.append(answer.id)
            if answer.parameters["triton_final_response"].bool_param:
                missing.discard(answer.id)
            if not missing:
                responses.cancel()
                break
        return got, order, None

    async def close(self):
        await self.grpc.close()
        await self.http.close()


def _inputs(module, elements, delays=None):
    inputs = [module.InferInput("IN", [len(elements)], "INT32")]
    inputs[0].set_data_from_numpy(np.array(elements, np.int32))
    if delays is not None:
        inputs.append(module.InferInput("DELAY", [len(delays)], "UINT32"))
        inputs[1].set_data_from_numpy(np.array(delays, np.uint32))
    return inputs


def serving(repository, transport, talk, **options):
    async def whole():
        config = ServerConfig(
            http_port=0,
            grpc_port=0,
            model_repository=(str(repository),),
            grpc_transport=transport,
            **options,
        )
        async with Server(config) as server:
            clients = Clients(server)
            try:
                return await talk(clients)
            finally:
                await clients.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(asyncio.wait_for(whole(), 2 * PATIENCE_S))


def test_a_sequence_of_a_decoupled_model_answers_in_its_order(repository, transport):
    async def talk(clients):
        got, order, error = await clients.stream(
            ("stream", [1, 2], {"sequence_id": 5, "sequence_start": True}),
            ("stream", [3], {"sequence_id": 5}),
            ("stream", [4, 5], {"sequence_id": 5, "sequence_end": True}),
        )
        assert error is None
        assert got == {"0": [1, 2], "1": [3], "2": [4, 5]}
        assert order == ["0", "0", "1", "2", "2"]
        _, _, error = await clients.stream(("stream", [1], {"sequence_id": 5}))
        assert "for sequence 5 to model 'stream' must specify the START flag" in str(error)

    serving(repository, transport, talk)


@pytest.mark.slow
def test_a_queue_policy_counts_for_a_decoupled_model(repository, transport):
    async def talk(clients):
        blocker = ("queued", [1, 2], {"delays": [0, 60_000]})
        many = [blocker, *(("queued", [3], {}) for _ in range(2))]
        got, _, error = await clients.stream(*many)
        assert "its max_queue_size is 1" in str(error)
        assert got["1"] == got["2"] == []

    serving(repository, transport, talk, exit_timeout_secs=0)


def test_a_model_may_answer_in_every_round_over_grpc(repository, transport):
    async def talk(clients):
        got, _, error = await clients.stream(
            ("rounds", [1, 2, 3], {}), ("rounds", [4, 5], {}), ("rounds", [], {})
        )
        assert error is None
        assert got == {"0": [1, 2, 3], "1": [4, 5], "2": []}

    serving(repository, transport, talk)


def test_a_model_that_is_not_decoupled_answers_after_its_last_round(repository, transport):
    async def talk(clients):
        answer = await clients.http.infer("last", _inputs(triton_http, [7, 8, 9]))
        assert (answer.as_numpy("OUT")[0], answer.as_numpy("IDX")[0]) == (9, 2)
        answer = await clients.grpc.infer("last", _inputs(triton_grpc, [7, 8]))
        assert (answer.as_numpy("OUT")[0], answer.as_numpy("IDX")[0]) == (8, 1)
        statistics = await clients.http.get_inference_statistics("last")
        [row] = statistics["model_stats"]
        assert (row["inference_count"], row["execution_count"]) == (2, 5)
        with pytest.raises(InferenceServerException, match="expected one at least") as caught:
            await clients.http.infer("last", _inputs(triton_http, []))
        assert caught.value.status() == "400"

    serving(repository, transport, talk)


def test_rounds_come_as_events_over_generate_stream(repository):
    async def talk(clients):
        reader, writer = await asyncio.open_connection("127.0.0.1", clients.server.http_port)
        body = json.dumps({"IN": [1, 2, 3]}).encode()
        writer.write(
            b"POST /v2/models/rounds/generate_stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        text = (await reader.read()).decode()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        events = [line for line in text.splitlines() if line.startswith("data: ")]
        return [json.loads(line.removeprefix("data: "))["OUT"] for line in events]

    assert serving(repository, "own", talk) == [1, 2, 3]


def test_a_client_that_leaves_between_rounds_ends_them(repository, transport):
    async def talk(clients):
        async def one():
            yield {
                "model_name": "rounds",
                "inputs": _inputs(triton_grpc, [1] * 1000, [0] * 3 + [5] * 997),
            }

        responses = clients.grpc.stream_infer(one())
        async for _ in responses:
            responses.cancel()
            break
        scheduler = clients.server.engine.find("rounds", "").scheduler
        async with asyncio.timeout(30):
            while scheduler._live:
                await clients.http.is_server_live()

    serving(repository, transport, talk)
