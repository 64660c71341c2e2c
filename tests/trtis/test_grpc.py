"""nvidia.inferenceserver.GRPCService on both transports, by grpcio and by bytes."""

import asyncio

import grpc
import grpc.aio
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from inferd.config.options.access import hash_key
from inferd.config.server import ServerConfig
from inferd.server.server import Server
from inferd.wire.trtis import http as trtis_http

SERVICE = "/nvidia.inferenceserver.GRPCService"
LATEST = -1
CODES = trtis_http.CODE_NAMES
TEN = np.array([0.5, -1, 9.25, 3, 8.5, np.nan, 0.1, 7, 1e-9, 2], np.float32)


class Client:
    """Calls by name on one channel."""

    def __init__(self, port, messages):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.messages = messages

    def call(self, rpc, request, metadata=None):
        """Send a message, or bytes, and return the answer."""
        data = request if isinstance(request, bytes) else request.SerializeToString()
        method = self.channel.unary_unary(f"{SERVICE}/{rpc}")
        return self.messages.read(f"{rpc}Response", method(data, metadata=metadata, timeout=30))

    def reason(self, rpc, request):
        """The name of the code in request_status."""
        return CODES[self.call(rpc, request).request_status.code]

    def infer(self, model, header, *raw, version=LATEST, metadata=None):
        """An inference; `header` is text."""
        request = self.messages(
            "InferRequest",
            model_name=model,
            model_version=version,
            meta_data=self.messages.read("InferRequestHeader", header),
            raw_input=raw,
        )
        return self.call("Infer", request, metadata)


@pytest.fixture(scope="module", params=["own", "grpcio"])
def transport(request):
    """What carries gRPC."""
    return request.param


@pytest.fixture(scope="module")
def running(serve, transport):
    """A server with that transport."""
    with serve(grpc_transport=transport) as server:
        yield server


@pytest.fixture
def client(running, messages):
    """A client of it."""
    made = Client(running.grpc_port, messages)
    yield made
    made.channel.close()


@pytest.fixture
def call(serve, transport, messages):
    """`with call(option=value) as client` has a server of one's own."""
    from contextlib import contextmanager

    @contextmanager
    def run(**options):
        with serve(grpc_transport=transport, **options) as server:
            made = Client(server.grpc_port, messages)
            yield made
            made.channel.close()

    return run


ONE = 'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" }'
CLASSES = ONE.replace('"OUTPUT0"', '"OUTPUT0" cls { count: 1 }')


def field(tag, data):
    return bytes((tag, len(data))) + data


def with_input(more):
    return ONE.replace('"INPUT0"', f'"INPUT0" {more}')


def test_an_inference(client, pair):
    header, _, both = pair
    raw = [each.tobytes() for each in both]
    answer = client.infer("pair", header + " id: 9", *raw)
    assert CODES[answer.request_status.code] == "SUCCESS"
    assert answer.request_status.server_id == "inference:0"
    assert list(answer.raw_output) == raw
    told = answer.meta_data
    assert (told.model_name, told.model_version, told.batch_size, told.id) == ("pair", 1, 1, 9)
    assert [list(one.raw.dims) for one in told.output] == [[16], [16]]


def test_what_a_client_parses_is_what_it_would_write(client, pair, messages):
    header, _, both = pair
    answer = client.infer("pair", header, *(each.tobytes() for each in both))
    assert answer.meta_data == messages.read("InferResponseHeader", (
        'model_name: "pair" model_version: 1 batch_size: 1 '
        'output { name: "OUTPUT0" raw { dims: 16 batch_byte_size: 64 } } '
        'output { name: "OUTPUT1" raw { dims: 16 batch_byte_size: 64 } }'
    ))  # fmt: skip


def test_outputs_keep_their_place_beside_classes(client):
    both = [np.arange(16, dtype=np.int32), np.arange(16, dtype=np.int32)[::-1].copy()]
    header = (
        'batch_size: 1 input { name: "INPUT0" } input { name: "INPUT1" } '
        'output { name: "OUTPUT1" cls { count: 2 } } output { name: "OUTPUT0" }'
    )
    answer = client.infer("pair", header, *(each.tobytes() for each in both))
    assert list(answer.raw_output) == [b"", both[0].tobytes()]
    classes, raw = answer.meta_data.output
    assert [(one.idx, one.value) for one in classes.batch_classes[0].cls] == [(0, 15), (1, 14)]
    assert raw.raw.batch_byte_size == 64


