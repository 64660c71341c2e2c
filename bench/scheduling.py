"""What schedulers cost: each figure is the difference of two named rows of one run.

    python bench/scheduling.py [--quick] [--seconds 4] [--repeats 3] [--out FILE]

- A convolutional network with `dynamic_batching {}` against a bare loop of ONNX Runtime at its best
  batch size: CPU time per image, 1 to 64 clients; and the latency of one client against the same
  model without batching.
- A model with nothing to do, its requests gathered into batches of 16, against the same without a
  scheduler: CPU time per request.
- An ensemble of three such steps against one of one step: CPU time per further step.

The rows are measured by turns; a figure is made of the medians. Batches on a CPU with few cores
share them with the load, so CPU time is compared and not requests per second. It is divided by
what the server's own statistics say was executed, from rest to rest: when the load stops a batch
is still running, and a bare loop has all its images counted, too.
"""

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from batching import MODELS, binary_request
from cases import Case, Request
from load import Row, measure
from make_models import ONE_THREAD, write_model
from servers import HOST, Server, cpu_seconds, run_inferd

HERE = Path(__file__).resolve().parent
CLIENTS = (1, 4, 16, 64)
BARE_SIZES = (1, 2, 4, 8, 16)
NO_OP = """backend: "identity"
max_batch_size: 16
input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }
instance_group { kind: KIND_CPU count: 1 }
"""
LOOK_S, AT_REST_S = 0.3, 0.02
"""A server that uses less than this CPU time from one look to the next is at rest."""

BATCHED = "dynamic_batching { preferred_batch_size: 16 max_queue_delay_microseconds: 2000 }"


@dataclass
class Figure:
    """The difference of two rows, and the most it should be; `unit` is "us" or "%"."""

    name: str
    row: str
    against: str
    value: float
    unit: str
    limit: float | None

    def __str__(self) -> str:
        """Return a line of the table."""
        target = "" if self.limit is None else f"at most {self.limit:+g} {self.unit}"
        verdict = "" if self.limit is None else ("met" if self.value <= self.limit else "missed")
        return (
            f"{self.name:44}{self.value:+8.1f} {self.unit:3}{target:16}{verdict:8}"
            f"{self.row} - {self.against}"
        )


def ensemble(step_count: int) -> str:
    """Return the configuration of an ensemble of so many steps, each of which does nothing."""
    names = ["INPUT0", *(f"t{number}" for number in range(1, step_count)), "OUTPUT0"]
    steps = "".join(
        f'step {{ model_name: "direct" model_version: -1 '
        f'input_map {{ key: "INPUT0" value: "{names[number]}" }} '
        f'output_map {{ key: "OUTPUT0" value: "{names[number + 1]}" }} }}\n'
        for number in range(step_count)
    )
    tensors = NO_OP.partition("\n")[2].partition("instance_group")[0]
    return f'platform: "ensemble"\n{tensors}ensemble_scheduling {{\n{steps}}}\n'


def write_models(repository: Path) -> Path:
    """Write the models; return the convolutional network's file."""
    convnet = MODELS["convnet"]
    content = convnet.content()
    one = ONE_THREAD + "instance_group { kind: KIND_CPU count: 1 }"
    for name, scheduler in (("convnet alone", ""), ("convnet batched", "dynamic_batching {}")):
        write_model(repository, _served(name), convnet.config(scheduler) + "\n" + one, content)
    write_model(repository, "direct", NO_OP, None)
    write_model(repository, "batched", NO_OP + BATCHED, None)
    for count in (1, 3):
        write_model(repository, f"steps_{count}", ensemble(count), None)
    return repository / _served("convnet batched") / "1" / "model.onnx"


