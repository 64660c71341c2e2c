"""HTTP/1.1 (RFC 9110, 9112) as a V2 client meets it: verbs, connections, bodies."""

import gzip
import json
import re
import zlib

import pytest
from conformance.bodies import OUTPUT0, ok_body
from conformance.checks import check_error, check_ok, check_refused, values
from conformance.points import point
from conformance.rest import Rest

INFER = "/v2/models/m/infer"
BODY = json.dumps(ok_body()).encode()


@point("S98", "SHOULD", "HEAD on health: 200 without a body")
@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", "/v2/models/m/ready"])
def test_head_on_health(rest: Rest, path: str):
    with rest.connect() as connection:
        connection.send(rest.message("HEAD", path))
        assert connection.read_response(head=True).status == 200
        connection.send(rest.message("GET", "/v2/health/live"))
        assert check_ok(connection.read_response())["live"] is True


@point("S99", "SHOULD", "a wrong verb: 405 with Allow")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", INFER, "POST"),
        ("POST", "/v2", "GET"),
        ("PUT", "/v2/health/live", "GET"),
        ("DELETE", "/v2/models/m", "GET"),
        ("PATCH", "/v2/models/m/ready", "GET"),
    ],
)
def test_a_wrong_verb_names_the_right_one(rest: Rest, method: str, path: str, allowed: str):
    response = rest.request(method, path)
    check_refused(response, 405)
    assert allowed in (response.header("allow") or "")


@point("S100", "MUST", "RFC 9112: a connection carries one request after another")
def test_connections_are_kept(rest: Rest):
    with rest.connect() as connection:
        for i in range(3):
            body = json.dumps(ok_body(id=str(i))).encode()
            connection.send(rest.message("POST", INFER, body))
            assert check_ok(connection.read_response())["id"] == str(i)
            connection.send(rest.message("GET", "/v2/models/nope"))
            check_refused(connection.read_response(), 404)


@point("S101", "MUST", "RFC 9112: Connection: close is honoured")
@pytest.mark.parametrize("value", ["close", "Close"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_a_connection_closes_when_asked(rest: Rest, method: str, value: str):
    with rest.connect() as connection:
        connection.send(rest.message(method, "/v2/health/live", headers=[("Connection", value)]))
        connection.read_response(head=method == "HEAD")
        assert connection.is_closed()


@point("S102", "MUST", "RFC 9112: a request in many pieces is one request")
@pytest.mark.parametrize("cut", [7, 40, -300, -1])
def test_a_request_may_come_in_pieces(rest: Rest, cut: int):
    message = rest.message("POST", INFER, BODY)
    with rest.connect() as connection:
        connection.send(message[:cut])
        check_ok(rest.get("/v2/health/live"))  # meanwhile the server has read the first piece
        connection.send(message[cut:])
        assert values(connection.read_response(), "OUTPUT0") == OUTPUT0


@point("S103", "MUST", "a POST without a body: 400, and the next request is answered")
def test_a_request_without_a_body(rest: Rest):
    with rest.connect() as connection:
        connection.send(rest.message("POST", INFER, b""))
        check_refused(connection.read_response())
        connection.send(rest.message("POST", INFER, BODY))
        assert values(connection.read_response(), "OUTPUT0") == OUTPUT0


@point("S104", "MUST", "a request that is no HTTP harms nobody")
@pytest.mark.parametrize(
    "message",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 3 + b"\r\n\r\n", b"GET\r\n\r\n",
     b"GET /v2 HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
     b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
     b"GET /v2 HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n"],
)  # fmt: skip
def test_garbage_is_refused_or_dropped(rest: Rest, message: bytes):
    with rest.connect() as connection:
        connection.send(message)
        answer = connection.read_all()
    assert re.match(rb"HTTP/1.1 4\d\d |HTTP/1.1 50[15] |$", answer), answer[:100]
    check_ok(rest.get("/v2/health/live"))


@point("S105", "MUST", "RFC 9112: Content-Length beside Transfer-Encoding, or twice: refused")
@pytest.mark.parametrize(
    "headers",
    [
        [("Content-Length", "4"), ("Transfer-Encoding", "chunked")],
        [("Content-Length", "4"), ("Content-Length", "5")],
    ],
)
def test_a_body_of_two_lengths_is_refused(rest: Rest, headers: list[tuple[str, str]]):
    message = rest.message("POST", INFER, headers=headers) + b"0\r\n\r\n"
    with rest.connect() as connection:
        connection.send(message + rest.message("GET", "/v2/health/live"))
        response = connection.read_response()
        assert response.status == 400
        assert connection.is_closed()


@point("S233", "MUST", "RFC 9112: more than one Host: 400")
@pytest.mark.parametrize("hosts", ["Host: a\r\nHost: b\r\n", "Host: a\r\nhost: a\r\n"])
def test_two_hosts_are_refused(rest: Rest, hosts: str):
    with rest.connect() as connection:
        connection.send(f"GET /v2/health/live HTTP/1.1\r\n{hosts}\r\n".encode())
        assert connection.read_response().status == 400


@point("S106", "MUST", "a compressed body that is none: 400")
@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", BODY),
        ("gzip", gzip.compress(BODY, mtime=0)[:-12]),
        ("gzip", b""),
        ("deflate", BODY),
        ("deflate", zlib.compress(BODY)[:-8]),
        ("deflate", zlib.compress(BODY, wbits=-15)),
    ],
)
def test_a_corrupt_compressed_body_is_refused(rest: Rest, encoding: str, body: bytes):
    check_refused(rest.infer("m", body, [("Content-Encoding", encoding)]))