def test_classes_in_batches_with_labels(client):
    header = 'batch_size: 2 input { name: "INPUT0" } output { name: "OUTPUT0" cls { count: 3 } }'
    answer = client.infer("ten", header, np.stack([TEN, TEN[::-1]]).tobytes())
    [output] = answer.meta_data.output
    found = [[(one.idx, one.label) for one in each.cls] for each in output.batch_classes]
    assert found == [[(2, "cat"), (4, ""), (7, "")], [(7, ""), (5, ""), (2, "cat")]]
    assert output.batch_classes[0].cls[0].value == 9.25


def test_strings(client, strings):
    body = strings("a", "", "bé", "c")
    header = (
        f'batch_size: 2 input {{ name: "INPUT0" batch_byte_size: {len(body)} }} '
        'output { name: "OUTPUT0" }'
    )
    assert list(client.infer("words", header, body).raw_output) == [body]


@pytest.mark.parametrize(
    ("model", "version", "found"),
    [("some", -1, 3), ("some", 1, 1), ("last", -1, 2), ("last", 2, 2), ("pair", 1, 1)],
)
def test_versions(client, model, version, found):
    header = ONE if model != "pair" else ONE + ' input { name: "INPUT1" }'
    size = 64 if model == "pair" else 4
    raw = [bytes(size)] * (2 if model == "pair" else 1)
    answer = client.infer(model, header, *raw, version=version)
    assert answer.meta_data.model_version == found


@pytest.mark.parametrize("version", [0, 2, -2, 2**63 - 1, -(2**63)])
def test_unknown_versions(client, version):
    assert CODES[client.infer("some", ONE, b"\0" * 4, version=version).request_status.code] == (
        "UNAVAILABLE"
    )


@pytest.mark.parametrize(
    ("model", "header", "raw", "reason"),
    [
        ("none", ONE, [b"\0" * 16], "UNAVAILABLE"),
        ("flat", "", [], "INVALID_ARG"),
        ("flat", ONE.replace("1", "0", 1), [b"\0" * 16], "INVALID_ARG"),
        ("flat", ONE, [b"\0" * 12], "INVALID_ARG"),
        ("flat", ONE, [b"\0" * 20], "INVALID_ARG"),
        ("flat", ONE, [], "INVALID_ARG"),
        ("flat", ONE, [b"\0" * 16] * 2, "INVALID_ARG"),
        ("flat", ONE.replace("OUTPUT0", "OTHER"), [b"\0" * 16], "INVALID_ARG"),
        ("flat", with_input("dims: 5"), [b"\0" * 20], "INVALID_ARG"),
        ("flat", with_input("batch_byte_size: 5"), [b"\0" * 16], "INVALID_ARG"),
        ("pair", ONE, [b"\0" * 64], "INVALID_ARG"),
        ("words", ONE, [b"\1\0\0\0a\1\0\0\0b"], "INVALID_ARG"),
        ("halves", CLASSES, [b"\0" * 8], "INVALID_ARG"),
        ("faulty", with_input("dims: 1"), [b"\0" * 4], "INTERNAL"),
        ("repeat", "batch_size: 1", [], "INVALID_ARG"),
        ("flat", with_input('shared_memory { name: "x" byte_size: 16 }'), [], "NOT_FOUND"),
        ("sequence", ONE, [b"\0" * 4], "INVALID_ARG"),
    ],
)  # fmt: skip
def test_errors_are_told_inside(client, model, header, raw, reason):
    answer = client.infer(model, f"{header} id: 5", *raw)
    assert CODES[answer.request_status.code] == reason, answer.request_status
    assert answer.request_status.msg
    assert answer.meta_data.id == 5
    assert not answer.raw_output


def test_a_decoupled_model_is_refused(client):
    header = 'batch_size: 1 input { name: "IN" dims: 1 } input { name: "DELAY" dims: 1 } '
    raw = [b"\0" * 4] * 3
    answer = client.infer("repeat", header + 'input { name: "WAIT" dims: 1 }', *raw)
    assert CODES[answer.request_status.code] == "UNSUPPORTED"


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\xff", b"\x80" * 20, b"\x0b\x0c", b"\x1a\x02\x08", b"\x0d\0\0", b"\xff" * 99,
     b"\x0a\x01\xff", b"\x12\x02\xff\xff", b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"],
)  # fmt: skip
def test_bytes_that_are_no_message(client, data):
    assert client.reason("Infer", data) == "INVALID_ARG"


