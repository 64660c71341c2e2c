"""Sizes, shapes, counts and offsets that a sender names, at every door: wrapped, negative, huge."""

import json
import struct

import grpc
import pytest
from target import MIB, OLD_SERVICE, SERVICE, field_of, grpc_request, varint

from inferd.wire.proto import message_class

SHAPES = [
    *([2**32, 2**32], [2**63 - 1, 2], [2**62, 4], [2**61, 2**3, 1], [2**40, 0], [0, 2**62]),
    *([-2, 1], [-1, -1], [1, -4], [-(2**63), 0], [2**63, 1], [2**64 + 1, 1], [10**400, 1]),
    *([1] * 70, [1] * 100_000, [2] * 64 + [1], [1, 2**31], [1, 2**40]),
]
BATCHES = [0, -1, 2**31, 2**32 + 1, 2**63, 2**64 - 1, 2**64 + 1]
SIZES = [-1, -(2**63), 2**31, 2**32 + 4, 2**63 - 1, 2**64 + 4, 10**30, 1.5, "4", True, [4], {}]
SPARE = 300 * MIB
"""How much memory the server may take for all that it refuses: what was sent, read a few times."""


def tensor(shape, **more):
    return {"name": "IN", "datatype": "FP32", "shape": shape} | more


@pytest.fixture(autouse=True)
def _memory(target):
    """Nothing is allocated that was only named."""
    before = target.resident_bytes()
    yield
    assert target.resident_bytes() - before < SPARE


def refuse(target, path, body, headers=None, port="HTTP"):
    status, answer = target.ask("POST", path, body, headers, port)
    assert 400 <= status < 500, (status, answer[:500])
    assert len(answer) < 4000
    return answer


def split(head, tail):
    """Return a body of JSON and bytes, and the header that says where they meet."""
    text = json.dumps(head).encode()
    return text + tail, {"Inference-Header-Content-Length": str(len(text))}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape)[:30])
def test_a_shape_that_its_data_do_not_fill_is_refused_at_every_door(target, shape):
    one = json.dumps({"inputs": [tensor(shape, data=[1.0] * 4)]})
    refuse(target, "/v2/models/echo/infer", one)
    refuse(target, "/invocations", one, port="SageMaker")
    refuse(target, "/predict", one, port="Vertex AI")
    refuse(target, "/v2/models/echo/generate", one)
    refuse(target, "/v2/models/echo/infer_stream", one)
    body, headers = split(
        {"inputs": [tensor(shape, parameters={"binary_data_size": 16})]}, bytes(16)
    )
    refuse(target, "/v2/models/echo/infer", body, headers)
    if all(-(2**63) <= dim < 2**63 for dim in shape):
        message = grpc_request(b"".join(map(varint, shape)), bytes(16))
        code, _ = target.call(SERVICE + "ModelInfer", message)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        code, answers = target.stream(SERVICE + "ModelStreamInfer", [message])
        assert code is grpc.StatusCode.OK
        [answer] = map(message_class("inference.ModelStreamInferResponse").FromString, answers)
        assert answer.error_message


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_size_of_binary_data_that_cannot_be_is_refused(target, size):
    for parameter in ("binary_data_size", "shared_memory_byte_size"):
        given = {parameter: size}
        if parameter != "binary_data_size":
            given |= {"shared_memory_region": "none", "shared_memory_offset": 0}
        body, headers = split({"inputs": [tensor([1, 1], parameters=given)]}, bytes(4))
        for port, path in (("HTTP", "/v2/models/echo/infer"), ("HTTP", "/v2/models/echo/generate")):
            status, _ = target.ask("POST", path, body, headers, port)
            assert 400 <= status < 500


@pytest.mark.parametrize(
    "length", ["-1", "+4", "4.0", "0x4", "99999999999999999999999999", "4 4", "\uff14", "", "1e3"]
)
def test_a_length_of_the_json_that_cannot_be_is_refused(target, length):
    body, _ = split({"inputs": [tensor([1, 1], parameters={"binary_data_size": 4})]}, bytes(4))
    for verb in ("infer", "generate", "infer_stream"):
        header = {"Inference-Header-Content-Length": length.encode()}
        refuse(target, f"/v2/models/echo/{verb}", body, header)
    for port, path, kind in (
        ("SageMaker", "/invocations", "sagemaker"),
        ("Vertex AI", "/predict", "vertex-ai"),
    ):
        given = f"application/vnd.{kind}-triton.binary+json;json-header-size={length}".encode()
        refuse(target, path, body, {"Content-Type": given}, port)


