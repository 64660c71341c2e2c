"""Sequences as clients see them: over sockets, REST and gRPC, with models that keep no memory."""

import asyncio
import contextlib

import numpy as np
import pytest
import tritonclient.grpc.aio as triton_grpc
import tritonclient.http.aio as triton_http
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from inferd.aio.event_loop import new_event_loop
from inferd.config.server import ServerConfig
from inferd.server.server import Server

PATIENCE_S = 30
A_MINUTE_US = 60_000_000
KINDS = ("START", "END", "READY")
TYPES = {
    "int32": (TensorProto.INT32, "INT32", "0, 1"),
    "fp32": (TensorProto.FLOAT, "FP32", "0, 1"),
    "bool": (TensorProto.BOOL, "BOOL", "false, true"),
}
IDS = {
    "UINT64": TensorProto.UINT64,
    "INT64": TensorProto.INT64,
    "UINT32": TensorProto.UINT32,
    "INT32": TensorProto.INT32,
    "STRING": TensorProto.STRING,
}


def value(name, kind, rows="n"):
    return helper.make_tensor_value_info(name, kind, [rows, 1])


def show(kind="int32", id_type="UINT64", strategy="direct {}", **fields):
    """A model that shows its controls, and its input: configuration and graph."""
    tensor, _, pair = TYPES[kind]
    names = [*KINDS, "CORRID"]
    kinds = [tensor, tensor, tensor, IDS[id_type]]
    nodes = [helper.make_node("Identity", [name], [f"{name}_OUT"]) for name in names]
    nodes.append(helper.make_node("Identity", ["X"], ["Y"]))
    inputs = [value("X", TensorProto.FLOAT), *map(value, names, kinds)]
    outputs = [value("Y", TensorProto.FLOAT)]
    outputs += [value(f"{name}_OUT", one) for name, one in zip(names, kinds, strict=True)]
    controls = [
        f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{name} '
        f"{kind}_false_true: [{pair}] }} }}"
        for name in KINDS
    ]
    controls.append(
        'control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID '
        f"data_type: TYPE_{id_type} }} }}"
    )
    return config(strategy, *controls, **fields), helper.make_graph(nodes, "g", inputs, outputs)


def total(*, strategy="direct {}", initial="", shown=False, **fields):
    """A model that adds up X over a sequence, in a state: Y = STATE + X."""
    nodes = [
        helper.make_node("Add", ["X", "STATE"], ["Y"]),
        helper.make_node("Add", ["X", "STATE"], ["STATE_OUT"]),
    ]
    inputs = [value("X", TensorProto.FLOAT), value("STATE", TensorProto.FLOAT)]
    outputs = [value("Y", TensorProto.FLOAT), value("STATE_OUT", TensorProto.FLOAT)]
    state = (
        'state { input_name: "STATE" output_name: "STATE_OUT" data_type: TYPE_FP32 dims: 1 '
        f"{initial} }}"
    )
    extra = 'output { name: "Y" data_type: TYPE_FP32 dims: 1 }\n'
    if shown:
        extra += 'output { name: "STATE_OUT" data_type: TYPE_FP32 dims: 1 }\n'
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return config(strategy, state, **fields) + extra, graph


def config(strategy, *parts, idle_us=A_MINUTE_US, max_batch_size=4, count=1):
    return (
        f"max_batch_size: {max_batch_size}\ninstance_group {{ kind: KIND_CPU count: {count} }}\n"
        f"sequence_batching {{ {strategy} max_sequence_idle_microseconds: {idle_us}\n"
        f"{' '.join(parts)} }}\n"
    )


@pytest.fixture
def models(tmp_path):
    """models(name=(config, graph)) writes a repository and returns its path."""

    def write(**given):
        for name, (text, graph) in given.items():
            (tmp_path / name / "1").mkdir(parents=True)
            (tmp_path / name / "config.pbtxt").write_text(text)
            opsets = [helper.make_opsetid("", 21)]
            model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
            (tmp_path / name / "1" / "model.onnx").write_bytes(model.SerializeToString())
        return tmp_path

    return write


