"""Measures a server's CPU time per request under a known load.

    python bench/load.py --pid PID --http-port PORT --grpc-port PORT [--case bin/simple]

The unit is CPU microseconds (user and system, of the process and its descendants) per answered
request: unlike requests per second, it is the same on a busy machine as on a quiet one. The load
comes from wrk (HTTP/1.1), h2load and changing.py (gRPC). Each request is first sent once from here
and its values are compared; the load must then show no error and no shorter answers.
"""

import argparse
import http.client
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import cases
import grpc
import numpy as np
import regions
from cases import Case, Request
from servers import Server, cpu_seconds, machine_cpu_seconds

HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"
ID_MARK = "id-goes-here"  # ID_LENGTH characters, replaced by wrk for each request
CHECKS_PER_S = 4.0
NOISE_LIMIT = 0.2  # CPU seconds per second used by others, above which a figure is marked
CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass
class Load:
    """What a load generator counted."""

    requests: int
    bad: int
    bytes: int
    seconds: float
    p50_us: float
    p99_us: float


@dataclass
class Row:
    """One measurement of one server."""

    label: str
    case: str
    concurrency: int
    cpu_us: float
    requests_per_s: float
    p50_us: float
    p99_us: float
    requests: int
    bad: int
    other_cpu: float  # CPU seconds per second used by neither server nor load

    @property
    def is_noisy(self) -> bool:
        """Whether something else kept the machine busy meanwhile."""
        return self.other_cpu > NOISE_LIMIT


def send(server: Server, case: Case, request: Request) -> tuple[str, cases.Arrays, int]:
    """Send one request; return the answer's id, its outputs and the bytes of its body.

    Raises RuntimeError for any HTTP status but success.
    """
    if case.protocol == "grpc":
        target = f"{HOST}:{server.grpc_port}"
        with grpc.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
            call = channel.unary_unary(request.path, None, None)
            message = call(request.body[5:], timeout=60)
        return *cases.decode_grpc(message), len(message) + 5
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    try:
        connection.request("POST", request.path, request.body, request.headers)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != 200:
        msg = f"{server.label} answers {case.name} with {response.status}: {body[:300]!r}"
        raise RuntimeError(msg)
    if case.protocol == "trtis":
        return *cases.decode_trtis(case.kind, response.headers, body), len(body)
    return *cases.decode_http(response.headers, body), len(body)


def check_once(server: Server, case: Case, request: Request) -> int:
    """Send `request`, compare the values, and return the size of the answer's body in bytes."""
    _, outputs, answer_bytes = send(server, case, request)
    if not cases.is_right(case.kind, request.inputs, outputs):
        msg = f"{server.label} answers {case.name} with wrong values"
        raise RuntimeError(msg)
    return answer_bytes


def run_wrk(
    port: int, requests: list[Request], connections: int, seconds: int, constant_id: str = ""
) -> Load:
    """Send `requests` in turn with wrk.

    ID_MARK in a header or body is replaced by a random id each time, or by `constant_id`, in the
    same way so that wrk works as hard.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, request in enumerate(requests, 1):
            headers = "".join(f"{key}: {value}\n" for key, value in request.headers.items())
            (folder / f"{number}.path").write_text(request.path)
            (folder / f"{number}.headers").write_text(headers)
            (folder / f"{number}.body").write_bytes(request.body)
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s"]
        command += ["-s", str(HERE / "post.lua"), f"http://{HOST}:{port}/"]
        environ = {"PATH": "/usr/bin:/bin:/usr/local/bin", "BENCH_FOLDER": name}
        environ |= {"BENCH_ID_MARK": ID_MARK, "BENCH_CONSTANT_ID": constant_id}
        subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
        return Load(**json.loads((folder / "result.json").read_text()))


def run_h2load(
    port: int, request: Request, connections: int, seconds: int, streams: int = 1
) -> Load:
    """Send `request` repeatedly with h2load, `streams` at once on each connection."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        body, log = folder / "body", folder / "log"
        body.write_bytes(request.body)
        command = ["h2load", "-t1", f"-c{connections}", f"-m{streams}", f"-D{seconds}"]
        command += ["-w24", "-W24", "-d", str(body), f"--log-file={log}"]
        for header, value in request.headers.items():
            command += ["-H", f"{header}: {value}"]
        command.append(f"http://{HOST}:{port}{request.path}")
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        status, took_us = np.loadtxt(log, usecols=(1, 2), ndmin=2, dtype=np.int64).T
    counts = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", text)
    data = re.search(r"\((\d+)\) data", text)
    if counts is None or data is None:
        msg = f"h2load's report cannot be read:\n{text}"
        raise RuntimeError(msg)
    succeeded, *failed = map(int, counts.groups())
    bad = sum(failed) + int((status != 200).sum())
    p50_us, p99_us = np.percentile(took_us, [50, 99])
    return Load(succeeded, bad, int(data[1]), seconds, float(p50_us), float(p99_us))


