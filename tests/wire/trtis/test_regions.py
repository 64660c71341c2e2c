"""SharedMemoryControlRequest of every version. Over sockets: tests/trtis/test_shared_memory.py."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.errors import InvalidRequest, UnknownCall
from inferd.wire.proto import message_class
from inferd.wire.trtis.grpc import decode_memory_call

REQUEST = message_class("nvidia.inferenceserver.SharedMemoryControlRequest")
NAMES = st.text(max_size=20)
NUMBERS = st.integers(0, 2**64 - 1)


def system(name, key, offset, size):
    request = REQUEST()
    request.register.name, request.register.byte_size = name, size
    request.register.system_shared_memory.shared_memory_key = key
    request.register.system_shared_memory.offset = offset
    return request


def cuda(name, handle, device, size):
    request = REQUEST()
    request.register.name, request.register.byte_size = name, size
    request.register.cuda_shared_memory.raw_handle = handle
    request.register.cuda_shared_memory.device_id = device
    return request


def unregister(name):
    request = REQUEST()
    request.unregister.name = name
    return request


def simple(kind):
    request = REQUEST()
    if kind:
        getattr(request, kind).SetInParent()
    return request


@given(
    st.builds(system, NAMES, NAMES, NUMBERS, NUMBERS)
    | st.builds(cuda, NAMES, st.binary(max_size=64), st.integers(-(2**63), 2**63 - 1), NUMBERS)
    | st.builds(unregister, NAMES)
    | st.builds(simple, st.sampled_from(["", "register", "unregister_all", "status"]))
)
def test_what_1_8_and_later_write_is_what_protobuf_reads(request_):
    assert decode_memory_call(request_.SerializeToString()) == request_


@given(st.binary(max_size=100))
def test_any_bytes_are_a_request_or_refused(data):
    with suppress(InvalidRequest, UnknownCall):
        decode_memory_call(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x12\x04\x0a\x01r\x12",  # a region cut short
        b"\x0a\x03\x12\x05\x12",  # a register cut short
        b"\x12\x06\x12\x01\xff\x0a\x01\xff",  # texts that are no UTF-8
        b"\x08",
        b"\x0b",
    ],
)
def test_a_broken_request_of_any_version_is_refused(data):
    with pytest.raises(InvalidRequest):
        decode_memory_call(data)
