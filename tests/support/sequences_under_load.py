"""A server of several processes, which are replaced, and clients in the middle of sequences.

    python tests/support/sequences_under_load.py --workers 2 --seconds 60

A model adds up what each sequence sends. 12 clients begin one sequence after the other, of random
length; some keep their connection, some open one for each request, some use gRPC. Meanwhile SIGUSR2
replaces the processes again and again. Nothing may be lost, and every sum must be right.
"""

import argparse
import functools
import http.client
import json
import random
import signal
import sys
import threading
import time
from collections import Counter

import numpy as np
import tritonclient.grpc as triton_grpc
from under_load import asking, serving, wait_until_replaced

CLIENTS = 12
MOST_STEPS = 40
PAUSE_S = 0.02

MODEL = '''
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Adds up what each sequence sends."""

    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.answer(one) for one in requests]

    def answer(self, request):
        key = request.correlation_id()
        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.sums[key] = 0
        self.sums[key] += int(request.inputs()[0].as_numpy()[0])
        out = np.array([self.sums[key]], np.int32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)])
'''
CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: 1 }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
instance_group { count: 2 kind: KIND_CPU }
sequence_batching { oldest { max_candidate_sequences: 64 }
                    max_sequence_idle_microseconds: %d }
"""
IDLE_US = 60_000_000


def write_sums(folder, idle_us=IDLE_US):
    """Write the model into a repository; a sequence may be idle for so long."""
    (folder / "sums" / "1").mkdir(parents=True)
    (folder / "sums" / "config.pbtxt").write_text(CONFIG % idle_us)
    (folder / "sums" / "1" / "model.py").write_text(MODEL)


class OverHttp:
    """Sends one request after the other over HTTP; with `keeps` over one connection."""

    def __init__(self, ports, *, keeps=True):
        self._connection = http.client.HTTPConnection("127.0.0.1", ports["HTTP"], timeout=60)
        self._keeps = keeps

    def add(self, number, id, *, start, end):
        """Return the sum of a sequence, to which `number` was added."""
        tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [number]}
        parameters = {"sequence_id": id, "sequence_start": start, "sequence_end": end}
        request = json.dumps({"parameters": parameters, "inputs": [tensor]})
        self._connection.request("POST", "/v2/models/sums/infer", request)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        if not self._keeps:
            self._connection.close()
        return json.loads(text)["outputs"][0]["data"][0]

    def close(self):
        """Close the connection."""
        self._connection.close()


class OverGrpc:
    """Sends one request after the other over a channel of its own."""

    def __init__(self, ports):
        alone = [("grpc.use_local_subchannel_pool", 1)]
        self._client = triton_grpc.InferenceServerClient(
            f"127.0.0.1:{ports['gRPC']}", channel_args=alone
        )

    def add(self, number, id, *, start, end):
        """See OverHttp.add."""
        tensor = triton_grpc.InferInput("IN", [1], "INT32")
        tensor.set_data_from_numpy(np.array([number], np.int32))
        answer = self._client.infer(
            "sums", [tensor], sequence_id=id, sequence_start=start, sequence_end=end
        )
        return int(answer.as_numpy("OUT")[0])

    def close(self):
        """Close the channel."""
        self._client.close()


KINDS = (OverHttp, functools.partial(OverHttp, keeps=False), OverGrpc)


class Counts(Counter):
    """What became of the requests; `faults` has the first errors."""

    def __init__(self):
        super().__init__(answered=0, wrong=0, lost=0)
        self.faults = []
        self.lock = threading.Lock()

    def note(self, what, fault=None):
        """Count one request."""
        with self.lock:
            self[what] += 1
            if fault is not None:
                self.faults.append(fault)


def run_sequences(number, ports, counts, over):
    """Be client `number`, until `over` is set and its last sequence has ended."""
    drawn = random.Random(number)
    client = KINDS[number % len(KINDS)](ports)
    serial = 0
    while not over.is_set():
        serial += 1
        total, last = 0, drawn.randint(1, MOST_STEPS)
        for at in range(last + 1):
            value = drawn.randint(1, 9)
            total += value
            try:
                found = client.add(value, f"{number}-{serial}", start=at == 0, end=at == last)
            except Exception as error:  # noqa: BLE001  a client may raise anything
                counts.note("lost", f"client {number}, step {at}: {error!r}"[:300])
                client.close()
                break
            if found != total:
                counts.note("wrong", f"client {number}, step {at}: {found}, not {total}")
                break
            counts.note("answered")
            time.sleep(drawn.uniform(0, PAUSE_S))
    client.close()


def play(workers, seconds, every_s):
    """Return what became of the requests, and the log."""
    counts = Counts()
    with serving(write_sums, [f"--workers={workers}"]) as (server, ports, log):
        clients = [
            functools.partial(run_sequences, number, ports, counts) for number in range(CLIENTS)
        ]
        with asking(clients):
            end_s = time.monotonic() + seconds
            while time.monotonic() < end_s:
                time.sleep(every_s)
                server.send_signal(signal.SIGUSR2)
            wait_until_replaced(log)
    return counts, "".join(log)


def main():
    """Play, and print what became of the requests."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=5.0)
    given = parser.parse_args()
    counts, log = play(given.workers, given.seconds, given.every)
    replaced = log.count("all processes have been replaced")
    report = [f"replaced {replaced} times: {dict(counts)}", *counts.faults[:20]]
    sys.stdout.write("\n".join(report) + "\n")
    return int(bool(counts["wrong"] or counts["lost"]))


if __name__ == "__main__":
    sys.exit(main())
