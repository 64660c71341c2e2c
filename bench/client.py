"""What inferd.client costs beside tritonclient: CPU per request of the client, as ratios.

    python bench/client.py [--rounds 9]

Both clients ask the same server, by turns, in one process: numpy arrays in, numpy arrays out. CPU
is that of the process, with all threads. The ratio is that of each round, as medians; the target is
at most one half. A third row puts the same codec on grpcio, to say what the own HTTP/2 is worth
(docs/decisions/0039-client.md).
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
import servers
import tritonclient.grpc
import tritonclient.http
from make_models import IDENTITY_CONFIG, write_model

from inferd.client import Client
from inferd.client.requests import make_request
from inferd.client.result import InferResult
from inferd.wire.v2.grpc.codec import decode_infer_response, encode_infer_request

MODEL = "identity_fp32"
TARGET = 0.5
ELEMENTS = {"64 B": 16, "600 KB": 150_000}
CALLS = {"64 B": 400, "600 KB": 40}
METHOD = "/inference.GRPCInferenceService/ModelInfer"

Infer = Callable[[np.ndarray], np.ndarray]


@dataclass
class Row:
    """One way to send one size, with each client; `ours` and `theirs` are microseconds of CPU."""

    name: str
    size: str
    mine: Infer
    other: Infer
    target: float | None = TARGET
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        return statistics.median(a / b for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def is_met(self) -> bool:
        """Whether the ratio is at most the target."""
        return self.target is None or self.ratio <= self.target


def triton_http(url: str, *, binary: bool) -> Infer:
    """Return an inference by tritonclient over REST."""
    client = tritonclient.http.InferenceServerClient(url)

    def infer(array: np.ndarray) -> np.ndarray:
        one = tritonclient.http.InferInput("INPUT0", list(array.shape), "FP32")
        one.set_data_from_numpy(array, binary_data=binary)
        wanted = tritonclient.http.InferRequestedOutput("OUTPUT0", binary_data=binary)
        return client.infer(MODEL, [one], outputs=[wanted]).as_numpy("OUTPUT0")

    return infer


def triton_grpc(url: str) -> Infer:
    """Return an inference by tritonclient over gRPC."""
    client = tritonclient.grpc.InferenceServerClient(url)

    def infer(array: np.ndarray) -> np.ndarray:
        one = tritonclient.grpc.InferInput("INPUT0", list(array.shape), "FP32")
        one.set_data_from_numpy(array)
        wanted = tritonclient.grpc.InferRequestedOutput("OUTPUT0")
        return client.infer(MODEL, [one], outputs=[wanted]).as_numpy("OUTPUT0")

    return infer


def on_grpcio(url: str) -> Infer:
    """Return an inference with our codec and grpcio's channel."""
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    call = grpc.insecure_channel(url, options=limits).unary_unary(METHOD, None, None)

    def infer(array: np.ndarray) -> np.ndarray:
        request = make_request(MODEL, {"INPUT0": array}, None, {"outputs": ["OUTPUT0"]}, [])
        answer = call(b"".join(encode_infer_request(request)), timeout=60)
        return InferResult(decode_infer_response(answer))["OUTPUT0"]

    return infer


def ours(client: Client) -> Infer:
    """Return an inference by inferd.client."""

    def infer(array: np.ndarray) -> np.ndarray:
        return client.infer(MODEL, {"INPUT0": array}, outputs=["OUTPUT0"])["OUTPUT0"]

    return infer


def cpu_us(infer: Infer, array: np.ndarray, count: int) -> float:
    """Return the CPU microseconds of a call. Exits if an answer is wrong."""
    if not np.array_equal(infer(array), array):
        sys.exit("an answer is wrong")
    begun = time.process_time_ns()
    for _ in range(count):
        infer(array)
    return (time.process_time_ns() - begun) / 1000 / count


def rows_for(http: str, rpc: str, stack: ExitStack) -> list[Row]:
    """Return the rows of a server at these addresses, "HOST:PORT"."""
    binary = ours(stack.enter_context(Client(f"http://{http}", binary=True)))
    json = ours(stack.enter_context(Client(f"http://{http}", binary=False)))
    own = ours(stack.enter_context(Client(f"grpc://{rpc}")))
    pairs = [
        ("REST, binary", binary, triton_http(http, binary=True), TARGET),
        ("REST, JSON", json, triton_http(http, binary=False), TARGET),
        ("gRPC", own, triton_grpc(rpc), TARGET),
        ("gRPC, against grpcio", own, on_grpcio(rpc), None),
    ]
    return [
        Row(name, size, mine, other, target)
        for name, mine, other, target in pairs
        for size in ELEMENTS
    ]


def measure(rows: list[Row], rounds: int) -> None:
    """Fill the rows, one client after the other in each round."""
    random = np.random.default_rng(1)
    for number in range(rounds + 1):
        for row in rows:
            array = random.random(ELEMENTS[row.size], dtype=np.float32)
            count = max(CALLS[row.size] // (10 if "JSON" in row.name else 1), 4)
            turns = [(row.mine, row.ours), (row.other, row.theirs)]
            for infer, figures in turns if number % 2 else turns[::-1]:
                us = cpu_us(infer, array, count)
                if number:  # the first round makes connections and fills caches
                    figures.append(us)


def main() -> int:
    """Run, print, and return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_model(folder / "models", MODEL, IDENTITY_CONFIG, None)
        server = stack.enter_context(servers.run_inferd(folder / "models", folder))
        addresses = f"{servers.HOST}:{server.port}", f"{servers.HOST}:{server.grpc_port}"
        rows = rows_for(*addresses, stack)
        measure(rows, options.rounds)
    print(f"{'':<22}{'':>8}{'inferd':>12}{'other':>12}{'ratio':>8}")
    for row in rows:
        mine, other = statistics.median(row.ours), statistics.median(row.theirs)
        mark = "" if row.is_met else f"  more than {row.target}"
        line = f"{row.name:<22}{row.size:>8}{mine:>9.0f} us{other:>9.0f} us{row.ratio:>8.2f}"
        print(line + mark)
    return 0 if all(row.is_met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
