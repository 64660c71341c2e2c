"""One port for everything: HTTP/1.1, HTTP/2 with prior knowledge, gRPC, and TLS with ALPN."""

import gzip
import http.client
import json
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http as triton_http

QUESTION = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1.5, 2.5]}]}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def one(start):
    port = free_port()
    with start(f"--http-port={port}", f"--grpc-port={port}", "--grpc-transport=own") as server:
        server.http_port = server.grpc_port = port
        yield server


@pytest.fixture(scope="module")
def one_tls(start, certificates):
    port = free_port()
    flags = [f"--http-port={port}", f"--grpc-port={port}", "--grpc-transport=own"]
    for protocol in ("http", "grpc"):
        flags += [f"--{protocol}-use-ssl=true"]
        flags += [f"--{protocol}-server-cert={certificates / 'server.pem'}"]
        flags += [f"--{protocol}-server-key={certificates / 'server.key'}"]
    with start(*flags) as server:
        server.http_port = server.grpc_port = port
        yield server


def curl(program, *arguments):
    command = [program("curl"), "--silent", "--show-error", "-w", "\n%{http_version} %{http_code}"]
    ran = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    body, _, version = ran.stdout.rpartition(b"\n")
    return body, version.decode()


@contextmanager
def channel_to(server, certificates=None):
    if certificates is None:
        with grpc.insecure_channel(server.address) as channel:
            yield channel
    else:
        secure = grpc.ssl_channel_credentials((certificates / "ca.pem").read_bytes())
        with grpc.secure_channel(server.address, secure) as channel:
            yield channel


def check(channel):
    return channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=10)


# --- plain --------------------------------------------------------------------------------------


def test_http_1_works(one):
    connection = http.client.HTTPConnection("127.0.0.1", one.http_port, timeout=10)
    for _ in range(3):
        connection.request("POST", "/v2/models/echo/infer", json.dumps(QUESTION))
        answer = connection.getresponse()
        assert answer.status == 200 and answer.version == 11
        assert json.loads(answer.read())["outputs"][0]["data"] == [1.5, 2.5]
    connection.close()


def test_rest_over_http_2_works(one, program):
    body, said = curl(
        program, "--http2-prior-knowledge", "-d", json.dumps(QUESTION),
        one.url + "/v2/models/echo/infer",
    )  # fmt: skip
    assert said == "2 200" and json.loads(body)["outputs"][0]["data"] == [1.5, 2.5]
    body, said = curl(program, "--http2-prior-knowledge", one.url + "/v2")
    assert said == "2 200" and json.loads(body)["name"] == "inferd"


@pytest.mark.parametrize(
    ("path", "more", "status"),
    [
        ("/v2/health/live", [], 200),
        ("/v2/models/nobody", [], 404),
        ("/nothing", [], 404),
        ("/v2/models/echo/infer", ["-d", "no json"], 400),
        ("/v2/models/echo/infer", ["-X", "DELETE"], 405),
        ("/v2/health/live", ["-I"], 200),
    ],
)
def test_rest_answers_the_same_over_both(one, program, path, more, status):
    first = curl(program, "--http1.1", *more, one.url + path)
    second = curl(program, "--http2-prior-knowledge", *more, one.url + path)
    assert first[1] == f"1.1 {status}" and second[1] == f"2 {status}"
    if "-I" not in more:
        assert first[0] == second[0]


def test_binary_tensors_pass_over_http_2(one, program, tmp_path):
    values = np.arange(500_000, dtype=np.float32)
    asked = triton_http.InferInput("INPUT0", [len(values)], "FP32")
    asked.set_data_from_numpy(values)
    body, length = triton_http.InferenceServerClient.generate_request_body([asked])
    (tmp_path / "body").write_bytes(body)
    found, said = curl(
        program, "--http2-prior-knowledge", "--data-binary", f"@{tmp_path / 'body'}",
        "-H", f"Inference-Header-Content-Length: {length}",
        "-H", "Content-Type: application/octet-stream", "-D", tmp_path / "head",
        one.url + "/v2/models/echo/infer",
    )  # fmt: skip
    assert said == "2 200", found[:500]
    head = (tmp_path / "head").read_text().lower()
    start = int(head.split("inference-header-content-length: ")[1].split()[0])
    assert np.array_equal(np.frombuffer(found[start:], np.float32), values)


def test_grpc_works_beside_it(one):
    with channel_to(one) as channel:
        assert check(channel) == b"\x08\1"
    with triton.InferenceServerClient(one.address) as client:
        asked = triton.InferInput("INPUT0", [3], "FP32")
        asked.set_data_from_numpy(np.array([1, 2, 3], np.float32))
        assert client.infer("echo", [asked]).as_numpy("OUTPUT0").tolist() == [1, 2, 3]
    with triton_http.InferenceServerClient(f"127.0.0.1:{one.http_port}") as client:
        assert client.is_model_ready("echo")


