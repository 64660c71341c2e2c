"""Regions of shared memory between V2 and the old API, over HTTP and gRPC, on both transports."""

import json

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as v2

VALUES = np.arange(1, 5, dtype=np.float32)
OLD, NEW = "/nvidia.inferenceserver.GRPCService", "/inference.GRPCInferenceService"
MEMORY = "/api/sharedmemorycontrol"
SUCCESS, INTERNAL, NOT_FOUND, INVALID_ARG, ALREADY_EXISTS = 1, 3, 4, 5, 8
HEADER = (
    'batch_size: 1 input { name: "INPUT0" shared_memory { name: "r" byte_size: 16 } } '
    'output { name: "OUTPUT0" shared_memory { name: "r" offset: 64 byte_size: 16 } }'
)
PLACES = [
    {"shared_memory_region": "r", "shared_memory_byte_size": 16},
    {"shared_memory_region": "r", "shared_memory_byte_size": 16, "shared_memory_offset": 64},
]


class Clients:
    """Four ways to ask one server: `http` and `grpc`, in old words and in V2's."""

    def __init__(self, http_client, channel, messages):
        self.http = http_client
        self.channel = channel
        self.messages = messages

    def old(self, rpc, request):
        """The answer to a message of the old API, or to bytes."""
        data = request if isinstance(request, bytes) else request.SerializeToString()
        answer = self.channel.unary_unary(f"{OLD}/{rpc}")(data, timeout=30)
        return self.messages.read(f"{rpc}Response", answer)

    def new(self, rpc, request):
        """The answer to a message of V2."""
        kind = getattr(v2, f"{rpc}Response")
        return kind.FromString(
            self.channel.unary_unary(f"{NEW}/{rpc}")(request.SerializeToString(), timeout=30)
        )

    # --- register, infer, unregister: what each is called ---

    def register_old_http(self, key):
        assert self.http.post(f"{MEMORY}/register/r/{key}/0/256").code == 200

    def register_new_http(self, key):
        body = json.dumps({"key": key, "offset": 0, "byte_size": 256}).encode()
        assert self.http.post("/v2/systemsharedmemory/region/r/register", body).code == 200

    def register_old_grpc(self, key):
        request = self.messages("SharedMemoryControlRequest")
        request.register.name, request.register.byte_size = "r", 256
        request.register.system_shared_memory.shared_memory_key = key
        assert self.old("SharedMemoryControl", request).request_status.code == SUCCESS

    def register_new_grpc(self, key):
        self.new(
            "SystemSharedMemoryRegister",
            v2.SystemSharedMemoryRegisterRequest(name="r", key=key, byte_size=256),
        )

    def infer_old_http(self):
        assert self.http.infer("flat", HEADER).code == 200

    def infer_new_http(self):
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [4], "parameters": PLACES[0]}
        output = {"name": "OUTPUT0", "parameters": PLACES[1]}
        body = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
        assert self.http.post("/v2/models/flat/infer", body).code == 200

    def infer_old_grpc(self):
        assert self.infer_grpc(HEADER).request_status.code == SUCCESS

    def infer_grpc(self, header):
        request = self.messages("InferRequest", model_name="flat", model_version=-1)
        request.meta_data.CopyFrom(self.messages.read("InferRequestHeader", header))
        return self.old("Infer", request)

    def infer_new_grpc(self):
        request = v2.ModelInferRequest(model_name="flat")
        tensor = request.inputs.add(name="INPUT0", datatype="FP32", shape=[4])
        for one, place in zip((tensor, request.outputs.add(name="OUTPUT0")), PLACES, strict=True):
            for name, value in place.items():
                if isinstance(value, int):
                    one.parameters[name].int64_param = value
                else:
                    one.parameters[name].string_param = value
        self.new("ModelInfer", request)

    def drop_old_http(self):
        assert self.http.post(f"{MEMORY}/unregister/r").code == 200

    def drop_new_http(self):
        assert self.http.post("/v2/systemsharedmemory/region/r/unregister").code == 200

    def drop_old_grpc(self):
        request = self.messages("SharedMemoryControlRequest")
        request.unregister.name = "r"
        assert self.old("SharedMemoryControl", request).request_status.code == SUCCESS

    def drop_new_grpc(self):
        self.new("SystemSharedMemoryUnregister", v2.SystemSharedMemoryUnregisterRequest(name="r"))

    def names(self):
        """What each of the four says is registered."""
        text = self.http.get(f"{MEMORY}/status").body.decode()
        regions = self.messages.read("SharedMemoryStatus", text).shared_memory_region
        old = self.old("SharedMemoryControl", b"\x22\0").shared_memory_status.shared_memory_region
        new = self.new("SystemSharedMemoryStatus", v2.SystemSharedMemoryStatusRequest())
        rest = json.loads(self.http.get("/v2/systemsharedmemory/status").body)
        return [
            [one.name for one in regions],
            [one.name for one in old],
            list(new.regions),
            [one["name"] for one in rest],
        ]


