"""h2load, nghttp and curl: HTTP/2 as other people wrote it."""

import re
import struct
import subprocess

import pytest

HEALTH = "/grpc.health.v1.Health/Check"
INFER = "/inference.GRPCInferenceService/ModelInfer"
GRPC = {"content-type": "application/grpc", "te": "trailers"}
SERVING = b"\0\0\0\0\2\x08\1"


@pytest.fixture
def body(tmp_path):
    """body(message) writes a framed message and returns the file."""

    def write(message=b""):
        file = tmp_path / "message.bin"
        file.write_bytes(b"\0" + struct.pack(">I", len(message)) + message)
        return file

    return write


def run(*command, timeout_s=60):
    words = list(map(str, command))
    return subprocess.run(words, capture_output=True, timeout=timeout_s, check=False)


def with_headers(flag):
    return [word for name, value in GRPC.items() for word in (flag, f"{name}: {value}")]


@pytest.mark.parametrize(
    ("connections", "streams"), [(1, 1), (1, 16), (16, 1), (10, 100)], ids=lambda n: str(n)
)
def test_h2load_gets_every_answer(program, own, body, connections, streams):
    ran = run(
        program("h2load"), "-n", 4000, "-c", connections, "-m", streams, "-d", body(),
        *with_headers("-H"), own.grpc_url + HEALTH,
    )  # fmt: skip
    said = ran.stdout.decode()
    assert "4000 succeeded, 0 failed, 0 errored, 0 timeout" in said, said
    assert "status codes: 4000 2xx" in said


@pytest.mark.slow
@pytest.mark.parametrize("bits", [10, 16, 24, 30])
def test_h2load_gets_large_answers_through_windows_of_any_size(program, own, body, bits):
    service_pb2 = pytest.importorskip("tritonclient.grpc.service_pb2")
    message = service_pb2.ModelInferRequest(model_name="echo", raw_input_contents=[bytes(400_000)])
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[100_000])
    ran = run(
        program("h2load"), "-n", 40, "-c", 2, "-m", 4, "-w", bits, "-W", bits,
        "-d", body(message.SerializeToString()), *with_headers("-H"), own.grpc_url + INFER,
    )  # fmt: skip
    said = ran.stdout.decode()
    assert "40 succeeded, 0 failed, 0 errored, 0 timeout" in said, said
    received = int(re.search(r"\((\d+)\) data", said)[1])
    assert received > 40 * 400_000


def test_nghttp_gets_its_answer(program, own, body):
    command = [program("nghttp"), "-v", "-d", body(), *with_headers("-H")]
    said = run(*command, own.grpc_url + HEALTH).stdout.decode(errors="replace")
    assert ":status: 200" in said and "grpc-status: 0" in said, said
    assert "GOAWAY frame" not in said.replace("send GOAWAY", ""), said


@pytest.mark.slow
def test_nghttp_pads_and_sends_trailers(program, start, body):
    flags = ["--http-port=0", "--grpc-port=0", "--grpc-max-metadata-bytes=65536"]
    with start(*flags, "--grpc-transport=own") as server:
        # --continuation adds 18 kB of fields, which is more than is taken by default.
        command = [program("nghttp"), "-v", "--continuation", "-b", 255]
        command += ["--trailer", "x-checksum: 1", "-d", body(), *with_headers("-H")]
        said = run(*command, server.grpc_url + HEALTH).stdout.decode(errors="replace")
        assert "PADDED" in said and "grpc-status: 0" in said, said


def test_nghttp_asks_often_on_one_connection(program, own, body):
    command = [program("nghttp"), "-s", "-n", "-m", 100, "-d", body(), *with_headers("-H")]
    said = run(*command, own.grpc_url + HEALTH).stdout.decode(errors="replace")
    assert said.count(" 200 ") == 100, said


def test_curl_calls_with_prior_knowledge(program, own, body, tmp_path):
    answer, head = tmp_path / "answer.bin", tmp_path / "head.txt"
    ran = run(
        program("curl"), "--silent", "--show-error", "--http2-prior-knowledge",
        "--data-binary", f"@{body()}", *with_headers("-H"), "-D", head, "-o", answer,
        "-w", "%{http_version} %{http_code}", own.grpc_url + HEALTH,
    )  # fmt: skip
    assert ran.stdout == b"2 200", ran.stderr
    assert answer.read_bytes() == SERVING
    assert "grpc-status: 0" in head.read_text()


def test_curl_without_a_grpc_content_type_is_415(program, own):
    ran = run(
        program("curl"), "--silent", "--http2-prior-knowledge", "-o", "/dev/null",
        "-w", "%{http_version} %{http_code}", own.grpc_url + "/v2/health/live",
    )  # fmt: skip
    assert ran.stdout == b"2 415", ran


@pytest.mark.slow
def test_curl_over_tls_negotiates_h2(program, start, certificates, body, tmp_path):
    flags = ["--http-port=0", "--grpc-port=0", "--grpc-transport=own", "--grpc-use-ssl=true"]
    flags += [f"--grpc-server-cert={certificates / 'server.pem'}"]
    flags += [f"--grpc-server-key={certificates / 'server.key'}"]
    answer = tmp_path / "answer.bin"
    with start(*flags) as server:
        ran = run(
            program("curl"), "--silent", "--show-error", "--http2", "--cacert",
            certificates / "ca.pem", "--data-binary", f"@{body()}", *with_headers("-H"),
            "-o", answer, "-w", "%{http_version} %{http_code}",
            f"https://127.0.0.1:{server.grpc_port}{HEALTH}",
        )  # fmt: skip
        assert ran.stdout == b"2 200", ran.stderr
        assert answer.read_bytes() == SERVING
        refused = run(
            program("curl"), "--silent", "--http1.1", "--cacert", certificates / "ca.pem",
            f"https://127.0.0.1:{server.grpc_port}{HEALTH}",
        )  # fmt: skip
        assert refused.returncode != 0
