"""Documents nested without end are refused at every door, and cost neither the stack nor long."""

import json

import grpc
import pytest
from target import OLD_SERVICE, SERVICE, field_of, grpc_request

from inferd.wire.proto import message_class

INVALID_ARG = 5
"""The number that a status of the TensorRT Inference Server has for it."""

DEEP = 200_000
SHALLOW = 20_000
"""As deep as fits where less is read."""
OPEN = {
    "arrays": b"[" * DEEP,
    "objects": b'{"a":' * DEEP,
    "closed arrays": b"[" * DEEP + b"]" * DEEP,
    "inputs": b'{"inputs":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "data": b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":'
    + b"[" * DEEP + b"1" + b"]" * DEEP + b"}]}",
    "parameters": b'{"parameters":{"x":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}}",
    "a short text": b'{"x":' + b"[" * SHALLOW + b"]" * SHALLOW + b"}",
    "any name": b'{"x":' + b"[" * DEEP + b"]" * DEEP + b"}",
}  # fmt: skip
DOORS = [
    *(("HTTP", f"/v2/models/echo/{verb}") for verb in ("infer", "generate", "generate_stream")),
    ("HTTP", "/v2/models/text/infer_stream"),
    ("HTTP", "/v2/repository/index"),
    ("HTTP", "/v2/repository/models/echo/load"),
    ("HTTP", "/v2/repository/models/nobody/unload"),
    ("HTTP", "/v2/logging"),
    ("HTTP", "/v2/trace/setting"),
    ("HTTP", "/v2/models/echo/trace/setting"),
    ("HTTP", "/v2/systemsharedmemory/region/x/register"),
    ("HTTP", "/v2/cudasharedmemory/region/x/register"),
    *(("HTTP", "/ui/unlock"), ("HTTP", "/ui/act")),
    ("SageMaker", "/invocations"),
    ("Vertex AI", "/predict"),
]


@pytest.mark.parametrize(("port", "path"), DOORS, ids=[path for _, path in DOORS])
def test_json_nested_without_end_is_refused(target, port, path):
    for name, body in OPEN.items():
        status, answer = target.ask("POST", path, body, port=port)
        assert 400 <= status < 500, (name, status, answer[:500])
        assert len(answer) < 2000


def test_a_configuration_nested_without_end_is_refused(target):
    for text in ("[" * DEEP, '{"a":' * DEEP, '{"parameters":' * DEEP + "1" + "}" * DEEP):
        body = json.dumps({"parameters": {"config": text}})
        status, answer = target.ask("POST", "/v2/repository/models/new/load", body)
        assert 400 <= status < 500, answer[:500]
        config = field_of(1, b"config") + field_of(2, field_of(3, text.encode()))
        message = field_of(2, b"new") + field_of(3, config)
        code, answer = target.call(SERVICE + "RepositoryModelLoad", message)
        assert code is grpc.StatusCode.INVALID_ARGUMENT, answer


@pytest.mark.parametrize("opening", ["{ ", "input { ", "input < ", "input { raw { ", "["])
def test_a_header_of_the_old_api_nested_without_end_is_refused(target, opening):
    text = opening * (60_000 // len(opening))
    status, _ = target.ask("POST", "/api/infer/echo", b"", {"NV-InferRequest": text})
    assert status == 400


def test_groups_nested_in_a_message_are_refused(target):
    group, end = b"\xa3\x06", b"\xa4\x06"  # field 100, of a kind that holds others
    for nested in (group * DEEP, group * DEEP + end * DEEP):
        for method, message in (
            (SERVICE + "ModelInfer", grpc_request(b"\1\1", bytes(4)) + nested),
            (SERVICE + "ModelInfer", field_of(5, nested)),
            (SERVICE + "RepositoryModelLoad", field_of(2, b"echo") + nested),
            (SERVICE + "RepositoryIndex", nested),
            (OLD_SERVICE + "Infer", nested),
            (OLD_SERVICE + "Status", nested),
        ):
            code, answer = target.call(method, message)
            if method.startswith(OLD_SERVICE):  # it tells of errors inside its answer
                assert code is grpc.StatusCode.OK
                kind = message_class(f"nvidia.inferenceserver.{method.rpartition('/')[2]}Response")
                assert kind.FromString(answer).request_status.code == INVALID_ARG
            else:
                assert code is grpc.StatusCode.INVALID_ARGUMENT, method