@pytest.fixture(scope="module", params=["own", "grpcio"])
def running(serve, request):
    with serve(grpc_transport=request.param) as server:
        yield server


@pytest.fixture
def clients(running, connect, messages):
    """Clients of a server that forgets its regions afterwards."""
    with grpc.insecure_channel(f"127.0.0.1:{running.grpc_port}") as channel:
        made = Clients(connect(running), channel, messages)
        yield made
        assert made.http.post(f"{MEMORY}/unregisterall").code == 200


WAYS = ("old_http", "new_http", "old_grpc", "new_grpc")


@pytest.mark.parametrize("user", WAYS)
@pytest.mark.parametrize("owner", WAYS)
def test_a_region_of_one_is_a_region_of_all(clients, shared, owner, user):
    given = shared()
    given.write(VALUES)
    getattr(clients, f"register_{owner}")(given.key)
    assert clients.names() == [["r"]] * 4
    getattr(clients, f"infer_{user}")()
    assert given.read(np.float32, 4, 64).tolist() == VALUES.tolist()
    getattr(clients, f"drop_{user}")()
    assert clients.names() == [[]] * 4


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('name: "r" byte_size', 'name: "none" byte_size', NOT_FOUND),
        ('name: "r" offset', 'name: "none" offset', NOT_FOUND),
        ("byte_size: 16 } } o", "byte_size: 12 } } o", INVALID_ARG),
        ("offset: 64 byte_size: 16", "offset: 64 byte_size: 12", INTERNAL),
        ("offset: 64", "offset: 250", INVALID_ARG),
    ],
)
def test_a_wrong_place_over_grpc(clients, shared, old, new, reason):
    assert old in HEADER
    clients.register_old_grpc(shared().key)
    answer = clients.infer_grpc(HEADER.replace(old, new) + " id: 7")
    assert (answer.request_status.code, answer.meta_data.id) == (reason, 7)
    assert answer.request_status.msg
    clients.infer_old_grpc()  # the region is as good as before


@pytest.mark.parametrize("said", [0, 13, 12, 14])
def test_strings_fill_the_memory_they_are_given(clients, shared, strings, said):
    data = strings("ab", "cde")
    given = shared()
    given.write(np.frombuffer(data, np.uint8))
    clients.register_old_grpc(given.key)
    header = (
        f'batch_size: 1 input {{ name: "INPUT0" batch_byte_size: {said} '
        f'shared_memory {{ name: "r" byte_size: {len(data)} }} }} output {{ name: "OUTPUT0" }}'
    )
    answer = clients.http.infer("words", header)
    if said in (0, len(data)):
        assert answer.split()[0] == {"OUTPUT0": data}
    else:
        assert answer.reason == "INVALID_ARG" and "'INPUT0'" in answer.status.msg


def test_a_gpu_s_memory_needs_a_gpu(clients):
    request = clients.messages("SharedMemoryControlRequest")
    request.register.name, request.register.byte_size = "gpu", 64
    request.register.cuda_shared_memory.raw_handle = bytes(64)
    answer = clients.old("SharedMemoryControl", request)
    assert answer.request_status.code == INVALID_ARG and "'gpu'" in answer.request_status.msg
    assert clients.names() == [[]] * 4


# --- versions 1.5 to 1.7, whose messages were others, by hand ---


def field(tag, data):
    return bytes((tag, len(data))) + data


def of_1_6(kind, key=b""):
    """SharedMemoryControlRequest with `type`, and shared_memory_region of name, key, 4, 256."""
    where = field(0x12, key) + b"\x18\x04\x20\x80\x02" if key else b""
    return (bytes((0x08, kind)) if kind else b"") + field(0x12, field(0x0A, b"r") + where)


def of_1_7(key):
    """SharedMemoryControlRequest.Register as 1.7 has it."""
    where = field(0x12, field(0x12, key))
    return field(0x0A, field(0x0A, b"r") + where + b"\x20\x04\x28\x80\x02")


@pytest.mark.parametrize("write", [lambda key: of_1_6(0, key), of_1_7])
def test_a_region_in_an_older_message(clients, shared, write):
    given = shared()
    assert clients.old("SharedMemoryControl", write(given.key.encode())).request_status.code == 1
    [region] = json.loads(clients.http.get("/v2/systemsharedmemory/status").body)
    assert (region["key"], region["offset"], region["byte_size"]) == (given.key, 4, 256)
    again = clients.old("SharedMemoryControl", write(given.key.encode()))
    assert again.request_status.code == ALREADY_EXISTS


@pytest.mark.parametrize("data", [of_1_6(1), b"\x08\x02", of_1_6(2)])
def test_a_region_is_forgotten_by_an_older_message(clients, shared, data):
    clients.register_old_grpc(shared().key)
    assert clients.old("SharedMemoryControl", data).request_status.code == SUCCESS
    assert clients.names() == [[]] * 4


def test_an_older_message_of_no_kind_there_is(clients):
    unknown = 2
    assert clients.old("SharedMemoryControl", of_1_6(9)).request_status.code == unknown
