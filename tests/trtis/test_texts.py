"""Words of the old API's errors that programs written for its server compare, over both protocols.

Each row is a request, as text of its header and raw inputs, and what the error begins with: over
HTTP, and over gRPC where that differs.
"""

import grpc
import pytest

SERVICE = "/nvidia.inferenceserver.GRPCService"
ONE = 'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" }'
TWO = 'batch_size: 1 input { name: "INPUT0" } input { name: "INPUT1" } output { name: "OUTPUT0" }'
STEP = f"{ONE} correlation_id: 5"
SIZED = 'batch_size: 1 input { name: "INPUT0" batch_byte_size: %d } output { name: "OUTPUT0" }'
SHARED = ONE.replace('"INPUT0"', '"INPUT0" shared_memory { name: "%s" byte_size: 60 }')


def batch(size, of=ONE):
    return of.replace("batch_size: 1", f"batch_size: {size}")


REFUSED = [
    ("none", ONE, [b""], "Request for unknown model: 'none' is not found"),
    ("none", ONE, [b""], "...Inference request for unknown model 'none'"),
    ("flat/9", ONE, [b""], "Request for unknown model: 'flat' version 9 is not found"),
    ("pair", batch(0), [], "inference request batch-size must be >= 1 for 'pair'"),
    ("flat", batch(0), [], "inference request batch-size must be >= 1 for 'flat'"),
    ("pair", batch(9), [], "inference request batch-size must be <= 8 for 'pair'"),
    ("flat", batch(2), [], "inference request batch-size must be <= 0 for 'flat'"),
    ("pair", ONE, [bytes(64)], "expected 2 inputs but got 1 inputs for model 'pair'"),
    ("flat", TWO, [bytes(16)] * 2, "expected 1 inputs but got 2 inputs for model 'flat'"),
    (
        "flat", ONE.replace("INPUT0", "X"), [bytes(16)],
        "unexpected inference input 'X' for model 'flat'",
    ),
    (
        "flat", ONE.replace("OUTPUT0", "Y"), [bytes(16)],
        "unexpected inference output 'Y' for model 'flat'",
    ),
    ("pair", TWO.replace("INPUT1", "INPUT0"), [bytes(64)] * 2,
     "input 'INPUT0' already exists in request"),
    ("flat", f'{ONE} output {{ name: "OUTPUT0" }}', [bytes(16)],
     "output 'OUTPUT0' already requested"),
    (
        "flat", ONE.replace('"INPUT0"', '"INPUT0" dims: 2 dims: 2'), [bytes(16)],
        "unexpected shape for input 'INPUT0' for model 'flat'. Expected [4], got [2,2]",
    ),
    (
        "free", ONE, [bytes(8)],
        "model supports variable-size for input 'INPUT0', request must specify input shape for "
        "model 'free'",
    ),
    (
        "flat", SIZED % 12, [bytes(16)],
        "specific batch-byte-size for input 'INPUT0' does not match expected byte-size calculated "
        "from shape and datatype for model 'flat'",
    ),
    (
        "flat", ONE, [bytes(12)], "unexpected size for input 'INPUT0', expecting 4 bytes for model "
        "'flat'", "unexpected size 12 for input 'INPUT0', expecting 16 for model 'flat'",
    ),
    (
        "flat", ONE, [], "unexpected size for input 'INPUT0', expecting 16 bytes for model 'flat'",
        "expected tensor data for at least 0 inputs but got only 0 sets of data for model 'flat'",
    ),
    (
        "pair", TWO, [bytes(64)], "unexpected size for input 'INPUT1', expecting 64 bytes for "
        "model 'pair'", "expected tensor data for at least 1 inputs but got only 1 sets of data "
        "for model 'pair'",
    ),
    ("flat", ONE, [bytes(16), b"1"], "unexpected additional input data for model 'flat'"),
    (
        "words", SIZED % 5, [b"\1\0\0\0a"],
        "expected 2 string elements for inference input 'INPUT0' for model 'words', got 1",
    ),
    (
        "words", SIZED % 12, [bytes(12)],
        "unexpected number of string elements 3 for inference input 'INPUT0' for model 'words', "
        "expecting 2",
    ),
    (
        "words", SIZED % 10, [b"\1\0\0\0a\xff\0\0\0b"],
        "incomplete string data for inference input 'INPUT0', expecting string of length 255 but "
        "only 1 bytes available",
    ),
    (
        "halves", ONE.replace('"OUTPUT0"', '"OUTPUT0" cls { count: 1 }'), [bytes(8)],
        "class result not available for output 'OUTPUT0' due to unsupported type 'TYPE_FP16'",
    ),
    (
        "words", (SIZED % 8).replace('"OUTPUT0"', '"OUTPUT0" cls { count: 1 }'), [bytes(8)],
        "class result not available for output 'OUTPUT0' due to unsupported type 'TYPE_STRING'",
    ),
    ("sequence", ONE, [bytes(4)],
     "inference request to model 'sequence' must specify a non-zero correlation ID"),
    (
        "sequence", STEP, [bytes(4)],
        "inference request for sequence 5 to model 'sequence' must specify the START flag on the "
        "first request of the sequence",
    ),
    (
        "sequence", batch(2, STEP), [bytes(8)],
        "inference request to model 'sequence' must specify batch-size 1 due to requirements of "
        "sequence batcher",
    ),
    ("flat", SHARED % "none", [], "Unable to find shared memory region: 'none'"),
    (
        "flat", SHARED % "r", [],
        "unexpected shared-memory size 60 for input 'INPUT0', expecting 16 for model 'flat'",
    ),
]  # fmt: skip


