"""SIGTERM under clients that keep their connections: what becomes of each request?

    python tests/support/stop_under_load.py --rounds 30

In every round a server with one model, the identity, is started; 16 clients of four kinds ask it
without a pause, or with short ones; after a random time it gets SIGTERM. A client ends when it can
no longer connect, which is where a load balancer would send it elsewhere. Any other failure is a
request lost, and an answer with other numbers than the request's is wrong.
"""

import argparse
import http.client
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import grpc
import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

MODEL = """
backend: "identity"
max_batch_size: 0
input { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] }
"""
CLIENTS = 16
PAUSES_S = (0.0, 0.0, 0.02, 0.3)
COUNT = 8
REFUSED = re.compile("connection refused|failed to connect|actively refused", re.IGNORECASE)


class Refused(Exception):
    """There is no server any more to connect to."""


class PlainHttp:
    """http.client, with the body of a request in JSON."""

    def __init__(self, ports):
        self._connection = http.client.HTTPConnection("127.0.0.1", ports["HTTP"], timeout=30)

    def ask(self, numbers):
        """Return the numbers of the answer."""
        body = '{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[%d],"data":%s}]}'
        body %= (len(numbers), numbers.tolist())
        if self._connection.sock is None:
            try:
                self._connection.connect()
            except ConnectionRefusedError as error:
                raise Refused from error
        self._connection.request("POST", "/v2/models/same/infer", body)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        return np.array(text.partition('"data":[')[2].partition("]")[0].split(","), np.int32)

    def close(self):
        """Close the connection."""
        self._connection.close()


class TritonHttp:
    """tritonclient.http, with binary data."""

    def __init__(self, ports):
        self._client = triton_http.InferenceServerClient(f"127.0.0.1:{ports['HTTP']}")

    def ask(self, numbers):
        """Return the numbers of the answer."""
        tensor = triton_http.InferInput("INPUT0", numbers.shape, "INT32")
        tensor.set_data_from_numpy(numbers)
        try:
            return self._client.infer("same", [tensor]).as_numpy("OUTPUT0")
        except ConnectionRefusedError as error:
            raise Refused from error

    def close(self):
        """Close the connection."""
        self._client.close()


class TritonGrpc:
    """tritonclient.grpc."""

    def __init__(self, ports):
        # Other than by default, channels to one server would share a connection.
        alone = [("grpc.use_local_subchannel_pool", 1)]
        self._client = triton_grpc.InferenceServerClient(
            f"127.0.0.1:{ports['gRPC']}", channel_args=alone
        )

    def ask(self, numbers):
        """Return the numbers of the answer."""
        tensor = triton_grpc.InferInput("INPUT0", numbers.shape, "INT32")
        tensor.set_data_from_numpy(numbers)
        try:
            return self._client.infer("same", [tensor]).as_numpy("OUTPUT0")
        except InferenceServerException as error:
            if REFUSED.search(error.message()):
                raise Refused from error
            raise

    def close(self):
        """Close the connection."""
        self._client.close()


class PlainGrpc:
    """grpcio, with the messages made by hand."""

    def __init__(self, ports):
        alone = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(f"127.0.0.1:{ports['gRPC']}", options=alone)
        self._infer = self._channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelInferResponse.FromString,
        )

    def ask(self, numbers):
        """Return the numbers of the answer."""
        request = service_pb2.ModelInferRequest(model_name="same")
        request.inputs.add(name="INPUT0", datatype="INT32", shape=numbers.shape)
        request.raw_input_contents.append(numbers.tobytes())
        try:
            answer = self._infer(request, timeout=30)
        except grpc.RpcError as error:
            if REFUSED.search(error.details()):
                raise Refused from error
            raise
        return np.frombuffer(answer.raw_output_contents[0], np.int32)

    def close(self):
        """Close the connection."""
        self._channel.close()


KINDS = (PlainHttp, TritonHttp, TritonGrpc, PlainGrpc)


class Counts(Counter):
    """What became of the requests: answered, wrong, lost; `faults` has the first few errors."""

    def __init__(self):
        super().__init__(answered=0, wrong=0, lost=0)
        self.faults = []


def ask_until_refused(kind, ports, pause_s, counts, lock):
    """Be one client, until there is no server any more."""
    client = kind(ports)
    while True:
        numbers = np.random.randint(-(2**31), 2**31, COUNT, np.int64).astype(np.int32)
        what = "answered"
        try:
            if not np.array_equal(client.ask(numbers), numbers):
                what = "wrong"
        except Refused:
            client.close()
            return
        except Exception as error:  # noqa: BLE001  a client may raise anything
            what = "lost"
            with lock:
                counts.faults.append(f"{kind.__name__}: {error!r}")
        with lock:
            counts[what] += 1
            if what != "answered" and counts[what] > CLIENTS:
                return  # it does not get better
        if what == "lost":
            client.close()
            client = kind(ports)
        if pause_s:
            time.sleep(random.uniform(0, pause_s))


def started(folder, options):
    """Start a server for the models in `folder`; return it and its ports, by protocol."""
    command = [sys.executable, "-m", "inferd", "serve", str(folder), "--allow-metrics=false"]
    server = subprocess.Popen(
        [*command, "--http-port=0", "--grpc-port=0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ports = {}
    while len(ports) < 2:
        line = server.stdout.readline()
        assert line, server.stderr.read()
        if found := re.match(r"(HTTP|gRPC) .*:(\d+)$", line):
            ports[found[1]] = int(found[2])
    return server, ports


def play(options=(), rounds=1):
    """Stop servers under load; return (counts, how long each took to end, in seconds)."""
    counts, lock, times_s = Counts(), threading.Lock(), []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "same" / "1").mkdir(parents=True)
        (Path(folder) / "same" / "config.pbtxt").write_text(MODEL)
        for _ in range(rounds):
            server, ports = started(folder, options)
            clients = [
                threading.Thread(
                    target=ask_until_refused,
                    args=(KINDS[at % len(KINDS)], ports, PAUSES_S[at // len(KINDS)], counts, lock),
                )
                for at in range(CLIENTS)
            ]
            for client in clients:
                client.start()
            time.sleep(random.uniform(0.3, 0.8))
            before = time.monotonic()
            server.send_signal(signal.SIGTERM)
            _, log = server.communicate(timeout=60)
            times_s.append(time.monotonic() - before)
            for client in clients:
                client.join()
            assert server.returncode == 0, log
    return counts, times_s


def main():
    """Play as many rounds as asked for, and print what became of the requests."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    given, options = parser.parse_known_args()
    counts, times_s = play(options, given.rounds)
    average_s = sum(times_s) / len(times_s)
    report = [
        f"{given.rounds} SIGTERMs under {CLIENTS} clients: {dict(counts)}",
        f"ended within {max(times_s):.1f} s, {average_s:.1f} s on average",
        *counts.faults[:20],
    ]
    sys.stdout.write("\n".join(report) + "\n")
    return int(bool(counts["wrong"] or counts["lost"]))


if __name__ == "__main__":
    sys.exit(main())
