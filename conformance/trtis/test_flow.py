"""The image client's way through the API, on bytes written and read by hand from the field tables.

No message class is used: what a mistake in the .proto file would hide shows here. The client asks
for the status, learns the model's shape from its configuration, sends pictures, and reads classes.
"""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance.old import OldRpc, floats
from conformance.points import point

Fields = dict[int, list[bytes | int]]

PICTURE = tuple(float(number) for number in (5, 1, 9, 3, 7, 2, 8, 4, 6, 0, -1, -2))
BEST = [(2, 9.0, ""), (6, 8.0, ""), (4, 7.0, "")]


def varint(value: int) -> bytes:
    """Write a number, seven bits to a byte; a negative one as 64 bits."""
    value %= 2**64
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def data(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def read(message: bytes | int) -> Fields:
    """Take a message apart, by field number."""
    assert isinstance(message, bytes)
    found: Fields = {}
    at = 0
    while at < len(message):
        tag, at = read_varint(message, at)
        if tag & 7 == 0:
            value: bytes | int
            value, at = read_varint(message, at)
        elif tag & 7 == 2:
            size, at = read_varint(message, at)
            value, at = message[at : at + size], at + size
        else:
            size = {1: 8, 5: 4}[tag & 7]
            value, at = message[at : at + size], at + size
        found.setdefault(tag >> 3, []).append(value)
    return found


def request(model: bytes, batch: int, *, number_of_classes: int = 3, request_id: int = 0) -> bytes:
    """Write InferRequest: model_name 1, model_version 2, meta_data 3, raw_input 4."""
    output = data(1, b"OUTPUT0") + data(3, number(1, number_of_classes))
    header = number(1, batch) + data(2, data(1, b"INPUT0")) + data(3, output)
    header += number(5, request_id) if request_id else b""
    pictures = floats(*PICTURE) * batch
    return data(1, model) + number(2, -1) + data(3, header) + data(4, pictures)


def classes(answer: bytes) -> list[list[tuple[int, float, str]]]:
    """Read InferResponse: meta_data 2, output 4, batch_classes 3, cls 1.

    A class has idx 1, value 2, label 3.
    """
    fields = read(answer)
    assert read(fields[1][0])[1] == [1], fields[1]  # request_status, code SUCCESS
    assert fields[3] == [b""]  # raw_output, one empty entry
    [output] = read(fields[2][0])[4]
    found = []
    for entry in read(output)[3]:
        rows = [read(one) for one in read(entry)[1]]
        found.append([(row_index(row), row_value(row), row_label(row)) for row in rows])
    return found


def row_index(row: Fields) -> int:
    return (
        int.from_bytes(value, "little") if isinstance(value := row.get(1, [0])[0], bytes) else value
    )


def row_value(row: Fields) -> float:
    value = row.get(2, [b"\0\0\0\0"])[0]
    assert isinstance(value, bytes)
    return float(struct.unpack("<f", value)[0])


def row_label(row: Fields) -> str:
    value = row.get(3, [b""])[0]
    assert isinstance(value, bytes)
    return value.decode()


def config_of(rpc: OldRpc, model: bytes) -> Fields:
    """Read StatusResponse: server_status 2, model_status 4 (key 1, value 2), config 1."""
    answer = read(rpc.bytes("Status", data(1, model)))
    [entry] = read(answer[2][0])[4]
    assert read(entry)[1] == [model]
    return read(read(read(entry)[2][0])[1][0])


@point("T123", "MUST", "by hand: StatusResponse leads to the model's configuration")
def test_status(old_rpc: OldRpc):
    config = config_of(old_rpc, b"nchw")
    assert (config[1], config[4]) == ([b"nchw"], [8])  # name, max_batch_size


@pytest.mark.parametrize(
    ("model", "order", "dims"),
    [
        pytest.param(b"nhwc", 1, [2, 2, 3], marks=point("T124", "MUST", "by hand: input in NHWC")),
        pytest.param(b"nchw", 2, [3, 2, 2], marks=point("T125", "MUST", "by hand: input in NCHW")),
    ],
)  # fmt: skip
def test_input(old_rpc: OldRpc, model: bytes, order: int, dims: list[int]):
    [told] = config_of(old_rpc, model)[5]  # ModelInput: name 1, data_type 2, format 3, dims 4
    fields = read(told)
    assert (fields[1], fields[2], fields[3]) == ([b"INPUT0"], [11], [order])
    packed = fields[4][0]
    assert (list(packed) if isinstance(packed, bytes) else fields[4]) == dims


@point("T126", "MUST", "by hand: an output that is a vector of TYPE_FP32")
def test_output(old_rpc: OldRpc):
    [told] = config_of(old_rpc, b"nchw")[6]  # ModelOutput: name 1, data_type 2, dims 3
    fields = read(told)
    assert (fields[1], fields[2], fields[3]) == ([b"OUTPUT0"], [11], [b"\x0c"])


@point("T127", "MUST", "by hand: Infer of one picture, three classes")
def test_infer(old_rpc: OldRpc):
    assert classes(old_rpc.bytes("Infer", request(b"nchw", 1))) == [BEST]


@point("T128", "MUST", "by hand: Infer of eight pictures")
def test_infer_batch(old_rpc: OldRpc):
    assert classes(old_rpc.bytes("Infer", request(b"nhwc", 8))) == [BEST] * 8


@point("T129", "MUST", "by hand: labels stand beside indices")
def test_labels(old_rpc: OldRpc):
    [found] = classes(old_rpc.bytes("Infer", request(b"nchw", 1, number_of_classes=12)))
    assert {index: label for index, _, label in found if label} == {0: "ant", 1: "bee"}


@point("T130", "MUST", "by hand: Infer as a future")
def test_future(old_rpc: OldRpc):
    later = [old_rpc.later("Infer", request(b"nchw", 1)) for _ in range(4)]
    assert [classes(one.result()) for one in later] == [[BEST]] * 4


@point("T131", "MUST", "by hand: StreamInfer, in order, with ids")
def test_stream(old_rpc: OldRpc):
    asked = [request(b"nchw", 1 + index % 2, request_id=index + 1) for index in range(10)]
    answers = old_rpc.stream(*asked)
    assert [len(classes(one)) for one in answers] == [1, 2] * 5
    assert [read(read(one)[2][0])[5] for one in answers] == [[index + 1] for index in range(10)]


@point("T132", "MUST", "by hand: a request as 0.8 writes it, with byte_size and a version in text")
def test_old(old_rpc: OldRpc):
    tensor = number(2, 48)  # byte_size of one item
    output = data(1, b"OUTPUT0") + tensor
    header = number(1, 2) + data(2, data(1, b"INPUT0") + tensor) + data(3, output)
    pictures = floats(*PICTURE) * 2
    message = data(1, b"nchw") + data(2, b"1") + data(3, header) + data(4, pictures)
    fields = read(old_rpc.bytes("Infer", message))
    assert fields[3] == [pictures]
    raw = read(read(read(fields[2][0])[4][0])[2][0])  # meta_data, output, raw: byte_size 1
    size = raw[1][0]
    assert (size if isinstance(size, int) else int.from_bytes(size, "little")) == 48


@pytest.fixture
def shared_object() -> Callable[[], str]:
    """Make an object of shared memory; returns its key."""
    path = Path(f"/dev/shm/conformance_old_{os.getpid()}")
    path.write_bytes(b"\0" * 64)
    yield f"/{path.name}"
    path.unlink()


@point(
    "T133",
    "MUST",
    "by hand: SharedMemoryControl tells regions in field 2 of the answer's field 2 (1.7)",
)
def test_regions(old_rpc: OldRpc, shared_object: str):
    key = shared_object.encode()
    check_region(old_rpc, data(1, data(1, b"by hand") + data(2, data(1, key)) + number(4, 64)))


@point("T134", "SHOULD", "by hand: SharedMemoryControl as 1.6 writes it registers a region (1.6)")
def test_region_of_1_6(old_rpc: OldRpc, shared_object: str):
    key = shared_object.encode()
    check_region(old_rpc, data(2, data(1, b"by hand") + data(2, key) + number(4, 64)))


def check_region(old_rpc: OldRpc, register: bytes) -> None:
    """Check that the message registers 64 bytes."""
    old_rpc.bytes("SharedMemoryControl", register)
    try:
        answer = read(old_rpc.bytes("SharedMemoryControl", data(4, b"")))
        told = read(answer[2][0])
        assert 1 not in told
        rows = [read(one) for one in told[2]]
        assert [row[5] for row in rows if row[1] == [b"by hand"]] == [[64]]
    finally:
        old_rpc.bytes("SharedMemoryControl", data(2, data(1, b"by hand")))