@pytest.fixture
def call(server, messages):
    """call(rpc, request) sends a message over gRPC, and returns the answer."""
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:

        def send(rpc, request):
            method = channel.unary_unary(f"{SERVICE}/{rpc}")
            answer = method(request.SerializeToString(), timeout=30)
            return messages.read(f"{rpc}Response", answer)

        yield send


@pytest.fixture
def region(http_client, shared):
    """A registered region "r"."""
    assert http_client.post(f"/api/sharedmemorycontrol/register/r/{shared().key}/0/64").code == 200
    yield
    assert http_client.post("/api/sharedmemorycontrol/unregister/r").code == 200


def check(told, expected):
    """Check that a text begins with `expected`, or holds what follows three dots."""
    if expected.startswith("..."):
        assert expected[3:] in told
    else:
        assert told.startswith(expected), told


@pytest.mark.parametrize("row", REFUSED, ids=[f"{row[0]}-{row[3]}" for row in REFUSED])
def test_an_inference_is_refused_in_known_words(http_client, call, messages, region, row):
    model, header, raw, over_http, *over_grpc = row
    told = http_client.infer(model, header, b"".join(raw))
    assert told.code == 400
    check(told.status.msg, over_http)
    name, _, version = model.partition("/")
    request = messages(
        "InferRequest",
        model_name=name,
        model_version=int(version or -1),
        meta_data=messages.read("InferRequestHeader", header),
        raw_input=raw,
    )
    check(call("Infer", request).request_status.msg, *over_grpc or [over_http])


def test_a_body_names_the_header_that_is_missing(http_client):
    answer = http_client.post("/api/infer/flat", bytes(16))
    assert answer.code == 400
    assert answer.body.startswith(b"The request header should contain 'NV-InferRequest'")
    assert answer.status.msg == answer.body.decode()
    assert answer.headers["content-type"].startswith("text/plain")
    assert http_client.infer("flat", "nonsense").body == b""


@pytest.mark.parametrize(
    "row",
    [
        ("Status", 'model_name: "none"', "GET /api/status/none",
         "no status available for unknown model 'none'"),
        ("Health", 'mode: "other"', "GET /api/health/other", "unknown health mode 'other'"),
        ("Profile", 'cmd: "start"', "GET /api/profile?cmd=start", "Profile API not enabled"),
        ("Profile", 'cmd: "x"', "GET /api/profile?cmd=x", "Unknown profile command 'x'"),
        ("ModelControl", 'model_name: "flat" type: LOAD', "POST /api/modelcontrol/load/flat",
         "explicit model load / unload is not allowed if polling is enabled"),
        ("Repository", "", "", "request type is not specified"),
        ("SharedMemoryControl", "", "", "unknown sharedmemorycontrol request type"),
        ("SharedMemoryControl", 'register { name: "q" byte_size: 4 }', "",
         "failed to register shared memory region: 'q', improperly formed request."),
        ("SharedMemoryControl",
         'register { name: "q" byte_size: 4 system_shared_memory { shared_memory_key: "/none" } }',
         "POST /api/sharedmemorycontrol/register/q//none/0/4",
         "Unable to open shared memory region: '/none'"),
    ],
)  # fmt: skip
def test_other_calls_are_refused_in_known_words(http_client, call, messages, row):
    rpc, text, path, told = row
    request = messages.read(f"{rpc}Request", text)
    check(call(rpc, request).request_status.msg, told)
    if path:
        check(http_client.ask(*path.split()).status.msg, told)


def test_a_region_is_not_registered_twice(http_client, region, shared):
    answer = http_client.post(f"/api/sharedmemorycontrol/register/r/{shared().key}/0/64")
    check(answer.status.msg, "shared memory region 'r' already in manager")


def test_a_region_of_a_gpu_where_there_is_none(http_client):
    answer = http_client.post("/api/sharedmemorycontrol/cudaregister/g/64/0", bytes(64))
    check(
        answer.status.msg, "failed to register CUDA shared memory region: 'g', GPUs not supported"
    )


def test_what_does_not_load_failed_to_load(serve, connect, tmp_path):
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "model.onnx").write_bytes(b"no model")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.pbtxt").write_text('backend: "identity"')
    with serve(model_repository=(str(tmp_path),), model_control_mode="explicit") as server:
        client = connect(server)
        told = client.post("/api/modelcontrol/load/none").status.msg
        check(told, "failed to load 'none', failed to poll from model repository")
        told = client.post("/api/modelcontrol/load/broken").status.msg
        check(told, "failed to load 'broken', versions that are not available: 1: load failed for ")
        told = client.post("/api/modelcontrol/load/bare").status.msg
        check(told, "failed to load 'bare', no version is available: load failed for ")