@pytest.mark.parametrize(
    "rpc", ["Status", "Health", "Profile", "ModelControl", "SharedMemoryControl", "Repository"]
)
def test_bytes_that_are_no_message_of_a_small_call(client, rpc):
    for data in (b"\x0a\xff", b"\xff" * 99):
        assert client.reason(rpc, data) == "INVALID_ARG"


@pytest.mark.parametrize(
    "data", [b"\x22\0" * 1_000_000, b"\x1a\0" * 1_000_000, field(0x1A, b"\x12\0" * 60) * 5_000]
)
def test_more_fields_than_any_model_takes(client, data):
    assert client.reason("Infer", data) == "INVALID_ARG"


def test_fields_of_the_future_are_passed_over(client, messages, pair):
    header, _, both = pair
    request = messages(
        "InferRequest",
        model_name="pair",
        model_version=-1,
        meta_data=messages.read("InferRequestHeader", header),
        raw_input=[each.tobytes() for each in both],
    )
    unknown = b"\x78\x01\x7d1234\x7912345678\x82\x01\x03abc"
    answer = client.call("Infer", unknown + request.SerializeToString() + unknown)
    assert CODES[answer.request_status.code] == "SUCCESS"


# --- clients from before 0.11, written by hand ---

OLD_INPUT = b"\x0a\x06INPUT0\x10\x28"  # name, byte_size: 40
OLD_OUTPUT = b"\x0a\x07OUTPUT0\x10\x28"


def old_request(version=b"", outputs=OLD_OUTPUT, inputs=OLD_INPUT):
    header = b"\x08\x01" + field(0x12, inputs) + field(0x1A, outputs)
    return field(0x0A, b"ten") + version + field(0x1A, header) + field(0x22, TEN.tobytes())


MINUS_ONE = b"\x10" + b"\xff" * 9 + b"\x01"


@pytest.mark.parametrize(
    "version", [b"", field(0x12, b"1"), field(0x12, b""), MINUS_ONE, b"\x10\x01"]
)
def test_an_old_client(client, version):
    answer = client.call("Infer", old_request(version))
    assert CODES[answer.request_status.code] == "SUCCESS"
    assert list(answer.raw_output) == [TEN.tobytes()]
    # Raw of old clients: byte_size, of one item, where dims are now.
    assert list(answer.meta_data.output[0].raw.dims) == [40]
    assert answer.meta_data.output[0].raw.batch_byte_size == 0


def test_an_old_client_s_classes(client):
    answer = client.call("Infer", old_request(outputs=OLD_OUTPUT + field(0x1A, b"\x08\x02")))
    [classes] = answer.meta_data.output[0].batch_classes
    assert [one.idx for one in classes.cls] == [2, 4]


@pytest.mark.parametrize(
    "request_",
    [
        old_request(field(0x12, b"2")),
        old_request(field(0x12, b"latest")),
        old_request(b"\x10\x02"),
    ],
)
def test_an_old_client_s_unknown_version(client, request_):
    assert client.reason("Infer", request_) == "UNAVAILABLE"


def test_an_old_client_s_wrong_sizes(client):
    assert client.reason("Infer", old_request(inputs=b"\x0a\x06INPUT0\x10\x24")) == "INVALID_ARG"
    assert client.reason("Infer", old_request(outputs=b"\x0a\x07OUTPUT0\x10\x24")) == "INVALID_ARG"


# --- the other calls ---


@pytest.mark.parametrize("mode", ["live", "ready"])
def test_health(client, messages, mode):
    answer = client.call("Health", messages("HealthRequest", mode=mode))
    assert (CODES[answer.request_status.code], answer.health) == ("SUCCESS", True)


def test_health_from_the_start_to_the_end(repository, transport, messages):
    """Live is only said when the models have loaded, and is an error at the end."""

    async def go():
        config = ServerConfig(
            http_port=0,
            grpc_port=0,
            metrics_port=0,
            model_repository=(str(repository),),
            grpc_transport=transport,
        )
        server = Server(config)
        await server.open()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:

            async def ask(rpc, **fields):
                request = messages(f"{rpc}Request", **fields).SerializeToString()
                method = channel.unary_unary(f"{SERVICE}/{rpc}")
                answer = messages.read(f"{rpc}Response", await method(request, timeout=30))
                return CODES[answer.request_status.code], answer

            async def health():
                both = [await ask("Health", mode=mode) for mode in ("live", "ready")]
                return [(code, answer.health) for code, answer in both]

            async def state():
                return (await ask("Status"))[1].server_status.ready_state

            initializing, ready, exiting = 1, 2, 3
            assert await health() == [("SUCCESS", False)] * 2
            assert await state() == initializing
            assert (await ask("Infer", model_name="flat", model_version=-1))[0] == "UNAVAILABLE"
            await server.load()
            assert await health() == [("SUCCESS", True)] * 2
            assert await state() == ready
            server.engine.drain()
            assert await health() == [("UNAVAILABLE", False)] * 2
            assert await state() == exiting
        await server.stop()

    asyncio.run(go())


