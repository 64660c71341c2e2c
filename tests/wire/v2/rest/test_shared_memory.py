import base64
import json

import pytest

from inferd.core.metadata import CudaRegionStatus, SystemRegionStatus
from inferd.errors import InvalidRequest
from inferd.wire.shared_memory import CudaRegistration, SystemRegistration
from inferd.wire.v2.rest import shared_memory as wire


def test_registrations_are_read():
    system = wire.decode_system_registration
    assert system(b'{"key":"/k","byte_size":64}', "r") == SystemRegistration("r", "/k", 0, 64)
    everything = b'{"key":"/k","byte_size":64,"offset":8,"other":[]}'
    assert system(everything, "r") == SystemRegistration("r", "/k", 8, 64)
    handle = base64.b64encode(bytes(range(64))).decode()
    body = json.dumps({"raw_handle": {"b64": handle}, "device_id": 1, "byte_size": 64})
    cuda = wire.decode_cuda_registration(body.encode(), "g")
    assert cuda == CudaRegistration("g", bytes(range(64)), 1, 64)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "a shared memory registration"),
        (b"{", "a shared memory registration"),
        (b"[]", "a shared memory registration"),
        (b"\xff", "a shared memory registration"),
        (b"[" * 50_000, "a shared memory registration"),
        (b" " * 70_000, "has 70000 bytes"),
        (b'{"byte_size":64}', "request has no 'key' field"),
        (b'{"key":"k"}', "request has no 'byte_size' field"),
        (b'{"key":7,"byte_size":64}', "key"),
        (b'{"key":"k","byte_size":-1}', "byte_size"),
        (b'{"key":"k","byte_size":64.5}', "byte_size"),
        (b'{"key":"k","byte_size":"64"}', "byte_size"),
        (b'{"key":"k","byte_size":true}', "byte_size"),
        (b'{"key":"k","byte_size":64,"offset":-1}', "offset"),
        (b'{"key":"k","byte_size":64,"offset":9223372036854775808}', "offset"),
        (b'{"key":"k","byte_size":64,"offset":1e999}', "offset"),
    ],
)
def test_a_registration_that_cannot_be_is_refused(body, text):
    with pytest.raises(InvalidRequest, match=text):
        wire.decode_system_registration(body, "r")


@pytest.mark.parametrize("handle", ['"x"', "{}", '{"b64":7}', '{"b64":"a"}', '{"b64":"ü==="}'])
def test_a_handle_that_is_no_base64_is_refused(handle):
    body = f'{{"raw_handle":{handle},"device_id":0,"byte_size":1}}'.encode()
    with pytest.raises(InvalidRequest, match=r"raw_handle|registration"):
        wire.decode_cuda_registration(body, "g")


def test_statuses_are_lists():
    system = wire.encode_status([SystemRegionStatus("r", "/k", 1, 2)])
    assert json.loads(system) == [{"name": "r", "key": "/k", "offset": 1, "byte_size": 2}]
    cuda = wire.encode_status([CudaRegionStatus("g", 1, 2)])
    assert json.loads(cuda) == [{"name": "g", "device_id": 1, "byte_size": 2}]
    assert wire.encode_status([]) == b"[]"
