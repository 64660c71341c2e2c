"""What one scrape of /metrics costs a server with many models.

    .venv/bin/python bench/scrape.py [--models 100] [--scrapes 50] [--stretches] [--json FILE]

It starts the server on that many small models, sends each a few requests, and then reads /metrics
over one connection, as Prometheus does. It prints the server's CPU milliseconds per scrape, the
share of one core with a scrape every 15 seconds, and the size of the text; the exit status is 1 if
a scrape costs more than LIMIT_MS.

With `--stretches` it asks instead for everything that lists all models, over REST and gRPC, while
inferences go on over both, and prints for each how long it held the event loop at most, in ms of
CPU (ticking.py); the exit status is 1 if that is more than LONGEST_MS. Histograms and summaries are
on.
"""

import argparse
import http.client
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from servers import HOST, cpu_seconds, free_port, run_server

LIMIT_MS = 50.0
LONGEST_MS = 20.0
SCRAPES_EACH = 3
SCRAPE_INTERVAL_S = 15.0

_CONFIG = """
backend: "identity"
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: 4 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 4 }
"""
_TENSOR = {"name": "INPUT0", "datatype": "FP32", "shape": [2, 4], "data": [1, 2, 3, 4] * 2}
_BODY = json.dumps({"inputs": [_TENSOR]})


def make_repository(folder: Path, count: int) -> Path:
    """Write `count` models that return their input."""
    for number in range(count):
        (folder / f"model_{number}" / "1").mkdir(parents=True)
        (folder / f"model_{number}" / "config.pbtxt").write_text(_CONFIG)
    return folder


def ask_all(port: int, count: int) -> None:
    """Send requests to every model, so that there is something to report."""
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    for number in range(count * SCRAPES_EACH):
        connection.request("POST", f"/v2/models/model_{number % count}/infer", _BODY)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            sys.exit(f"model_{number % count} answered {answer.status}")
    connection.close()


def scrape(connection: http.client.HTTPConnection) -> bytes:
    """Return the text of /metrics, read once."""
    connection.request("GET", "/metrics")
    return connection.getresponse().read()


def measure(models: int, scrapes: int, work: Path) -> dict[str, float]:
    """Return the figures of a scrape."""
    repository = make_repository(work / "models", models)
    ports = (free_port(), free_port())
    metrics_port = free_port()
    command = [sys.executable, "-m", "inferd", "serve", str(repository)]
    command += ["--http-address", HOST, "--grpc-address", HOST]
    command += ["--http-port", str(ports[0]), "--grpc-port", str(ports[1])]
    command += ["--metrics-port", str(metrics_port)]
    with run_server("inferd", command, ports, work / "inferd.log") as server:
        ask_all(server.port, models)
        connection = http.client.HTTPConnection(HOST, metrics_port, timeout=10)
        text = scrape(connection)
        if text.count(b"nv_inference_request_success{") != models:
            sys.exit("the metrics do not have every model")
        cpu_s, started = cpu_seconds(server.pid), time.monotonic()
        for _ in range(scrapes):
            text = scrape(connection)
        wall_s = time.monotonic() - started
        cpu_ms = (cpu_seconds(server.pid) - cpu_s) / scrapes * 1000
        connection.close()
    return {
        "models": models,
        "cpu_ms": round(cpu_ms, 2),
        "wall_ms": round(wall_s / scrapes * 1000, 2),
        "percent_of_a_core": round(cpu_ms / SCRAPE_INTERVAL_S / 10, 3),
        "bytes": len(text),
        "lines": text.count(b"\n"),
    }