CLIENTS = {
    "REST": (triton_http, lambda server: server.http_port),
    "gRPC": (triton_grpc, lambda server: server.grpc_port),
}


def serving(repository, transport, talk):
    """Run talk(ask) with ask(model, x, id, **fields) -> {output: value} beside a server."""
    module, port = CLIENTS[transport]

    async def whole():
        configured = ServerConfig(http_port=0, grpc_port=0, model_repository=(str(repository),))
        async with (
            Server(configured) as server,
            contextlib.aclosing(Client(module, port(server))) as client,
        ):
            return await talk(client.ask)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(asyncio.wait_for(whole(), 2 * PATIENCE_S))


class Client:
    def __init__(self, module, port):
        self.module = module
        self.client = module.InferenceServerClient(f"127.0.0.1:{port}")

    async def ask(self, model, x, id=0, *, start=False, end=False, outputs=()):
        given = self.module.InferInput("X", [len(x), 1], "FP32")
        given.set_data_from_numpy(np.array(x, np.float32).reshape(-1, 1))
        answer = await self.client.infer(
            model,
            [given],
            sequence_id=id,
            sequence_start=start,
            sequence_end=end,
            outputs=[self.module.InferRequestedOutput(name) for name in outputs] or None,
        )
        response = answer.get_response()
        names = (
            [output["name"] for output in response["outputs"]]
            if isinstance(response, dict)
            else [output.name for output in response.outputs]
        )
        return {name: answer.as_numpy(name).ravel().tolist()[0] for name in names}

    async def aclose(self):
        await self.client.close()


both = pytest.mark.parametrize("transport", CLIENTS)


@both
@pytest.mark.parametrize("kind", TYPES)
def test_a_model_learns_where_in_its_sequence_a_request_is(models, transport, kind):
    async def talk(ask):
        return [
            await ask("show", [1], 7, start=True),
            await ask("show", [2], 7),
            await ask("show", [3], 7, end=True),
            await ask("show", [4], 7, start=True, end=True),
        ]

    answers = serving(models(show=show(kind)), transport, talk)
    seen = [(a["START_OUT"], a["END_OUT"], a["READY_OUT"], a["CORRID_OUT"]) for a in answers]
    assert seen == [(1, 0, 1, 7), (0, 0, 1, 7), (0, 1, 1, 7), (1, 1, 1, 7)]
    assert [answer["Y"] for answer in answers] == [1, 2, 3, 4]


@both
@pytest.mark.parametrize(
    ("id_type", "id", "seen"),
    [
        ("UINT64", 2**40 + 5, 2**40 + 5),
        ("INT64", 2**40 + 5, 2**40 + 5),
        ("UINT32", 2**40 + 5, 5),
        ("INT32", 2**31, -(2**31)),
        ("STRING", "abc", b"abc"),
    ],
)
def test_the_id_comes_in_the_type_of_its_control(models, transport, id_type, id, seen):
    async def talk(ask):
        return await ask("show", [1], id, start=True)

    answer = serving(models(show=show(id_type=id_type)), transport, talk)
    assert answer["CORRID_OUT"] == seen


@both
@pytest.mark.parametrize(
    ("x", "requested", "text"),
    [
        ([1], {}, "must specify a non-zero or non-empty correlation ID"),
        ([1], {"id": 5}, "sequence 5 to model .* must specify the START flag"),
        ([1], {"id": "a", "start": True}, "the sequence_id is a string"),
        ([1, 2], {"id": 5, "start": True}, "must specify batch-size 1"),
    ],
)
def test_what_belongs_to_no_sequence_is_refused(models, transport, x, requested, text):
    async def talk(ask):
        with pytest.raises(InferenceServerException, match=text) as caught:
            await ask("show", x, **requested)
        return caught.value.status()

    status = serving(models(show=show()), transport, talk)
    assert status in ("400", "StatusCode.INVALID_ARGUMENT")