@pytest.mark.parametrize("mode", ["", "well", "LIVE"])
def test_another_health(client, messages, mode):
    answer = client.call("Health", messages("HealthRequest", mode=mode))
    assert (CODES[answer.request_status.code], answer.health) == ("UNKNOWN", False)


def test_status(client, messages):
    everything = client.call("Status", b"").server_status
    assert {"pair", "some"} <= set(everything.model_status)
    one = client.call("Status", messages("StatusRequest", model_name="some")).server_status
    assert list(one.model_status) == ["some"]
    assert set(one.model_status["some"].version_status) == {1, 3}
    none = client.call("Status", messages("StatusRequest", model_name="none"))
    assert CODES[none.request_status.code] == "INVALID_ARG"
    assert not none.HasField("server_status")


@pytest.mark.parametrize(
    ("command", "reason"), [("start", "UNSUPPORTED"), ("stop", "UNSUPPORTED"), ("", "INVALID_ARG")]
)
def test_profiling_is_refused(client, messages, command, reason):
    assert client.reason("Profile", messages("ProfileRequest", cmd=command)) == reason


def test_models_are_loaded_and_unloaded(call, messages):
    def asked(name, kind):
        return messages("ModelControlRequest", model_name=name, type=kind)

    with call(model_control_mode="explicit") as client:
        assert client.reason("ModelControl", asked("flat", 1)) == "SUCCESS"
        answer = client.infer("flat", ONE, b"\0" * 16)
        assert CODES[answer.request_status.code] == "SUCCESS"
        assert client.reason(
            "ModelControl", messages("ModelControlRequest", model_name="flat")
        ) == (
            "SUCCESS"  # no type means unload
        )
        answer = client.infer("flat", ONE, b"\0" * 16)
        assert CODES[answer.request_status.code] == "UNAVAILABLE"
        assert client.reason("ModelControl", asked("none", 1)) == "INTERNAL"
        assert client.reason("ModelControl", asked("none", 0)) == "SUCCESS"
        assert client.reason("ModelControl", asked("flat", 7)) == "UNKNOWN"
        index = client.call("Repository", messages("RepositoryRequest", index=False)).index
        assert {"flat", "some"} <= {one.name for one in index.models}


def test_models_are_not_loaded_in_other_modes(client, messages):
    request = messages("ModelControlRequest", model_name="flat", type=1)
    assert client.reason("ModelControl", request) == "UNAVAILABLE"


def test_an_index_must_be_asked_for(client):
    assert client.reason("Repository", b"") == "UNKNOWN"
    assert client.reason("Repository", b"\x08\x00") == "SUCCESS"  # its presence counts


