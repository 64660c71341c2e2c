"""Headers with any bytes in them never fail the server, at no port."""

import json
import re

import pytest

NAMES = [
    *("Accept", "Accept-Encoding", "Authorization", "Connection", "Content-Encoding"),
    *("Content-Type", "Expect", "Host", "HTTP2-Settings", "Inference-Header-Content-Length"),
    *("NV-InferRequest", "Origin", "Access-Control-Request-Method", "Range", "TE", "traceparent"),
    *("tracestate", "Upgrade", "X-Vertex-Ai-Triton-Redirect", "Cookie", "Keep-Alive"),
    *("X-Amzn-SageMaker-Target-Model", "Content-Length", "Transfer-Encoding"),
]
VALUES = [
    *(b"", b"-1", b"0", b"1e3", b"9" * 30, b"9" * 5000, b"+4", b"0x10", b"\xd9\xa3", b"\xff\xfe"),
    *(b"a" * 20_000, b"%s%n%00", b"{", b'["', b"gzip;q=abc", b"gzip;q=1e999,deflate;q=-0"),
    *(b";;;===,,,", b"00-" + b"f" * 32 + b"-" + b"g" * 16 + b"-01", b"../../../etc/passwd"),
    *(b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-zz", b"/v2/models/echo/infer?x=%zz"),
    *(b"application/json; charset=\xff", b"chunked, chunked", b"identity, gzip", b"x\ty\t"),
    b"application/vnd.sagemaker-triton.binary+json;json-header-size=-1",
    b"application/vnd.vertex-ai-triton.binary+json;json-header-size=\xb2",
    b'batch_size: 1 input { name: "IN" dims: [ 9223372036854775807, 4 ] }',
    b"h2c, websocket",
]  # fmt: skip
BODY = json.dumps(
    {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
).encode()
DOORS = [
    *(("HTTP", b"POST", f"/v2/models/echo/{verb}") for verb in ("infer", "generate_stream")),
    ("HTTP", b"POST", "/api/infer/echo"),
    ("HTTP", b"POST", "/v2/logging"),
    ("HTTP", b"GET", "/v2/models/echo"),
    ("HTTP", b"OPTIONS", "/v2/models/echo/infer"),
    ("HTTP", b"GET", "/ui/events?topics=overview&once=1"),
    ("HTTP", b"POST", "/ui/unlock"),
    ("SageMaker", b"POST", "/invocations"),
    ("Vertex AI", b"POST", "/predict"),
    ("Metrics", b"GET", "/metrics"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("port", "method", "path"), DOORS, ids=[path for *_, path in DOORS])
def test_a_header_with_any_value_is_answered_and_is_no_failure(target, port, method, path):
    for name in NAMES:
        for value in VALUES:
            body = b"" if method != b"POST" or name == "Transfer-Encoding" else BODY
            head = [method + b" " + path.encode() + b" HTTP/1.1", name.encode() + b": " + value]
            if name not in ("Content-Length", "Transfer-Encoding"):
                head.append(b"Content-Length: %d" % len(body))
            if name != "Host":
                head.append(b"Host: localhost")
            if name != "Connection":
                head.append(b"Connection: close")
            if name == "Expect":
                body = b""
            data = b"\r\n".join([*head, b"", b""]) + body
            answer = target.hang_up(data, port)
            status = re.match(rb"HTTP/1.1 (\d\d\d) ", answer)
            assert status, (name, value[:50], answer[:200])
            # 501: a coding of the body that it does not know; 100: it waits for the body.
            allowed = int(status[1]) < 500 or int(status[1]) == 501
            assert allowed, (name, value[:50], answer[:500])
            assert b"Traceback" not in answer


def test_a_name_cannot_write_a_line_of_the_log(target):
    forged = "2026-01-01 00:00:00.000 ERROR   forged"
    for name in (f"x\n{forged}", f"x\r\n{forged}", f"x\x85{forged}", f"x\u2028{forged}"):
        quoted = "".join(f"%{byte:02X}" for byte in name.encode())
        for verb in ("load", "unload"):
            target.ask("POST", f"/v2/repository/models/{quoted}/{verb}", b"{}")
        target.ask("POST", f"/v2/models/{quoted}/infer", BODY)
        target.ask("GET", f"/{quoted}")
        config = json.dumps({"backend": name, "name": name})
        load = json.dumps({"parameters": {"config": config}})
        target.ask("POST", "/v2/repository/models/echo2/load", load)
        region = {"key": name, "offset": 0, "byte_size": 8}
        path = f"/v2/systemsharedmemory/region/{quoted}/register"
        target.ask("POST", path, json.dumps(region))
    written = re.split(r"[\n\r\x85\u2028]", target.log())
    assert not [line for line in written if line.startswith(forged)]
