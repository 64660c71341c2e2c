"""The system shared memory extension: a region's life, and a server that has none to offer."""

import json
import os
import struct
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import pytest
from conformance.bodies import INPUT0_BYTES, INPUT1_BYTES, OUTPUT0_BYTES, OUTPUT1_BYTES
from conformance.checks import check_ok, check_refused, values
from conformance.points import point
from conformance.rest import Response, Rest

HOME = "/v2/systemsharedmemory"
REGION = f"{HOME}/region/conformance"
LIFE = point(117, "SHOULD", "shared memory: register, status, infer, unregister, in the region")


@pytest.fixture
def memory(rest: Rest) -> Iterator[SharedMemory]:
    """64 bytes with the inputs of model m in front, and nothing registered afterwards."""
    if rest.host not in ("127.0.0.1", "localhost", "::1"):
        pytest.skip("needs a server on this machine")
    made = SharedMemory(f"conformance_{os.getpid()}", create=True, size=64)
    made.buf[:32] = INPUT0_BYTES + INPUT1_BYTES
    yield made
    rest.request("POST", f"{REGION}/unregister")
    made.close()
    made.unlink()


def register(rest: Rest, **fields: Any) -> Response:
    """Register a region."""
    return rest.request("POST", f"{REGION}/register", json.dumps(fields).encode())


def at(offset: int, **fields: Any) -> dict[str, Any]:
    """Return the parameters of a tensor of 16 bytes in the region."""
    parameters = {"shared_memory_region": "conformance", "shared_memory_byte_size": 16, **fields}
    return parameters | ({"shared_memory_offset": offset} if offset else {})


def body(**fields: Any) -> dict[str, Any]:
    """Return a request to model m whose tensors are all in the region."""
    inputs = [
        {"name": f"INPUT{i}", "shape": [1, 4], "datatype": "FP32", "parameters": at(16 * i)}
        for i in (0, 1)
    ]
    outputs = [{"name": f"OUTPUT{i}", "parameters": at(32 + 16 * i)} for i in (0, 1)]
    return {"inputs": inputs, "outputs": outputs, **fields}


@LIFE
def test_a_region_is_registered_told_and_forgotten(rest: Rest, memory: SharedMemory):
    entry = {"name": "conformance", "key": f"/{memory.name}", "offset": 0, "byte_size": 64}
    assert register(rest, key=f"/{memory.name}", byte_size=64).status == 200
    for path in (f"{HOME}/status", f"{REGION}/status"):
        told = rest.get(path)
        assert told.status == 200 and entry in told.json()
    for path in (f"{REGION}/unregister", f"{REGION}/unregister"):  # an unknown name is no mistake
        assert rest.request("POST", path).status == 200
    assert entry not in rest.get(f"{HOME}/status").json()
    check_refused(rest.get(f"{REGION}/status"), 404, naming="conformance")


@LIFE
def test_tensors_are_read_and_written_in_the_region(rest: Rest, memory: SharedMemory):
    assert register(rest, key=f"/{memory.name}", byte_size=64).status == 200
    answer = check_ok(rest.infer("m", body()))
    assert answer["outputs"] == [
        {"name": name, "datatype": "FP32", "shape": [1, 4]} for name in ("OUTPUT0", "OUTPUT1")
    ]
    assert bytes(memory.buf[32:64]) == OUTPUT0_BYTES + OUTPUT1_BYTES


@LIFE
def test_a_region_may_begin_inside_its_object(rest: Rest, memory: SharedMemory):
    memory.buf[32:48] = struct.pack("<4f", 1, 1, 1, 1)
    assert register(rest, key=f"/{memory.name}", offset=16, byte_size=48).status == 200
    told = body(outputs=[{"name": "OUTPUT0"}])
    assert values(rest.infer("m", told), "OUTPUT0") == [2, 2, 2, 2]


@LIFE
@pytest.mark.parametrize("fields", [{"key": "/x"}, {"byte_size": 64}, {}])
def test_a_registration_needs_a_key_and_a_size(rest: Rest, fields: dict[str, Any]):
    check_refused(register(rest, **fields))


@LIFE
def test_a_name_is_given_once(rest: Rest, memory: SharedMemory):
    assert register(rest, key=f"/{memory.name}", byte_size=64).status == 200
    check_refused(register(rest, key=f"/{memory.name}", byte_size=32), naming="conformance")


@LIFE
@pytest.mark.parametrize("parameters", [at(56), at(0, shared_memory_byte_size=None), at(2**62)])
def test_what_is_not_inside_the_region_is_refused(
    rest: Rest, memory: SharedMemory, parameters: dict[str, Any]
):
    assert register(rest, key=f"/{memory.name}", byte_size=64).status == 200
    request = body()
    given = {key: value for key, value in parameters.items() if value is not None}
    request["inputs"][0]["parameters"] = given
    check_refused(rest.infer("m", request), naming="conformance")
    assert bytes(memory.buf[32:64]) == bytes(32)


@LIFE
def test_an_unknown_region_is_not_found(rest: Rest, memory: SharedMemory):
    check_refused(rest.infer("m", body()), 404, naming="conformance")


@point(118, "SHOULD", "shared memory turned off: registering is 501")
@pytest.mark.parametrize("kind", ["system", "cuda"])
def test_a_server_without_shared_memory_says_so(unshared: Rest, kind: str):
    fields = {"key": "/conformance", "byte_size": 64, "device_id": 0, "raw_handle": {"b64": ""}}
    path = f"/v2/{kind}sharedmemory/region/conformance/register"
    check_refused(unshared.request("POST", path, json.dumps(fields).encode()), 501)
    path = f"/v2/{kind}sharedmemory/unregister"
    check_refused(unshared.request("POST", path), 501)