def measure_stretches(models: int, scrapes: int, work: Path) -> dict[str, dict[str, list[float]]]:
    """Return for each list of all models what ticking.py tells."""
    import tritonclient.grpc

    repository = make_repository(work / "models", models)
    ports = (free_port(), free_port())
    metrics_port = free_port()
    command = [sys.executable, str(Path(__file__).with_name("ticking.py")), "serve"]
    command += [str(repository), "--http-address", HOST, "--grpc-address", HOST]
    command += ["--http-port", str(ports[0]), "--grpc-port", str(ports[1])]
    command += ["--metrics-port", str(metrics_port)]
    command += ["--metrics-config", "summary_latencies=true"]
    command += ["--metrics-config", "histogram_latencies=true"]
    log = work / "inferd.log"
    with run_server("inferd", command, ports, log) as server:
        ask_all(server.port, models)
        grpc = tritonclient.grpc.InferenceServerClient(f"{HOST}:{server.grpc_port}")

        def get(path: str, verb: str = "GET", port: int = server.port) -> None:
            connection = http.client.HTTPConnection(HOST, port, timeout=60)
            connection.request(verb, path)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                sys.exit(f"{path} answered {answer.status}")
            connection.close()

        calls: dict[str, Callable[[], object]] = {
            "inferences alone": lambda: time.sleep(0.2),
            "GET /metrics": lambda: get("/metrics", port=metrics_port),
            "GET /v2/models/stats": lambda: get("/v2/models/stats"),
            "ModelStatistics": grpc.get_inference_statistics,
            "POST /v2/repository/index": lambda: get("/v2/repository/index", "POST"),
            "RepositoryIndex": grpc.get_model_repository_index,
            "GET /v2/health/ready": lambda: get("/v2/health/ready"),
            "ServerReady": grpc.is_server_ready,
            "GET /api/status": lambda: get("/api/status"),
        }
        found = {}
        with inferences(server.port, server.grpc_port):
            for name, call in calls.items():
                os.kill(server.pid, signal.SIGUSR1)
                for _ in range(scrapes):
                    call()
                before = len(log.read_text().splitlines())
                os.kill(server.pid, signal.SIGUSR1)
                while len(lines := log.read_text().splitlines()) == before:
                    time.sleep(0.01)
                found[name] = json.loads(lines[-1])
        grpc.close()
    return found


@contextmanager
def inferences(port: int, grpc_port: int) -> Iterator[None]:
    """Have a client over REST and one over gRPC ask a model again and again meanwhile."""
    import numpy as np
    import tritonclient.grpc

    has_ended = threading.Event()

    def ask_rest() -> None:
        connection = http.client.HTTPConnection(HOST, port, timeout=60)
        while not has_ended.is_set():
            connection.request("POST", "/v2/models/model_0/infer", _BODY)
            connection.getresponse().read()
        connection.close()

    def ask_grpc() -> None:
        tensor = tritonclient.grpc.InferInput("INPUT0", [2, 4], "FP32")
        tensor.set_data_from_numpy(np.ones((2, 4), np.float32))
        with tritonclient.grpc.InferenceServerClient(f"{HOST}:{grpc_port}") as client:
            while not has_ended.is_set():
                client.infer("model_0", [tensor])

    threads = [threading.Thread(target=ask) for ask in (ask_rest, ask_grpc)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        has_ended.set()
        for thread in threads:
            thread.join()


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--scrapes", type=int, default=50)
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--stretches", action="store_true", help="what holds the event loop")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        if options.stretches:
            return show_stretches(options, Path(work))
        found = measure(options.models, options.scrapes, Path(work))
    for name, value in found.items():
        print(f"{name:>20}  {value:,}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if found["cpu_ms"] <= LIMIT_MS else 1


def show_stretches(options: argparse.Namespace, work: Path) -> int:
    """Measure what holds the event loop, print it, and return the exit status."""
    stretches = measure_stretches(options.models, options.scrapes, work)
    print(f"{options.models:,} models: longest stretches of the event loop, in ms of CPU")
    for name, told in stretches.items():
        collected = max(told["collections_ms"], default=0)
        print(f"{name:>28}  {told['stretches_ms']}, longest garbage collection {collected}")
    if options.json:
        options.json.write_text(json.dumps(stretches, indent=1) + "\n")
    longest_ms = max(max(told["stretches_ms"]) for told in stretches.values())
    return 0 if longest_ms <= LONGEST_MS else 1


if __name__ == "__main__":
    sys.exit(main())