@both
@pytest.mark.parametrize("strategy", ["direct {}", "oldest {}"])
@pytest.mark.parametrize("shown", [False, True])
def test_state_goes_from_one_request_to_the_next(models, transport, strategy, shown):
    async def talk(ask):
        answers = [await ask("total", [1], 1, start=True)]
        several = [ask("total", [10 * n], n, start=True, outputs=["Y"]) for n in range(2, 6)]
        answers += await asyncio.gather(*several)
        answers += await asyncio.gather(*(ask("total", [0.5], n) for n in range(1, 6)))
        answers.append(await ask("total", [1], 1, start=True))
        return answers

    fields = {"strategy": strategy, "count": 2, "shown": shown}
    answers = serving(models(total=total(**fields)), transport, talk)
    assert [answer["Y"] for answer in answers] == [
        1,
        20,
        30,
        40,
        50,
        1.5,
        20.5,
        30.5,
        40.5,
        50.5,
        1,
    ]
    assert ("STATE_OUT" in answers[0]) == shown
    assert list(answers[1]) == ["Y"]


def test_a_state_begins_with_what_its_file_holds(models):
    initial = 'initial_state { name: "s" data_type: TYPE_FP32 dims: 1 data_file: "first" }'
    repository = models(total=total(initial=initial))
    (repository / "total" / "initial_state").mkdir()
    (repository / "total" / "initial_state" / "first").write_bytes(np.float32(100).tobytes())

    async def talk(ask):
        return [await ask("total", [n], 1, start=n == 1) for n in (1, 2)]

    assert serving(repository, "REST", talk) == [{"Y": 101.0}, {"Y": 103.0}]


def loaded_again(models, changed, talk):
    """Return what `talk` does after the sequence 1 has begun, and `changed` was loaded."""
    repository = models(total=total())

    async def whole():
        configured = ServerConfig(
            http_port=0,
            grpc_port=0,
            model_repository=(str(repository),),
            model_control_mode="explicit",
            load_model=("*",),
        )
        async with (
            Server(configured) as server,
            contextlib.aclosing(Client(triton_http, server.http_port)) as client,
        ):
            await client.ask("total", [1], 1, start=True)
            (repository / "total" / "config.pbtxt").write_text(changed)
            await client.client.load_model("total")
            return await talk(client.ask)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(asyncio.wait_for(whole(), 2 * PATIENCE_S))


WARM_UP = """
model_warmup {
  name: "w" batch_size: 2
  inputs { key: "X" value { data_type: TYPE_FP32 dims: 1 random_data: true } }
}
"""


@pytest.mark.parametrize("strategy", ["direct {}", "oldest {}"])
def test_a_sample_that_names_no_controls_and_states_warms_up(models, strategy):
    text, graph = total(strategy=strategy)
    shown, controls = show(strategy=strategy)

    async def talk(ask):
        seen = await ask("show", [1], 1, start=True)
        return seen["Y"], await ask("total", [5], 1, start=True)

    repository = models(total=(text + WARM_UP, graph), show=(shown + WARM_UP, controls))
    assert serving(repository, "REST", talk) == (1.0, {"Y": 5.0})


def test_a_model_that_is_loaded_anew_begins_without_sequences(models):
    async def talk(ask):
        with pytest.raises(InferenceServerException, match="no such sequence runs"):
            await ask("total", [1], 1)
        return await ask("total", [5], 1, start=True)

    changed = total()[0] + '\nmetric_tags { key: "changed" value: "yes" }\n'
    assert loaded_again(models, changed, talk) == {"Y": 5.0}


def test_a_model_that_gets_more_instances_goes_on_with_its_sequences(models):
    async def talk(ask):
        return await ask("total", [5], 1)

    assert loaded_again(models, total(count=2)[0], talk) == {"Y": 6.0}


def test_a_control_of_another_type_than_the_files_does_not_load(models):
    text, graph = show("int32")
    text = text.replace("int32_false_true", "fp32_false_true")

    async def talk(ask):
        await ask("show", [1], 1, start=True)

    with pytest.raises(InferenceServerException, match="the file has INT32"):
        serving(models(show=(text, graph)), "REST", talk)
