"""Starts a server on examples/models and asks it, three ways, which digit examples/digit.json is.

make run                 and leave the server running until Ctrl-C
make run CHECK=1         stop after the three answers; exit 1 if one is wrong
make run PORT=9000 GRPC_PORT=9001 METRICS_PORT=9002      other ports; 0 picks free ones
"""

import argparse
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np

from inferd.core.request import InferRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.v2.grpc.codec import decode_infer_response, encode_infer_request

HERE = Path(__file__).resolve().parent
MODELS = HERE / "models"
DIGIT_FILE = HERE / "digit.json"
DIGIT = 3  # what the person who wrote the digit meant
HOST = "127.0.0.1"
INFER_PATH = "/v2/models/digits/infer"
GRPC_METHOD = "/inference.GRPCInferenceService/ModelInfer"
READY_DEADLINE_S = 30.0
CALL_TIMEOUT_S = 10.0
PLACE = re.compile(r"(HTTP|gRPC|Metrics) +(?:http://)?[\d.]+:(\d+)")
PORT_COUNT = 3
SHADES = " .:-=+*#%@"


@dataclass(frozen=True)
class Answer:
    """What the server said: the digit, and how sure the model is (0 to 1)."""

    digit: int
    probability: float


def load_image() -> np.ndarray:
    """Return the handwritten digit, FP32 [1, 8, 8], pixels 0 to 16."""
    [tensor] = json.loads(DIGIT_FILE.read_bytes())["inputs"]
    return np.array(tensor["data"], dtype="<f4")


def picture(image: np.ndarray) -> str:
    """Return the image as eight lines of text, two characters a pixel."""
    darkest = len(SHADES) - 1
    rows = (image[0] / 16 * darkest).round().astype(int)
    return "\n".join("    " + "".join(SHADES[shade] * 2 for shade in row) for row in rows)


def post(port: int, body: bytes, headers: dict[str, str]) -> tuple[http.client.HTTPMessage, bytes]:
    """POST an inference; return headers and body of the answer. Raises RuntimeError unless 200."""
    connection = http.client.HTTPConnection(HOST, port, timeout=CALL_TIMEOUT_S)
    try:
        connection.request("POST", INFER_PATH, body, headers)
        response = connection.getresponse()
        answer = response.read()
    finally:
        connection.close()
    if response.status != 200:
        msg = f"HTTP {response.status}: {answer.decode(errors='replace')}"
        raise RuntimeError(msg)
    return response.headers, answer


def ask_rest_json(port: int) -> Answer:
    """Send the file as it is: the numbers travel as text."""
    _, body = post(port, DIGIT_FILE.read_bytes(), {"Content-Type": "application/json"})
    outputs = {output["name"]: output["data"] for output in json.loads(body)["outputs"]}
    digit = int(np.ravel(outputs["digit"])[0])
    return Answer(digit, float(np.ravel(outputs["probability"])[digit]))


def ask_rest_binary(port: int) -> Answer:
    """Send a JSON head, then the pixels as raw bytes: the binary tensor data extension."""
    image = load_image()
    tensor = {
        "name": "image",
        "datatype": "FP32",
        "shape": image.shape,
        "parameters": {"binary_data_size": image.nbytes},
    }
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    headers, body = post(
        port,
        head + image.tobytes(),
        {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": str(len(head)),
        },
    )
    position = int(headers["Inference-Header-Content-Length"])
    tails = {}
    for output in json.loads(body[:position])["outputs"]:
        size_bytes = output["parameters"]["binary_data_size"]
        tails[output["name"]] = body[position : position + size_bytes]
        position += size_bytes
    digit = int(np.frombuffer(tails["digit"], "<i8")[0])
    return Answer(digit, float(np.frombuffer(tails["probability"], "<f4")[digit]))


def ask_grpc(port: int) -> Answer:
    """Send the same tensor over gRPC, with inferd's own codec in front of grpcio."""
    request = InferRequest(
        "digits", inputs=[Tensor.from_numpy("image", load_image(), DataType.FP32)]
    )
    with grpc.insecure_channel(f"{HOST}:{port}") as channel:
        call = channel.unary_unary(GRPC_METHOD, None, None)
        answer = call(b"".join(encode_infer_request(request)), timeout=CALL_TIMEOUT_S)
    outputs = {tensor.name: tensor.numpy() for tensor in decode_infer_response(answer).outputs}
    digit = int(outputs["digit"].ravel()[0])
    return Answer(digit, float(outputs["probability"].ravel()[digit]))