def test_regions_lie_in_the_field_clients_look_in(client, messages, shared):
    given = shared()
    request = messages("SharedMemoryControlRequest")
    request.register.name, request.register.byte_size = "r", 64
    request.register.system_shared_memory.shared_memory_key = given.key
    assert client.reason("SharedMemoryControl", request) == "SUCCESS"
    assert client.reason("SharedMemoryControl", request) == "ALREADY_EXISTS"
    status = client.channel.unary_unary(f"{SERVICE}/SharedMemoryControl")(b"\x22\0")
    region = field(0x0A, b"r") + field(0x12, field(0x0A, given.key.encode())) + b"\x28\x40"
    assert status.endswith(field(0x12, field(0x12, region)))
    header = (
        'batch_size: 1 input { name: "INPUT0" shared_memory { name: "r" byte_size: 16 } } '
        'output { name: "OUTPUT0" shared_memory { name: "r" offset: 32 byte_size: 16 } }'
    )
    given.write(TEN[:4])
    answer = client.infer("flat", header)
    assert list(answer.raw_output) == [b""]
    assert answer.meta_data.output[0].raw.batch_byte_size == 16
    assert given.read(np.float32, 4, 32).tolist() == TEN[:4].tolist()
    gone = messages("SharedMemoryControlRequest")
    gone.unregister.name = ""
    assert client.reason("SharedMemoryControl", gone) == "SUCCESS"  # there is none without a name
    assert client.call("SharedMemoryControl", b"\x22\0").shared_memory_status.shared_memory_region
    gone.unregister.name = "r"
    assert client.reason("SharedMemoryControl", gone) == "SUCCESS"
    assert not (
        client.call("SharedMemoryControl", b"\x22\0").shared_memory_status.shared_memory_region
    )
    assert client.reason("SharedMemoryControl", b"\x1a\0") == "SUCCESS"  # all


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "UNKNOWN"),
        ("byte_size: 4", "INVALID_ARG"),
        ('byte_size: 4 system_shared_memory { shared_memory_key: "/none" }', "INTERNAL"),
        ('system_shared_memory { shared_memory_key: "/none" }', "INVALID_ARG"),
        ("byte_size: 18446744073709551615 system_shared_memory { }", "INVALID_ARG"),
        ('byte_size: 4 cuda_shared_memory { raw_handle: "a" }', "INVALID_ARG"),
    ],
)  # fmt: skip
def test_what_is_no_region(client, messages, text, reason):
    whole = f'register {{ name: "r" {text} }}' if text else ""
    request = messages.read("SharedMemoryControlRequest", whole)
    assert client.reason("SharedMemoryControl", request) == reason


# --- who may call ---


def test_restrictions_hold_here_too(call, messages):
    for group in ("inference", "metadata", "model-config", "statistics", "health"):
        with call(grpc_restricted_protocol=(f"{group}:pass=word",)) as client:
            secret = [("triton-grpc-protocol-pass", "word")]
            rpc = {"inference": "Infer", "health": "Health"}.get(group, "Status")
            request = messages("HealthRequest", mode="live") if rpc == "Health" else b""
            if group in ("model-config", "statistics"):
                assert client.reason(rpc, request) == "UNAVAILABLE"
            else:
                with pytest.raises(grpc.RpcError) as refused:
                    client.call(rpc, request)
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            answer = client.call(rpc, request, secret)
            assert CODES[answer.request_status.code] != "UNAVAILABLE" or rpc == "Infer"


@pytest.mark.parametrize(
    ("group", "rpcs"),
    [
        ("model-repository", ["ModelControl", "Repository"]),
        ("shared-memory", ["SharedMemoryControl"]),
        ("trace", ["Profile"]),
        ("inference", ["StreamInfer"]),
    ],
)
def test_a_restriction_holds_for_each_call_of_its_group(call, group, rpcs):
    with call(grpc_restricted_protocol=(f"{group}:pass=word",)) as client:
        for rpc in rpcs:
            method = client.channel.stream_stream(f"{SERVICE}/{rpc}")
            with pytest.raises(grpc.RpcError) as refused:
                list(method(iter([b""]), timeout=30))
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            secret = [("triton-grpc-protocol-pass", "word")]
            assert len(list(method(iter([b""]), metadata=secret, timeout=30))) == 1


def test_api_keys_hold_here_too(call, messages, tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"me:{hash_key(b'secret').hex()}\n")
    with call(api_key_file=str(file)) as client:
        with pytest.raises(grpc.RpcError) as refused:
            client.infer("flat", ONE, b"\0" * 16)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        answer = client.infer("flat", ONE, b"\0" * 16, metadata=[("x-api-key", "secret")])
        assert CODES[answer.request_status.code] == "SUCCESS"
        assert client.call("Health", messages("HealthRequest", mode="live")).health


def checked(client):
    """What grpc.health.v1 says of the service, as its number."""
    request = health_pb2.HealthCheckRequest(service=SERVICE.strip("/"))
    return health_pb2_grpc.HealthStub(client.channel).Check(request, timeout=30).status


def test_health_checks_know_the_service(call):
    with call() as client:
        assert checked(client) == health_pb2.HealthCheckResponse.SERVING
    with call(allow_trtis=False) as client, pytest.raises(grpc.RpcError) as refused:
        checked(client)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_it_can_be_turned_off(call, messages):
    with call(allow_trtis=False) as client:
        with pytest.raises(grpc.RpcError) as refused:
            client.call("Health", messages("HealthRequest", mode="live"))
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_metadata_become_parameters_as_in_v2(call):
    with call(grpc_header_forward_pattern="^(mine|priority)") as client:
        good = client.infer("flat", ONE, b"\0" * 16, metadata=[("mine", "1")])
        assert CODES[good.request_status.code] == "SUCCESS"
        bad = client.infer("flat", ONE, b"\0" * 16, metadata=[("priority", "1")])
        assert CODES[bad.request_status.code] == "INVALID_ARG"


