"""curl against a real server: the commands people type, and the odd things curl can do."""

import gzip
import json
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

REQUEST = {"inputs": [{"name": "INPUT0", "shape": [1, 2], "datatype": "FP32", "data": [1, 2.5]}]}
BODY = json.dumps(REQUEST)
ANSWER = {
    "model_name": "flat_FP32",
    "model_version": "1",
    "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.5]}],
}
INFER = "/v2/models/flat_FP32/infer"


class Answer:
    """What curl got: the final status and headers, the body, and all heads as text."""

    def __init__(self, heads, body):
        self.heads = heads
        self.body = body
        last = heads.rstrip().split("\r\n\r\n")[-1].split("\r\n")
        self.version, status = last[0].split(" ")[:2]
        self.status = int(status)
        self.headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in last[1:])
        }

    def json(self):
        """The body as JSON."""
        return json.loads(self.body)


@pytest.fixture
def curl(server, tmp_path):
    """curl(path, arguments..., stdin=...) runs curl on a URL of the server."""

    def run(path, *arguments, stdin=None, base=None):
        heads = tmp_path / "heads"
        command = ["curl", "-sS", "--max-time", "30", "--noproxy", "*", "-D", str(heads)]
        url = f"{base or 'http://' + server.http}{path}"
        given = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [*command, *arguments, url], input=given, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return Answer(heads.read_bytes().decode("latin-1"), done.stdout)

    return run


@pytest.fixture
def body_file(tmp_path):
    """The request as a file."""
    path = tmp_path / "request.json"
    path.write_text(BODY)
    return path


# --- what people type ---


@pytest.mark.parametrize("which", ["live", "ready"])
def test_health(curl, which):
    answer = curl(f"/v2/health/{which}")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()[which] is True


def test_metadata(curl):
    assert curl("/v2").json()["name"] == "inferd"
    assert curl("/v2/models/mymodel").json()["versions"] == ["1", "2"]
    assert curl("/v2/models/mymodel/ready").json() == {"name": "mymodel", "ready": True}


def test_inference_with_the_body_in_the_command(curl):
    answer = curl(INFER, "-d", BODY)
    assert (answer.status, answer.json()) == (200, ANSWER)
    assert int(answer.headers["content-length"]) == len(answer.body)


def test_inference_with_the_body_in_a_file(curl, body_file):
    assert curl(INFER, "-d", f"@{body_file}").json() == ANSWER
    json_type = ("-H", "Content-Type: application/json")
    assert curl(INFER, *json_type, "--data-binary", f"@{body_file}").json() == ANSWER
    assert curl(INFER, "--json", f"@{body_file}").json() == ANSWER


def test_inference_with_a_body_from_stdin(curl):
    assert curl(INFER, "-d", "@-", stdin=BODY).json() == ANSWER


def test_a_put_is_not_allowed_and_says_what_is(curl, body_file):
    answer = curl(INFER, "-T", str(body_file))
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert "PUT" in answer.json()["error"]


def test_an_upload_from_stdin_is_chunked(curl):
    answer = curl(INFER, "-X", "POST", "-T", "-", stdin=BODY)
    assert answer.json() == ANSWER


def test_a_chunked_upload_of_many_chunks(curl):
    array = np.arange(1_000_000, dtype=np.float32)
    inputs = [{"name": "INPUT0", "shape": [1, len(array)], "datatype": "FP32",
               "parameters": {"binary_data_size": array.nbytes}}]  # fmt: skip
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    size = f"Inference-Header-Content-Length: {len(head)}"
    answer = curl(INFER, "-X", "POST", "-T", "-", "-H", size, stdin=head + array.tobytes())
    assert answer.headers["content-type"] == "application/octet-stream"
    skip = int(answer.headers["inference-header-content-length"])
    assert answer.body[skip:] == array.tobytes()


@pytest.mark.slow
def test_a_raw_binary_file(curl, tmp_path):
    path = tmp_path / "tensor"
    path.write_bytes(struct.pack("<f", 2.5))
    zero = "Inference-Header-Content-Length: 0"
    answer = curl("/v2/models/slow/infer", "-H", zero, "--data-binary", f"@{path}")
    assert answer.status == 200
    skip = int(answer.headers["inference-header-content-length"])
    assert answer.body[skip:] == path.read_bytes()