@point("S232", "SHOULD", "RFC 1952: a gzip body may be several members, one after the other")
def test_a_gzip_body_of_two_members(rest: Rest):
    body = gzip.compress(BODY[:20]) + gzip.compress(BODY[20:])
    response = rest.infer("m", body, [("Content-Encoding", "gzip")])
    assert values(response, "OUTPUT0") == OUTPUT0


@point("S107", "MUST", "Content-Encoding identity: as if absent")
def test_identity_is_no_encoding(rest: Rest):
    response = rest.infer("m", ok_body(), [("Content-Encoding", "identity")])
    assert values(response, "OUTPUT0") == OUTPUT0


@point("S108", "SHOULD", "answers that are JSON alone: Content-Type exactly application/json")
def test_json_answers_say_so(rest: Rest):
    for response in (rest.infer("m", ok_body()), rest.get("/v2"), rest.get("/v2/models/m")):
        assert response.status == 200
        assert response.header("content-type") == "application/json"


@point("S109", "SHOULD", "GET /v2/models lists the models (KServe)")
def test_the_models_are_listed(rest: Rest):
    assert {"m", "all", "mymodel"} <= set(check_ok(rest.get("/v2/models"))["models"])


@point("S110", "MUST", "headers a proxy or an authenticating client adds are ignored")
def test_unknown_headers_are_ignored(rest: Rest):
    headers = [("Authorization", "Basic YTpi"), ("X-Forwarded-For", "::1"), ("Cookie", "a=b")]
    assert values(rest.infer("m", ok_body(), headers), "OUTPUT0") == OUTPUT0


@point("S111", "MUST", "errors inside a pipeline keep its order")
def test_errors_keep_their_place_in_a_pipeline(rest: Rest):
    wrong = rest.message("POST", INFER, b"{")
    good = rest.message("POST", INFER, BODY)
    with rest.connect() as connection:
        connection.send(good + wrong + good)
        assert connection.read_response().status == 200
        error = connection.read_response()
        assert error.status == 400
        check_error(error)
        assert connection.read_response().status == 200


@point("S140", "MUST", "RFC 9112: HTTP/1.0 is answered, and its connection closed")
def test_http_1_0_is_answered(rest: Rest):
    with rest.connect() as connection:
        connection.send(rest.message("GET", "/v2/models/m").replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert check_ok(connection.read_response())["name"] == "m"
        assert connection.is_closed()


@point("S141", "MUST", "RFC 9112: an absolute URL in the request line is its path")
def test_an_absolute_url_is_its_path(rest: Rest):
    url = f"http://{rest.host}:{rest.port}/v2/models/m"
    assert check_ok(rest.get(url))["name"] == "m"


@point("S142", "MUST", "concurrent connections are answered, each with its own answer")
def test_connections_do_not_mix(rest: Rest):
    connections = [rest.connect() for _ in range(20)]
    for i, connection in enumerate(connections):
        connection.send(rest.message("POST", INFER, json.dumps(ok_body(id=f"c{i}")).encode()))
    for i, connection in reversed(list(enumerate(connections))):
        with connection:
            assert check_ok(connection.read_response())["id"] == f"c{i}"