def ask(way: str, call: Callable[[], Answer]) -> bool:
    """Ask twice, print the answer and the second call's latency; True if the digit is right."""
    call()  # the first call also pays for connections and imports
    started = time.perf_counter()
    answer = call()
    latency_ms = (time.perf_counter() - started) * 1e3
    right = answer.digit == DIGIT
    verdict = "" if right else f"   WRONG: it is a {DIGIT}"
    print(
        f"  {way:<12} says {answer.digit}, {answer.probability:.2%} sure, in {latency_ms:.1f} ms"
        f"{verdict}"
    )
    return right


def check_port(option: str, port: int) -> None:
    """Exit with advice when `port` is taken; 0 is the system's choice."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            sys.exit(
                f"Port {port} on {HOST} cannot be used ({error.strerror}). "
                f"Choose another: make run {option}={port + 10}, or {option}=0 for a free one."
            )


def start_server(port: int, grpc_port: int, metrics_port: int) -> subprocess.Popen[str]:
    """Start the server as a child; of its output only what goes wrong reaches this terminal."""
    where = ["--http-address", HOST, "--grpc-address", HOST]
    ports = ["--http-port", str(port), "--grpc-port", str(grpc_port)]
    ports += ["--metrics-port", str(metrics_port)]
    quiet = ["--log-info=false", "--exit-on-error"]
    return subprocess.Popen(
        [sys.executable, "-m", "inferd", "serve", str(MODELS), *where, *ports, *quiet],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C comes to this process alone, which then stops the server
    )


def wait_ready(server: subprocess.Popen[str]) -> dict[str, int]:
    """Return the ports of HTTP, gRPC and Metrics, which the server says once its models are ready.

    Raises RuntimeError if it ends first or takes too long.
    """
    assert server.stdout is not None
    alarm = threading.Timer(READY_DEADLINE_S, server.kill)
    alarm.start()
    ports = {}
    try:
        for line in server.stdout:
            if place := PLACE.match(line):
                ports[place[1]] = int(place[2])
            if len(ports) == PORT_COUNT:
                return ports
    finally:
        alarm.cancel()
    status = server.wait()
    msg = f"the server ended with exit status {status}; its reason stands above"
    if status == -signal.SIGKILL:
        msg = f"the server was not ready after {READY_DEADLINE_S:.0f} s"
    raise RuntimeError(msg)


def stop_server(server: subprocess.Popen[str]) -> None:
    """Ask the server to stop, and make sure that it did."""
    server.terminate()
    try:
        server.wait(timeout=10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def show(port: int, grpc_port: int) -> bool:
    """Show the digit and the three answers; True if all are right."""
    print(
        f"inferd serves examples/models at http://{HOST}:{port}, and over gRPC at port {grpc_port}."
    )
    print(f"\nA digit somebody wrote (examples/{DIGIT_FILE.name}):\n\n{picture(load_image())}\n")
    print("The server, asked in three ways:\n", flush=True)
    return all(
        [
            ask("REST, JSON", lambda: ask_rest_json(port)),
            ask("REST, binary", lambda: ask_rest_binary(port)),
            ask("gRPC", lambda: ask_grpc(grpc_port)),
        ]
    )


def main() -> int:
    """Run the example; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=8000, help="HTTP port, 0 for a free one")
    parser.add_argument("--grpc-port", type=int, default=8001, help="gRPC port, 0 for a free one")
    parser.add_argument(
        "--metrics-port", type=int, default=8002, help="metrics port, 0 for a free one"
    )
    parser.add_argument("--check", action="store_true", help="stop after the three answers")
    options = parser.parse_args()
    check_port("PORT", options.port)
    check_port("GRPC_PORT", options.grpc_port)
    check_port("METRICS_PORT", options.metrics_port)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    server = start_server(options.port, options.grpc_port, options.metrics_port)
    try:
        ports = wait_ready(server)
        port, metrics_port = ports["HTTP"], ports["Metrics"]
        right = show(port, ports["gRPC"])
        if options.check:
            print("\nAll three are right." if right else "\nNot all three are right.")
            return 0 if right else 1
        print(
            "\nThe server goes on until Ctrl-C. From another terminal, try:\n\n"
            f"  curl -s -d @{DIGIT_FILE.relative_to(HERE.parent)} http://{HOST}:{port}{INFER_PATH}\n"
            f"  curl -s http://{HOST}:{metrics_port}/metrics\n\n"
            "Or open its dashboard in a browser, and draw a digit of your own:\n\n"
            f"  http://{HOST}:{port}/ui/#/try/digits/1\n",
            flush=True,
        )
        return server.wait()
    except KeyboardInterrupt:
        print()
        return 0
    except RuntimeError as error:
        print(f"make run failed: {error}", file=sys.stderr)
        return 1
    finally:
        stop_server(server)


if __name__ == "__main__":
    sys.exit(main())