def test_all_protocols_work_at_once(one, program):
    failures = []

    def repeat(ask):
        try:
            for _ in range(20):
                ask()
        except Exception as error:  # noqa: BLE001 - told to the test's own thread
            failures.append(error)

    def ask_http_1():
        connection = http.client.HTTPConnection("127.0.0.1", one.http_port, timeout=10)
        connection.request("GET", "/v2/health/ready")
        assert connection.getresponse().status == 200
        connection.close()

    def ask_http_2():
        url = one.url + "/v2/health/ready"
        assert curl(program, "--http2-prior-knowledge", url)[1] == "2 200"

    def ask_grpc():
        with channel_to(one) as channel:
            assert check(channel) == b"\x08\1"

    threads = [
        threading.Thread(target=repeat, args=[a]) for a in (ask_http_1, ask_http_2, ask_grpc)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_slow_first_byte_chooses_the_protocol_all_the_same(one):
    with socket.create_connection(("127.0.0.1", one.http_port), timeout=10) as opened:
        for byte in b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":
            opened.sendall(bytes([byte]))
        assert opened.recv(1000).startswith(b"HTTP/1.1 200")
    with socket.create_connection(("127.0.0.1", one.http_port), timeout=10) as opened:
        for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0":
            opened.sendall(bytes([byte]))
        assert opened.recv(9)[3] == 4  # SETTINGS


def test_a_method_that_begins_like_the_preface_is_http_1(one):
    with socket.create_connection(("127.0.0.1", one.http_port), timeout=10) as opened:
        opened.sendall(b"PROPFIND /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert opened.recv(1000).startswith(b"HTTP/1.1 405")


def test_codings_work_over_http_2(one, program, tmp_path):
    packed = tmp_path / "body.gz"
    values = [float(number) for number in range(5000)]
    asked = {"inputs": [{**QUESTION["inputs"][0], "shape": [5000], "data": values}]}
    packed.write_bytes(gzip.compress(json.dumps(asked).encode()))
    body, said = curl(
        program, "--http2-prior-knowledge", "--compressed", "--data-binary", f"@{packed}",
        "-H", "Content-Encoding: gzip", one.url + "/v2/models/echo/infer",
    )  # fmt: skip
    assert said == "2 200" and json.loads(body)["outputs"][0]["data"] == values


@pytest.mark.slow
def test_too_large_a_body_is_413_over_both(start, program, tmp_path):
    port = free_port()
    flags = [f"--http-port={port}", f"--grpc-port={port}", "--grpc-transport=own"]
    large = tmp_path / "large"
    large.write_bytes(bytes(2_000_000))
    with start(*flags, "--http-max-body-bytes=1000000") as server:
        server.http_port = port
        url = server.url + "/v2/models/echo/infer"
        chunked = ["-H", "Transfer-Encoding: chunked"]
        for version in ("--http1.1", "--http2-prior-knowledge"):
            for more in ([], chunked if version == "--http1.1" else ["-H", "Content-Length:"]):
                body, said = curl(program, version, *more, "--data-binary", f"@{large}", url)
                assert said.endswith(" 413") and json.loads(body)["error"]
            assert curl(program, version, "-d", json.dumps(QUESTION), url)[1].endswith("200")


def test_h2load_gets_every_answer_of_rest(one, program, tmp_path):
    question = tmp_path / "question.json"
    question.write_text(json.dumps(QUESTION))
    command = [program("h2load"), "-n", "2000", "-c", "4", "-m", "50", "-d", question]
    ran = subprocess.run(
        [*map(str, command), one.url + "/v2/models/echo/infer"],
        capture_output=True, timeout=60, check=False, text=True,
    )  # fmt: skip
    assert "2000 succeeded, 0 failed, 0 errored, 0 timeout" in ran.stdout, ran.stdout
    assert "status codes: 2000 2xx" in ran.stdout


# --- TLS ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["h2"], "h2"), (["http/1.1"], "http/1.1"), (["h2", "http/1.1"], "h2"), (None, None)],
)
def test_alpn_chooses(one_tls, certificates, offered, chosen):
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    if offered:
        context.set_alpn_protocols(offered)
    plain = socket.create_connection(("127.0.0.1", one_tls.http_port), timeout=10)
    with context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
        assert secure.selected_alpn_protocol() == chosen
        if chosen == "h2":
            secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            assert secure.recv(9)[3] == 4
        else:
            secure.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert secure.recv(1000).startswith(b"HTTP/1.1 200")


def test_everything_works_over_tls(one_tls, program, certificates):
    url = f"https://127.0.0.1:{one_tls.http_port}"
    ca = ["--cacert", certificates / "ca.pem"]
    for version, said in (("--http1.1", "1.1 200"), ("--http2", "2 200")):
        body, found = curl(
            program, version, *ca, "-d", json.dumps(QUESTION), url + "/v2/models/echo/infer"
        )
        assert found == said and json.loads(body)["outputs"][0]["data"] == [1.5, 2.5]
    with channel_to(one_tls, certificates) as channel:
        assert check(channel) == b"\x08\1"


@pytest.mark.slow
def test_the_port_drains_for_all_protocols(start):
    port = free_port()
    with start(f"--http-port={port}", f"--grpc-port={port}", "--grpc-transport=own") as server:
        server.grpc_port = port
        answers = []
        with channel_to(server) as channel:
            assert check(channel) == b"\x08\1"
            call = triton.service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer
            asked = triton.service_pb2.ModelInferRequest(
                model_name="slow", raw_input_contents=[bytes(4)]
            )
            asked.inputs.add(name="INPUT0", datatype="FP32", shape=[1])
            running = call.future(asked, timeout=20)
            check(channel)  # the server has the slow one, too
            server.process.terminate()
            answers.append(running.result())
        assert answers[0].raw_output_contents[0] == bytes(4)
        assert server.process.wait(20) == 0