def run_changing(port: int, request: Request, connections: int, seconds: int) -> Load:
    """Send the message of `request` with changing deadlines and metadata."""
    with tempfile.NamedTemporaryFile() as body:
        body.write(request.body)
        body.flush()
        words = [port, connections, seconds, body.name, request.path]
        command = [sys.executable, str(HERE / "changing.py"), *map(str, words)]
        text = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=seconds + 60
        ).stdout
    return Load(**json.loads(text))


def run_h2loads(port: int, requests: list[Request], connections: int, seconds: int) -> Load:
    """Run one h2load for each of `requests`, together; they share the connections."""
    share = max(1, connections // len(requests))
    with ThreadPoolExecutor(len(requests)) as pool:
        loads = list(pool.map(lambda r: run_h2load(port, r, share, seconds), requests))
    return Load(
        sum(load.requests for load in loads),
        sum(load.bad for load in loads),
        sum(load.bytes for load in loads),
        seconds,
        float(np.mean([load.p50_us for load in loads])),
        max(load.p99_us for load in loads),
    )


def measure(
    server: Server,
    case: Case,
    requests: list[Request],
    connections: int,
    seconds: int,
    constant_id: str = "",
) -> tuple[Row, Load]:
    """Load `server` with `requests` in turn; return the figures. The floor gets all over HTTP."""
    through_http = case.protocol != "grpc" or not server.grpc_port
    machine_before, mine_before = machine_cpu_seconds(), own_cpu_seconds()
    before, started = cpu_seconds(server.pid), time.monotonic()
    if through_http:
        load = run_wrk(server.port, requests, connections, seconds, constant_id)
    elif case.shape == "changing":
        load = run_changing(server.grpc_port, requests[0], connections, seconds)
    elif case.shape == "streams":
        load = run_h2load(server.grpc_port, requests[0], 1, seconds, streams=connections)
    else:
        load = run_h2loads(server.grpc_port, requests, connections, seconds)
    used, elapsed = cpu_seconds(server.pid) - before, time.monotonic() - started
    others = machine_cpu_seconds() - machine_before - used - (own_cpu_seconds() - mine_before)
    row = Row(
        server.label,
        case.name,
        connections,
        used / max(1, load.requests) * 1e6,
        load.requests / load.seconds,
        load.p50_us,
        load.p99_us,
        load.requests,
        load.bad,
        others / elapsed,
    )
    return row, load


def own_cpu_seconds() -> float:
    """Return the CPU seconds of this process and of the load generators it has run."""
    times = os.times()
    return float(sum(times[:4]))


def measure_fixed(server: Server, case: Case, model: str, connections: int, seconds: int) -> Row:
    """Measure one request without an id, sent repeatedly; its values are compared beforehand.

    With an id in a header, it changes each time, since repeated heads are cheaper; but not with a
    large body, which wrk would copy for each id, so that the load would measure wrk.
    """
    if case.uses_regions:
        return measure_regions(server, case, model, connections, seconds)
    inputs = cases.make_inputs(case.kind, cases.SIZES[case.kind][0], np.random.default_rng(7))
    request = cases.encode(case, model, "", inputs)
    answer_bytes = check_once(server, case, request)
    if case.protocol == "trtis" and case.kind == "simple":
        request = cases.encode(case, model, ID_MARK, inputs)
    row, load = measure(server, case, [request], connections, seconds)
    if load.bytes < 0.98 * answer_bytes * load.requests:
        row.bad += load.requests  # answers that are too short do not count
    return row


def measure_regions(server: Server, case: Case, model: str, connections: int, seconds: int) -> Row:
    """Measure requests through shared memory; then compare all outputs."""
    count = connections if case.shape == "regions-apart" else 1
    with regions.registered(server, case, model, count) as places:
        # The first touch of a page is a page fault, which regions in use have long behind them.
        measure(server, case, places.requests, connections, 1)
        row, _ = measure(server, case, places.requests, connections, seconds)
        if not places.are_right():
            row.bad += row.requests
    return row


def measure_floor(floor: Server, case: Case, model: str, connections: int, seconds: int) -> Row:
    """Measure the floor with a case's body over HTTP/1.1; its answers are not checked."""
    size = cases.SIZES[case.kind][0]
    inputs = cases.make_inputs(case.kind, size, np.random.default_rng(7))
    request = cases.encode(case, model, "", inputs)
    row, _ = measure(floor, case, [request], connections, seconds)
    return row


def same_size_requests(
    case: Case, models: list[str], size: int, fixed_id: str = ""
) -> list[Request]:
    """Return a request for each of `models`, each with random values and room for an id.

    Over gRPC and in large bodies each has a constant id: a random one, or `fixed_id`.
    """
    random = np.random.default_rng(secrets.randbits(64))
    requests = []
    for model in models:
        inputs = cases.make_inputs(case.kind, size, random)
        mark = ID_MARK
        if case.protocol == "grpc" or is_large(case):
            mark = fixed_id or random_id()
        requests.append(cases.encode(case, model, mark, inputs))
    return requests


def random_id() -> str:
    """Return an id of ID_LENGTH digits."""
    return f"{secrets.randbelow(10**cases.ID_LENGTH):0{cases.ID_LENGTH}}"


def is_large(case: Case) -> bool:
    """Return whether the memory traffic of wrk's bodies would show in the figures.

    wrk makes a new body for each id. Sixteen ever-changing bodies of 600 KB leave the server no
    room in the caches: that alone makes a request a third more expensive.
    """
    return case.kind == "identity" and case.protocol != "grpc"


class Checker(threading.Thread):
    """Sends its own requests, all different, while a load runs, and compares the values."""

    def __init__(self, server: Server, case: Case, models: list[str]) -> None:
        super().__init__(daemon=True)
        self._server, self._case, self._models = server, case, models
        self._is_stopped = threading.Event()
        self.sent = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        """Send a few requests a second until stop()."""
        random = np.random.default_rng()
        while not self._is_stopped.wait(1 / CHECKS_PER_S):
            size = int(random.choice(cases.SIZES[self._case.kind]))
            inputs = cases.make_inputs(self._case.kind, size, random)
            request_id = random_id()
            model = str(random.choice(self._models))
            request = cases.encode(self._case, model, request_id, inputs)
            self.sent += 1
            try:
                answer_id, outputs, _ = send(self._server, self._case, request)
            except (RuntimeError, OSError, grpc.RpcError) as error:
                self.wrong.append(f"no answer: {error}")
                continue
            if answer_id != request_id:
                self.wrong.append(f"id {answer_id!r} instead of {request_id!r}")
            elif not cases.is_right(self._case.kind, inputs, outputs):
                self.wrong.append("wrong values")

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._is_stopped.set()
        self.join()


@dataclass
class Varied:
    """What it costs when no two requests are alike."""

    case: str
    concurrency: int
    steady_us: float  # CPU for the same sizes, each sent unchanged, weighted evenly
    varied_us: float
    checked: int
    wrong: list[str]
    bad: int

    @property
    def difference(self) -> float:
        """How much more varied requests cost, as a fraction."""
        return self.varied_us / self.steady_us - 1


def measure_varied(
    server: Server, case: Case, models: list[str], connections: int, seconds: int
) -> Varied:
    """Compare requests that vary in id, model name, size and values with constant ones.

    With large bodies there are as many requests on both sides, the constant ones with own values.
    """
    steady, varied = [], []
    no_id = "0" * cases.ID_LENGTH
    sizes = cases.SIZES[case.kind]
    count = len(models) * len(sizes) if is_large(case) else 1
    for size in sizes:
        requests = same_size_requests(case, models[:1] * count, size, no_id)
        row, _ = measure(server, case, requests, connections, seconds, no_id)
        steady.append(row)
        varied += same_size_requests(case, models, size)
    checker = Checker(server, case, models)
    checker.start()
    try:
        row, _ = measure(server, case, varied, connections, seconds)
    finally:
        checker.stop()
    varied_us = row.cpu_us * row.requests / (row.requests + checker.sent)
    steady_us = float(np.mean([each.cpu_us for each in steady]))
    bad = row.bad + sum(each.bad for each in steady)
    return Varied(case.name, connections, steady_us, varied_us, checker.sent, checker.wrong, bad)


def main() -> None:
    """Measure a running server from the command line; print one JSON line for each row."""
    names = {case.name: case for case in cases.ALL_CASES}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pid", type=int, required=True, help="the server's process")
    parser.add_argument("--http-port", type=int, default=8000)
    parser.add_argument("--grpc-port", type=int, default=8001)
    parser.add_argument("--case", action="append", choices=names, help="default: all")
    parser.add_argument("--concurrency", type=int, action="append", help="default: the case's")
    parser.add_argument("--seconds", type=int, default=4)
    options = parser.parse_args()
    server = Server("server", options.pid, options.http_port, options.grpc_port)
    for name in options.case or names:
        case = names[name]
        for connections in options.concurrency or case.concurrencies:
            model = cases.MODELS[case.kind]
            row = measure_fixed(server, case, model, connections, options.seconds)
            print(json.dumps(asdict(row)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