@pytest.mark.parametrize("batch", BATCHES)
def test_a_batch_size_of_the_old_api_that_cannot_be_is_refused(target, batch):
    header = f'batch_size: {batch} input {{ name: "IN" dims: [ 1 ] }} output {{ name: "OUT" }}'
    refuse(target, "/api/infer/echo", struct.pack("<f", 1), {"NV-InferRequest": header})


@pytest.mark.parametrize(
    "fields",
    [
        "dims: [ 4294967296, 4294967296 ]",
        "dims: [ 9223372036854775807, 2 ]",
        "dims: [ -1 ]",
        "dims: [ -4611686018427387904, -4 ]",
        "dims: [ 0, 4611686018427387904 ]",
        "dims: [ 1 ] batch_byte_size: 18446744073709551615",
        "dims: [ 1 ] batch_byte_size: 4294967300",
    ],
)
def test_dims_of_the_old_api_that_wrap_are_refused(target, fields):
    for batch in (1, 8):
        header = f'batch_size: {batch} input {{ name: "IN" {fields} }} output {{ name: "OUT" }}'
        refuse(target, "/api/infer/echo", bytes(4 * batch), {"NV-InferRequest": header})


def test_a_batch_that_wraps_over_grpc_is_refused_in_the_old_api(target):
    request, response = (
        message_class(f"nvidia.inferenceserver.{kind}")
        for kind in ("InferRequest", "InferResponse")
    )
    for batch, dims, size in (
        (2**32 - 1, [2**32 - 1], 0),
        (1, [2**62, 4], 0),
        (0, [1], 0),
        (1, [-1], 0),
        (1, [1], 2**64 - 1),
    ):
        message = request(model_name="echo", model_version=-1, raw_input=[bytes(4)])
        message.meta_data.batch_size = batch
        message.meta_data.input.add(name="IN", dims=dims, batch_byte_size=size)
        message.meta_data.output.add(name="OUT")
        code, answer = target.call(OLD_SERVICE + "Infer", message.SerializeToString())
        assert code is grpc.StatusCode.OK
        assert response.FromString(answer).request_status.code != 1  # SUCCESS


@pytest.mark.parametrize("top_k", [2**31, 2**63 - 1, 2**63, 10**30, -1, -(2**63), 1.5, "3"])
def test_more_classes_than_there_are_cost_nothing(target, top_k):
    output = {"name": "OUT", "parameters": {"classification": top_k}}
    body = json.dumps({"inputs": [tensor([8, 1000], data=[0.5] * 8000)], "outputs": [output]})
    status, answer = target.ask("POST", "/v2/models/echo/infer", body)
    assert status in (200, 400)
    assert len(answer) < MIB
    wanted = f'output {{ name: "OUT" cls {{ count: {top_k} }} }}'
    header = f'batch_size: 1 input {{ name: "IN" dims: [ 1 ] }} {wanted}'
    status, _ = target.ask("POST", "/api/infer/echo", bytes(4), {"NV-InferRequest": header})
    assert status in (200, 400)


def test_outputs_that_are_requested_without_end_are_refused(target):
    for names in (["OUT"] * 200_000, [f"O{number}" for number in range(200_000)]):
        outputs = [{"name": name} for name in names]
        body = json.dumps({"inputs": [tensor([1, 1], data=[1])], "outputs": outputs})
        refuse(target, "/v2/models/echo/infer", body)
        refuse(target, "/invocations", body, port="SageMaker")
        more = b"".join(field_of(6, field_of(1, name.encode())) for name in names)
        code, _ = target.call(SERVICE + "ModelInfer", grpc_request(b"\1\1", bytes(4), more=more))
        assert code is grpc.StatusCode.INVALID_ARGUMENT