def executed_count(server: Server, model: str) -> int:
    """Return how many items a model has executed, once the server is at rest."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    last = -1, -1.0
    while True:
        connection.request("GET", f"/v2/models/{model}/stats")
        [row] = json.load(connection.getresponse())["model_stats"]
        now = row["inference_count"], cpu_seconds(server.pid)
        if now[0] == last[0] and now[1] - last[1] < AT_REST_S:
            connection.close()
            return int(now[0])
        last = now
        time.sleep(LOOK_S)


class Bench:
    """What was measured: a list of each field, by the name of its row."""

    def __init__(self, seconds: int) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.bare_us: dict[str, list[float]] = {}
        self._seconds = seconds

    def run(self, repeats: int, work: Path) -> None:
        """Measure all rows by turns."""
        file = write_models(work / "models")
        image = np.random.default_rng(7).random((1, 3, 224, 224), np.float32)
        images = {
            name: binary_request(_served(name), {"INPUT": image})
            for name in ("convnet alone", "convnet batched")
        }
        number = np.ones((1, 1), np.float32)
        names = ("direct", "batched", "steps 1", "steps 3")
        numbers = {name: binary_request(_served(name), {"INPUT0": number}) for name in names}
        with run_inferd(work / "models", work) as server:
            for _ in range(repeats):
                for size in BARE_SIZES:
                    self.bare_us.setdefault(f"bare {size}", []).append(self._bare(file, size))
                for clients in CLIENTS:
                    self._measure(server, "convnet batched", images["convnet batched"], clients)
                self._measure(server, "convnet alone", images["convnet alone"], 1)
                for clients in (1, 16):
                    for name, request in numbers.items():
                        if (name, clients) != ("batched", 1):  # it would wait for nobody
                            self._measure(server, name, request, clients)

    def _bare(self, file: Path, size: int) -> float:
        command = [sys.executable, str(HERE / "bare_onnx.py"), str(file)]
        command += [str(self._seconds / 2), str(size)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def _measure(self, server: Server, name: str, request: Request, clients: int) -> None:
        count_before = executed_count(server, _served(name))
        before = cpu_seconds(server.pid)
        row, _ = measure(server, Case("bin", "scheduling"), [request], clients, self._seconds)
        count = executed_count(server, _served(name)) - count_before
        used = cpu_seconds(server.pid) - before
        row = replace(row, cpu_us=used / max(1, count) * 1e6, requests=count)
        self.rows.setdefault(f"{name}, {clients} at once", []).append(row)

    def median(self, name: str, field: str) -> float:
        """Return the median of a row's field, `cpu_us` or `p50_us`."""
        if name in self.bare_us:
            return statistics.median(self.bare_us[name])
        return statistics.median(getattr(row, field) for row in self.rows[name])

    def figures(self) -> list[Figure]:
        """Return all differences."""
        best = min(self.bare_us, key=lambda name: self.median(name, "cpu_us"))
        found = []
        for clients in CLIENTS:
            limit = 5.0 if clients >= 16 else None
            row = f"convnet batched, {clients} at once"
            found.append(self._share("CPU of an image", row, best, "cpu_us", limit))
        rows = "convnet batched, 1 at once", "convnet alone, 1 at once"
        found.append(self._share("latency of one client", *rows, "p50_us", 3.0))
        rows = "batched, 16 at once", "direct, 16 at once"
        found.append(self._difference("CPU of gathering a request", *rows, 1, 8.0))
        for clients in (1, 16):
            rows = f"steps 3, {clients} at once", f"steps 1, {clients} at once"
            found.append(self._difference("CPU of a further step", *rows, 2, 10.0))
        return found

    def _share(self, name: str, row: str, against: str, field: str, limit: float | None) -> Figure:
        value = 100 * (self.median(row, field) / self.median(against, field) - 1)
        return Figure(name, row, against, value, "%", limit)

    def _difference(
        self, name: str, row: str, against: str, share: int, limit: float | None
    ) -> Figure:
        value = (self.median(row, "cpu_us") - self.median(against, "cpu_us")) / share
        return Figure(name, row, against, value, "us", limit)


def main() -> int:
    """Measure, print, and write all figures as JSON if asked; return 1 for answers that failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="1 s a row, once")
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    bench = Bench(1 if given.quick else given.seconds)
    with tempfile.TemporaryDirectory() as work:
        bench.run(1 if given.quick else given.repeats, Path(work))
    print(f"{'row':32}{'CPU us':>9}{'p50 us':>9}{'req/s':>9}")
    for name in bench.bare_us:
        print(f"{name:32}{bench.median(name, 'cpu_us'):9.1f}")
    for name, rows in bench.rows.items():
        fields = [bench.median(name, field) for field in ("cpu_us", "p50_us", "requests_per_s")]
        mark = " busy" * any(row.is_noisy for row in rows) + " BAD" * any(row.bad for row in rows)
        print(f"{name:32}" + "".join(f"{field:9.1f}" for field in fields) + mark)
    print()
    figures = bench.figures()
    for figure in figures:
        print(figure)
    if given.out:
        document = {
            "figures": [asdict(figure) for figure in figures],
            "rows": {name: [asdict(row) for row in rows] for name, rows in bench.rows.items()},
            "bare_us": bench.bare_us,
        }
        given.out.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(row.bad for rows in bench.rows.values() for row in rows))


def _served(name: str) -> str:
    return name.replace(" ", "_")


if __name__ == "__main__":
    sys.exit(main())
