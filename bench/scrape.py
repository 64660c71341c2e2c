"""What one scrape of /metrics costs a server with many models.

    .venv/bin/python bench/scrape.py [--models 100] [--scrapes 50] [--json FILE]

It starts the server on that many small models, sends each a few requests, and then reads /metrics
over one connection, as Prometheus does. It prints the server's CPU milliseconds per scrape, the
share of one core with a scrape every 15 seconds, and the size of the text; the exit status is 1 if
a scrape costs more than LIMIT_MS.
"""

import argparse
import http.client
import json
import sys
import tempfile
import time
from pathlib import Path

from servers import HOST, cpu_seconds, free_port, run_server

LIMIT_MS = 50.0
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


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--scrapes", type=int, default=50)
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        found = measure(options.models, options.scrapes, Path(work))
    for name, value in found.items():
        print(f"{name:>20}  {value:,}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if found["cpu_ms"] <= LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