def test_fail_flag_sees_errors(server):
    url = f"http://{server.http}/v2/models/nobody"
    done = subprocess.run(["curl", "-sf", url], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (22, b"")


# --- versions of HTTP ---


def test_http_1_0(curl):
    answer = curl(INFER, "--http1.0", "-d", BODY)
    assert answer.json() == ANSWER
    assert int(answer.headers["content-length"]) == len(answer.body)


def test_an_upgrade_to_http_2_is_offered_in_vain(curl):
    for arguments in ([], ["-d", BODY]):
        answer = curl(INFER if arguments else "/v2", "--http2", *arguments)
        assert (answer.version, answer.status) == ("HTTP/1.1", 200)


@pytest.mark.slow
def test_an_expected_continue_comes_before_the_answer(curl, tmp_path):
    values = np.arange(400_000, dtype=np.float32).reshape(1, -1)
    inputs = [{**REQUEST["inputs"][0], "shape": values.shape, "data": values.ravel().tolist()}]
    path = tmp_path / "large.json"
    path.write_text(json.dumps({"inputs": inputs}))
    assert path.stat().st_size > 2**21
    answer = curl(INFER, "-H", "Expect: 100-continue", "-d", f"@{path}")
    assert answer.heads.startswith("HTTP/1.1 100 ")
    assert answer.json()["outputs"][0]["data"][-1] == 399_999.0


def test_two_requests_use_one_connection(server):
    url = f"http://{server.http}"
    command = ["curl", "-sS", "-v", f"{url}/v2/health/live", f"{url}{INFER}", "-d", BODY]
    done = subprocess.run(command, capture_output=True, check=True)
    assert b"Re-using existing connection" in done.stderr


# --- compression ---


def test_compressed_on_small_and_large_answers(curl):
    assert curl(INFER, "--compressed", "-d", BODY).json() == ANSWER
    data = [0.0] * 10_000
    large = {**REQUEST["inputs"][0], "shape": [1, len(data)], "data": data}
    answer = curl(INFER, "--compressed", "-d", "@-", stdin=json.dumps({"inputs": [large]}))
    assert answer.headers["content-encoding"] in ("gzip", "deflate")
    assert answer.json()["outputs"][0]["data"] == data
    assert int(answer.headers["content-length"]) < 1000


def test_a_compressed_request(curl):
    gzipped = ("-H", "Content-Encoding: gzip", "--data-binary", "@-")
    assert curl(INFER, *gzipped, stdin=gzip.compress(BODY.encode())).json() == ANSWER


# --- URLs ---


@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/a%20model%20with%20%C3%BC",
        "/v2/models/%61%20model%20with%20%c3%bc/",
        "/v2/models/a%20model%20with%20%C3%BC?query=1&more",
    ],
)
def test_percent_escapes_are_decoded(curl, path):
    answer = curl(path, "--path-as-is")
    assert (answer.status, answer.json()["name"]) == (200, "a model with ü")


@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/../models/mymodel",
        "/v2/models/a%2Fb",
        "/v2/models/..%2f..%2fetc%2fpasswd",
        "/v2/models/%",
        "/v2/models/%zz",
        "/v2/models/%ff",
        "/v2//models/mymodel",
        "/V2/models/mymodel",
        "/",
        "/favicon.ico",
    ],
)
def test_what_is_not_there_is_404_with_an_error(curl, path):
    answer = curl(path, "--path-as-is")
    assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
    assert isinstance(answer.json()["error"], str)


# --- HEAD, errors, sockets ---


@pytest.mark.parametrize("path", ["/v2", "/v2/health/live", "/v2/health/ready"])
def test_head_has_the_headers_of_get(curl, path):
    head, get = curl(path, "-I"), curl(path)
    assert (head.status, head.version) == (200, "HTTP/1.1")
    assert head.headers.get("content-length") == get.headers["content-length"]


def test_errors_are_json_and_nothing_else(curl):
    for path, arguments, status in [
        (INFER, ["-d", "{"], 400),
        (INFER, ["-d", "[]"], 400),
        (INFER, ["-d", "{}"], 400),
        (INFER, ["-X", "DELETE"], 405),
        ("/v2/models/nobody/infer", ["-d", BODY], 404),
        (INFER, ["-d", BODY, "-H", "Content-Encoding: br"], 501),
    ]:
        answer = curl(path, *arguments)
        assert answer.status == status
        assert answer.headers["content-type"] == "application/json"
        assert list(answer.json()) == ["error"]


@pytest.mark.slow
def test_a_unix_socket(start, curl):
    with tempfile.TemporaryDirectory() as folder:  # short: such paths end at 107 bytes
        path = Path(folder) / "socket"
        server = start(f"--http-unix-socket={path}")
        socket = ("--unix-socket", str(path))
        answer = curl(INFER, *socket, "-d", BODY, base="http://anything")
        assert answer.json() == ANSWER
        assert curl("/v2/health/ready", base=f"http://{server.http}").status == 200
        server.terminate()
        assert server.end() == 0
        assert not path.exists()


@pytest.mark.slow
def test_https(start, curl, certificates):
    server = start(
        "--http-use-ssl",
        f"--http-server-cert={certificates / 'server.pem'}",
        f"--http-server-key={certificates / 'server.key'}",
    )
    base = f"https://{server.http}"
    trust = ("--cacert", str(certificates / "ca.pem"))
    answer = curl(INFER, *trust, "--http2", "-d", BODY, base=base)
    assert (answer.version, answer.json()) == ("HTTP/1.1", ANSWER)
    assert curl("/v2/health/ready", *trust, "--tlsv1.3", base=base).status == 200
    done = subprocess.run(["curl", "-sS", f"{base}/v2"], capture_output=True, check=False)
    assert done.returncode == 60  # curl trusts no unknown authority