def test_fields_without_end_are_refused_and_cost_little(target):
    """Two bytes of a message were some hundred in memory, and held up the event loop."""
    size = target.resident_bytes()
    for more in (b"\x3a\0", b"\x2a\0", b"\x32\0", b"\x22\0", b"\x78\0", b"\x78\0\x3a\0"):
        message = grpc_request(b"\1\1", bytes(4)) + more * (8 * MIB // len(more))
        code, _ = target.call(SERVICE + "ModelInfer", message)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        code, [answer] = target.stream(SERVICE + "ModelStreamInfer", [message])
        assert code is grpc.StatusCode.OK
        assert b"more than 65536 fields" in answer
        code, answer = target.call(OLD_SERVICE + "Infer", message)
        assert code is grpc.StatusCode.OK
        assert b"fields" in answer
    assert target.resident_bytes() - size < 100 * MIB


def test_members_that_mean_nothing_are_not_looked_for_one_by_one(target):
    """Ten megabytes of them took minutes."""
    members = {f"a{number}": 1 for number in range(700_000)}
    for request in (
        {"inputs": [tensor([1, 1], data=[1]) | members]},
        {"inputs": [tensor([1, 1], data=[1], parameters=members)]},
        {
            "inputs": [tensor([1, 1], data=[1])],
            "outputs": [{"name": "OUT", "parameters": members}],
        },
        {"inputs": [tensor([1, 1], data=[1])], "outputs": [{"name": "OUT"} | members]},
    ):
        status, answer = target.ask("POST", "/v2/models/echo/infer", json.dumps(request))
        assert status == 200, answer


def test_a_place_of_an_output_that_wraps_is_refused(target, shared):
    memory = shared(4096)
    register = {"key": memory.key, "offset": 0, "byte_size": 4096}
    path = "/v2/systemsharedmemory/region/sizes"
    assert target.ask("POST", f"{path}/register", json.dumps(register))[0] == 200
    try:
        for offset, size in (
            *((4095, 4), (2**63 - 1, 4), (2**64 - 4, 8), (-4, 8), (0, 2**63), (4096, 1), (1, 4096)),
            (2**64, 4),
        ):
            place = {"shared_memory_region": "sizes", "shared_memory_byte_size": size}
            place["shared_memory_offset"] = offset
            for request in (
                {"inputs": [tensor([1, 1], parameters=place)]},
                {
                    "inputs": [tensor([1, 1], data=[1])],
                    "outputs": [{"name": "OUT", "parameters": place}],
                },
            ):
                refuse(target, "/v2/models/echo/infer", json.dumps(request))
                refuse(target, "/predict", json.dumps(request), port="Vertex AI")
            if max(abs(offset), abs(size)) < 2**63:
                given = b"".join(
                    field_of(4, field_of(1, name.encode()) + field_of(2, value))
                    for name, value in (
                        ("shared_memory_region", field_of(3, b"sizes")),
                        ("shared_memory_offset", field_of(2, offset)),
                        ("shared_memory_byte_size", field_of(2, size)),
                    )
                )
                message = grpc_request(b"\1\1", None, of_input=given)
                code, _ = target.call(SERVICE + "ModelInfer", message)
                assert code is grpc.StatusCode.INVALID_ARGUMENT
        for offset, size in (
            (2**63, 1),
            (2**64 - 1, 2),
            (1, 2**64 - 1),
            (0, 0),
            (0, 4097),
            (-1, 1),
        ):
            wrong = register | {"offset": offset, "byte_size": size}
            other = "/v2/systemsharedmemory/region/other/register"
            refuse(target, other, json.dumps(wrong))
    finally:
        assert target.ask("POST", f"{path}/unregister")[0] == 200


def test_numbers_that_could_divide_by_zero_are_refused_or_taken(target):
    for setting, value in (
        *(("trace_rate", "0"), ("trace_rate", "-1"), ("trace_rate", str(2**64))),
        *(("trace_count", "-2"), ("log_frequency", "-1"), ("log_frequency", str(2**40))),
    ):
        body = json.dumps({setting: value})
        for path in ("/v2/trace/setting", "/v2/models/echo/trace/setting"):
            status, _ = target.ask("POST", path, body)
            assert status in (200, 400)
            target.check_sound()
            reset = json.dumps({setting: None})
            assert target.ask("POST", path, reset)[0] == 200
    for parameter in ("priority", "timeout", "sequence_id"):
        for value in (0, -1, 2**64, 2**63, 1.5):
            request = {"inputs": [tensor([1, 1], data=[1])], "parameters": {parameter: value}}
            status, _ = target.ask("POST", "/v2/models/echo/infer", json.dumps(request))
            assert status in (200, 400)
