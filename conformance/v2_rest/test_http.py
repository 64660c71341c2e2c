"""What HTTP itself allows: chunks, 100-continue, content encodings, pipelining."""

import gzip
import json
import zlib

import pytest
from conformance.bodies import (
    INPUT0_BYTES,
    INPUT1_BYTES,
    OUTPUT0,
    OUTPUT1_BYTES,
    both_binary,
    ok_body,
)
from conformance.checks import check_ok, check_refused, values
from conformance.points import point
from conformance.rest import INFERENCE_HEADER, Response, Rest

INFER = "/v2/models/m/infer"
DECODERS = {None: bytes, "identity": bytes, "gzip": gzip.decompress, "deflate": zlib.decompress}


@point(57, "SHOULD", "chunked request body: 200")
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_chunked_body_is_read(rest: Rest, size: int):
    body = json.dumps(ok_body()).encode()
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    response = rest.request("POST", INFER, chunked, [("Transfer-Encoding", "chunked")])
    assert values(response, "OUTPUT0") == OUTPUT0


@point(58, "SHOULD", "Expect: 100-continue: 100, then 200")
def test_a_client_that_waits_is_told_to_go_on(rest: Rest):
    body = json.dumps(ok_body()).encode()
    headers = [("Expect", "100-continue"), ("Content-Length", str(len(body)))]
    with rest.connect() as connection:
        connection.send(rest.message("POST", INFER, headers=headers))
        assert connection.read_response().status == 100
        connection.send(body)
        assert values(connection.read_response(), "OUTPUT0") == OUTPUT0


def send_compressed(rest: Rest, encoding: str, compress) -> Response:
    head = json.dumps(both_binary(outputs=[{"name": "OUTPUT0"}])).encode()
    body = compress(head + INPUT0_BYTES + INPUT1_BYTES)
    headers = [("Content-Encoding", encoding), (INFERENCE_HEADER, str(len(head)))]
    return rest.request("POST", INFER, body, headers)


@point(74, "MUST", "gzip body with binary tensors: 200")
def test_a_gzip_body_is_read(rest: Rest):
    assert values(send_compressed(rest, "gzip", gzip.compress), "OUTPUT0") == OUTPUT0


@point(75, "MUST", "deflate (zlib) body: 200")
def test_a_deflate_body_is_read(rest: Rest):
    assert values(send_compressed(rest, "deflate", zlib.compress), "OUTPUT0") == OUTPUT0


@point(76, "SHOULD", "Content-Encoding br: 501 + Accept-Encoding")
def test_an_unknown_encoding_is_refused_with_the_known_ones(rest: Rest):
    response = rest.infer("m", ok_body(), [("Content-Encoding", "br")])
    check_refused(response, 501)
    offered = response.header("accept-encoding") or ""
    assert {"gzip", "deflate"} <= {name.strip() for name in offered.split(",")}


@point(77, "MUST", "Accept-Encoding deflate,gzip: decodable according to Content-Encoding")
@pytest.mark.parametrize(
    "accepted", ["deflate, gzip", "gzip", "deflate", "gzip;q=0.5, deflate;q=0.8", "br", "*"]
)
@pytest.mark.parametrize("rows", [1, 8])
def test_the_answer_is_in_an_encoding_it_names(rest: Rest, accepted: str, rows: int):
    body = ok_body(outputs=[{"name": "OUTPUT0"}, {"name": "OUTPUT1", "parameters": BINARY}])
    for tensor in body["inputs"]:
        tensor.update(shape=[rows, 4], data=tensor["data"] * rows)
    response = rest.infer("m", body, [("Accept-Encoding", accepted)])
    encoding = response.header("content-encoding")
    assert encoding in (None, "identity") or encoding in accepted
    response.body = DECODERS[encoding](response.body)
    assert values(response, "OUTPUT0") == OUTPUT0 * rows
    assert response.split()[1] == {"OUTPUT1": OUTPUT1_BYTES * rows}


BINARY = {"binary_data": True}


@point(78, "MUST", "GET /v2 with Accept-Encoding gzip: not compressed")
@pytest.mark.parametrize("path", ["/v2", "/v2/models/all", "/v2/health/ready", "/v2/models/nope"])
def test_only_inference_is_compressed(rest: Rest, path: str):
    response = rest.get(path, [("Accept-Encoding", "gzip, deflate, br")])
    assert response.header("content-encoding") in (None, "identity")
    assert isinstance(response.json(), dict)


@point(123, "SHOULD", "pipelined requests on one connection: all answered, in order")
def test_pipelined_requests_are_answered_in_order(rest: Rest):
    bodies = [json.dumps(ok_body(id=str(i))).encode() for i in range(5)]
    requests = [rest.message("POST", INFER, body) for body in bodies]
    with rest.connect() as connection:
        connection.send(b"".join([*requests, rest.message("GET", "/v2/models/m")]))
        answers = [check_ok(connection.read_response()) for _ in range(6)]
    assert [answer.get("id") for answer in answers[:5]] == ["0", "1", "2", "3", "4"]
    assert answers[5]["name"] == "m"
