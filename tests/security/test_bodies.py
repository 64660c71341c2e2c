"""Bodies without end, and bodies that are little until they are inflated, at every door."""

import gzip
import json
import socket
import zlib

import grpc
import pytest
from target import BODY_BYTES, MIB, SERVICE, field_of, grpc_request

DOORS = [
    *(("HTTP", f"/v2/models/text/{verb}") for verb in ("infer", "generate", "generate_stream")),
    ("HTTP", "/v2/models/text/infer_stream"),
    ("HTTP", "/v2/repository/models/echo/load"),
    ("HTTP", "/v2/logging"),
    ("SageMaker", "/invocations"),
    ("Vertex AI", "/predict"),
]
TAKES_LONG = pytest.mark.parametrize(("port", "path"), DOORS, ids=[path for _, path in DOORS])
SPARE = 200 * MIB
"""How much memory the server may take: a body of the largest size, as bytes, text and values."""


@pytest.fixture(autouse=True)
def _memory(target):
    before = target.resident_bytes()
    yield
    assert target.resident_bytes() - before < SPARE


def head(path, *lines):
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: h", *lines, "", ""]).encode()


def bomb(size):
    """Return a request whose JSON has `size` bytes, and a thousandth of it when compressed."""
    start = b'{"inputs":[{"name":"IN","datatype":"BYTES","shape":[1],"data":["'
    return start + b"x" * size + b'"]}]}'


@TAKES_LONG
def test_a_bomb_is_refused(target, port, path):
    plain = bomb(BODY_BYTES * 8)
    raw = zlib.compressobj(wbits=-15)
    for coding, packed in (
        ("gzip", gzip.compress(plain)),
        ("deflate", zlib.compress(plain)),
        ("deflate", raw.compress(plain) + raw.flush()),
        ("gzip", gzip.compress(gzip.compress(plain))),
        ("gzip", b"".join(gzip.compress(bytes(MIB)) for _ in range(64))),
        ("gzip, gzip", gzip.compress(gzip.compress(plain))),
        ("gzip", gzip.compress(plain)[:-8] + b"\xff" * 8),
    ):
        status, answer = target.ask("POST", path, packed, {"Content-Encoding": coding}, port)
        assert 400 <= status < 500 or status == 501, (coding, status, answer[:300])


def test_a_bomb_over_grpc_is_refused(target):
    message = grpc_request(b"\1\1", bytes(256 * MIB))
    port = target.ports["gRPC"]
    for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        with grpc.insecure_channel(f"127.0.0.1:{port}", compression=compression) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(SERVICE + "ModelInfer")(message, timeout=60)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            with pytest.raises(grpc.RpcError) as caught:
                list(channel.stream_stream(SERVICE + "ModelStreamInfer")(iter([message])))
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@TAKES_LONG
@pytest.mark.parametrize("piece", [b"10000\r\n" + b"[" * 65536 + b"\r\n", b"1\r\n[\r\n" * 16384])
def test_chunks_without_end_are_refused(target, port, path, piece):
    with socket.create_connection(("127.0.0.1", target.ports[port]), 60) as client:
        client.sendall(head(path, "Transfer-Encoding: chunked"))
        sent = 0
        try:
            while sent < 8 * BODY_BYTES:
                client.sendall(piece)
                sent += len(piece)
            answer = client.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            answer = b""  # the refusal was lost with the reset
        assert answer[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 413", b"HTTP/1.1 404")


@pytest.mark.parametrize(
    "line", [b"1;" + b"x" * 65536, b"0\r\n" + b"x: y\r\n" * 10_000, b"0" * 65536]
)
def test_what_is_beside_the_chunks_is_not_kept(target, line):
    with socket.create_connection(("127.0.0.1", target.ports["HTTP"]), 60) as client:
        client.sendall(head("/v2/models/echo/infer", "Transfer-Encoding: chunked") + line[:3])
        try:
            for _ in range(8 * BODY_BYTES // len(line)):
                client.sendall(line[3:])
        except (ConnectionResetError, BrokenPipeError):
            return


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 9223372036854775808"],
        ["Content-Length: 18446744073709551620"],
        ["Content-Length: -1"],
        ["Content-Length: 4, 4"],
        ["Content-Length: 4", "Content-Length: 5"],
        ["Content-Length: 4", "Transfer-Encoding: chunked"],
        ["Content-Length: 2147483647"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
    ],
)
def test_a_length_that_cannot_be_or_is_too_much_is_refused_from_the_head(target, lines):
    for port, path in DOORS:
        answer = target.send(head(path, *lines), port)
        assert answer[9:12] in (b"400", b"413", b"501"), answer[:200]


def test_a_size_of_a_chunk_that_wraps_is_refused(target):
    for size in (b"10000000000000004", b"ffffffffffffffff", b"-1", b"0x4", b"+4", b"7" * 5000):
        start = head("/v2/models/echo/infer", "Transfer-Encoding: chunked")
        answer = target.send(start + size + b"\r\n[[[[\r\n")
        assert answer[9:12] in (b"400", b"413"), (size, answer[:200])


def test_lengths_of_strings_that_wrap_are_refused_at_every_door(target):
    for raw in (
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x80abcd",
        b"\x05\x00\x00\x00abcd",
        b"\x01",
        b"",
    ):
        tensor = {"name": "IN", "datatype": "BYTES", "shape": [1]}
        text = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": len(raw)}}]})
        headers = {"Inference-Header-Content-Length": str(len(text))}
        for verb in ("infer", "infer_stream", "generate"):
            path = f"/v2/models/text/{verb}"
            status, _ = target.ask("POST", path, text.encode() + raw, headers)
            assert status == 400
        given = field_of(1, b"IN") + field_of(2, b"BYTES") + field_of(3, b"\1")
        message = field_of(1, b"text") + field_of(5, given) + field_of(7, raw)
        code, _ = target.call(SERVICE + "ModelInfer", message)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        header = 'batch_size: 1 input { name: "IN" dims: [ 1 ] } output { name: "OUT" }'
        status, _ = target.ask("POST", "/api/infer/text", raw, {"NV-InferRequest": header})
        assert status == 400