# --- streams ---


@pytest.fixture
def stream(client, messages):
    """stream(requests) sends (model, header, raw...) and returns the answers, in their order."""

    def run(requests):
        def sent():
            for model, header, *raw in requests:
                yield messages(
                    "InferRequest",
                    model_name=model,
                    model_version=-1,
                    meta_data=messages.read("InferRequestHeader", header),
                    raw_input=raw,
                ).SerializeToString()

        method = client.channel.stream_stream(f"{SERVICE}/StreamInfer")
        return [messages.read("InferResponse", data) for data in method(sent(), timeout=60)]

    return run


@pytest.mark.slow
def test_a_thousand_requests_keep_their_order_and_ids(stream):
    models = ("flat", "last", "none", "simple")
    asked = []
    for index in range(1000):
        model = models[index % 4]
        value = np.int32([index]).tobytes()
        if model == "simple":
            header = ONE + ' input { name: "INPUT1" }'
            asked.append((model, f"{header} id: {index + 1}", value * 16, value * 16))
        else:
            raw = value * 4 if model == "flat" else value
            asked.append((model, f"{ONE} id: {index + 1}", raw))
    answers = stream(asked)
    assert [answer.meta_data.id for answer in answers] == list(range(1, 1001))
    for index, answer in enumerate(answers):
        if models[index % 4] == "none":
            assert CODES[answer.request_status.code] == "UNAVAILABLE"
            continue
        [raw] = answer.raw_output
        expected = 2 * index if models[index % 4] == "simple" else index
        assert int.from_bytes(raw[:4], "little") == expected
    numbers = [answer.request_status.request_id for answer in answers]
    assert numbers == sorted(numbers)


def test_a_slow_answer_is_waited_for_by_those_behind_it(stream):
    raw = [np.full(4, value, np.float32).tobytes() for value in range(6)]
    models = ["slow", "flat", "flat", "slow", "flat", "flat"]
    answers = stream((model, ONE, data) for model, data in zip(models, raw, strict=True))
    assert [list(answer.raw_output) for answer in answers] == [[data] for data in raw]
    assert [answer.meta_data.model_name for answer in answers] == models


def test_an_answer_comes_before_the_stream_ends(client, messages):
    import queue

    waiting = queue.Queue()
    method = client.channel.stream_stream(f"{SERVICE}/StreamInfer")
    request = messages(
        "InferRequest",
        model_name="last",
        model_version=-1,
        meta_data=messages.read("InferRequestHeader", ONE),
        raw_input=[b"\1\0\0\0"],
    ).SerializeToString()
    answers = method(iter(waiting.get, None), timeout=30)
    for _ in range(3):
        waiting.put(request)
        assert messages.read("InferResponse", next(answers)).raw_output == [b"\1\0\0\0"]
    waiting.put(b"\xff\xff")
    broken = messages.read("InferResponse", next(answers))
    assert CODES[broken.request_status.code] == "INVALID_ARG"
    waiting.put(request)
    assert messages.read("InferResponse", next(answers)).raw_output == [b"\1\0\0\0"]
    waiting.put(None)
    assert list(answers) == []
    assert answers.code() is grpc.StatusCode.OK


def test_sequences_of_one_stream(stream):
    asked = []
    for flags in (1, 0, 2):
        for number in (11, 12):
            header = f"{ONE} correlation_id: {number} flags: {flags} id: {number * 10 + flags}"
            asked.append(("sequence", header, np.int32([number]).tobytes()))
    asked.append(("sequence", f"{ONE} correlation_id: 13 id: 1", b"\0" * 4))
    *good, bad = stream(asked)
    assert [answer.request_status.code for answer in good] == [1] * 6
    assert [answer.meta_data.id for answer in good] == [111, 121, 110, 120, 112, 122]
    assert CODES[bad.request_status.code] == "INVALID_ARG"


def test_a_decoupled_model_in_a_stream_is_refused(stream):
    header = 'batch_size: 1 input { name: "IN" dims: 1 } id: 4'
    [answer] = stream([("repeat", header, b"\0" * 4)])
    assert CODES[answer.request_status.code] == "UNSUPPORTED"
    assert answer.meta_data.id == 4
