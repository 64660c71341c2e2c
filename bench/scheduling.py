"""What schedulers cost: each figure compares two rows measured by turns.

    python bench/scheduling.py [--quick] [--seconds 1] [--turns 9] [--only latency] [--out FILE]

- A convolutional network with `dynamic_batching {}` against a bare loop of ONNX Runtime at its best
  batch size: CPU time per image, 1 to 64 clients; and the latency of one client against the same
  model without batching.
- A no-op model whose requests are gathered into batches of 16, against the same without a
  scheduler: CPU time per request.
- An ensemble of three such steps against one of a single step: CPU time per further step.

Neighbours change a machine's speed from one second to the next, by more than the differences
measured here. So the two rows of a figure are measured by turns, each run of one compared with the
mean of the other's runs just before and after it; the figure is the median of these ratios, or
differences. The two numbers after it are their quartiles.

On a CPU with few cores, batches share them with the load, so CPU time is compared, not requests per
second. It is divided by the number of items that the server's own batch statistics say were
executed, from rest to rest: a batch is still running when the load stops, and a bare loop counts
all its images too. (The inference count leaves out that batch, because its clients are gone.)
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
from cases import Case
from load import Row, measure
from make_models import ONE_THREAD, write_model
from servers import HOST, Server, cpu_seconds, run_inferd

HERE = Path(__file__).resolve().parent
BARE_SIZES = (1, 2, 4, 8, 16)
MOST_CLIENTS_PER_S = 20
IMAGE_TURNS = 4
"""How many times longer rows of images run: a second has few batches, of which the first and last
are not typical."""

NO_OP = """backend: "identity"
max_batch_size: 16
input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }
instance_group { kind: KIND_CPU count: 1 }
"""
LOOK_S, AT_REST_S = 0.3, 0.02
"""A server is at rest if it uses less than AT_REST_S of CPU time from one look to the next."""

BATCHED = "dynamic_batching { preferred_batch_size: 16 max_queue_delay_microseconds: 2000 }"


@dataclass(frozen=True)
class Pair:
    """Two rows to compare: `row` may be at most `limit` above `against`.

    The `unit` is "%", or "us" for each of the `share` things that `row` has more.
    """

    name: str
    row: str
    against: str
    unit: str
    limit: float | None
    field: str = "cpu_us"
    share: int = 1


@dataclass
class Figure:
    """The median over the turns of a pair, and the quartiles."""

    name: str
    row: str
    against: str
    value: float
    low: float
    high: float
    unit: str
    limit: float | None

    def __str__(self) -> str:
        """Return a line of the table."""
        target = "" if self.limit is None else f"at most {self.limit:+g} {self.unit}"
        verdict = "" if self.limit is None else ("met" if self.value <= self.limit else "missed")
        return (
            f"{self.name:27}{self.value:+8.1f} {self.unit:3}{self.low:+7.1f} {self.high:+7.1f}  "
            f"{target:15}{verdict:8}{self.row} - {self.against}"
        )


def pairs(best: str) -> list[Pair]:
    """Return the pairs to compare; `best` is the cheapest bare loop."""
    found = [
        Pair("CPU of an image", f"convnet batched, {clients} at once", best, "%", limit)
        for clients, limit in ((1, None), (4, None), (16, 5.0), (64, 5.0))
    ]
    rows = "convnet batched, 1 at once", "convnet alone, 1 at once"
    found.append(Pair("latency of one client", *rows, "%", 3.0, "p50_us"))
    rows = "batched, 16 at once", "direct, 16 at once"
    found.append(Pair("CPU of gathering a request", *rows, "us", 8.0))
    for clients in (1, 16):
        rows = f"steps 3, {clients} at once", f"steps 1, {clients} at once"
        found.append(Pair("CPU of a further step", *rows, "us", 10.0, share=2))
    return found


def ensemble(step_count: int) -> str:
    """Return the configuration of an ensemble of `step_count` no-op steps."""
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
    """Write the models; return the file of the convolutional network."""
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
    """Return how many items a model has executed, after waiting for the server to be at rest."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    last = -1, -1.0
    while True:
        connection.request("GET", f"/v2/models/{model}/stats")
        [row] = json.load(connection.getresponse())["model_stats"]
        count = sum(one["batch_size"] * one["compute_infer"]["count"] for one in row["batch_stats"])
        now = count, cpu_seconds(server.pid)
        if now[0] == last[0] and now[1] - last[1] < AT_REST_S:
            connection.close()
            return int(count)
        last = now
        time.sleep(LOOK_S)


class Bench:
    """The measurements: rows by name, and figures. `work` is a folder for the models."""

    def __init__(self, seconds: int, turns: int, work: Path) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.bare_us: dict[str, list[float]] = {}
        self.figures: list[Figure] = []
        self._seconds = seconds
        self._turns = turns
        self._work = work
        self._file = write_models(work / "models")
        image = np.random.default_rng(7).random((1, 3, 224, 224), np.float32)
        number = np.ones((1, 1), np.float32)
        given = {"convnet alone": {"INPUT": image}, "convnet batched": {"INPUT": image}}
        given |= {name: {"INPUT0": number} for name in ("direct", "batched", "steps 1", "steps 3")}
        self._requests = {name: binary_request(_served(name), one) for name, one in given.items()}

    def run(self, only: str) -> None:
        """Measure the figures whose names contain `only`."""
        best = f"bare {BARE_SIZES[0]}"
        if any(only in pair.name for pair in pairs(best) if pair.against == best):
            best = self._best_bare()
        with run_inferd(self._work / "models", self._work) as server:
            for name, request in self._requests.items():  # warm up caches and threads
                measure(server, Case("bin", "scheduling"), [request], 4, 1)
                executed_count(server, _served(name))
            for pair in pairs(best):
                if only in pair.name:
                    self.figures.append(self._compare(server, pair))

    def _best_bare(self) -> str:
        """Return the bare loop with the lowest median, relative to the first one of each turn."""
        names = [f"bare {size}" for size in BARE_SIZES]
        shares: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(self._turns):
            turn = {name: self._bare(name) for name in names}
            for name, used in turn.items():
                shares[name].append(used / turn[names[0]])
        return min(names, key=lambda name: statistics.median(shares[name]))

    def _compare(self, server: Server, pair: Pair) -> Figure:
        said = []
        before = self._measure(server, pair.against, pair.field)
        for _ in range(self._turns):
            row = self._measure(server, pair.row, pair.field)
            after = self._measure(server, pair.against, pair.field)
            against, before = (before + after) / 2, after
            is_share = pair.unit == "%"
            said.append(100 * (row / against - 1) if is_share else (row - against) / pair.share)
        value = statistics.median(said)
        low, _, high = statistics.quantiles(said, n=4) if len(said) > 1 else (value,) * 3
        return Figure(pair.name, pair.row, pair.against, value, low, high, pair.unit, pair.limit)

    def _measure(self, server: Server, name: str, field: str) -> float:
        if name.startswith("bare"):
            return self._bare(name)
        label, _, clients = name.removesuffix(" at once").partition(", ")
        count_before = executed_count(server, _served(label))
        before = cpu_seconds(server.pid)
        case, requests = Case("bin", "scheduling"), [self._requests[label]]
        # Each of many clients should be answered a few times.
        seconds = max(self._seconds_of(name), int(clients) // MOST_CLIENTS_PER_S)
        row, _ = measure(server, case, requests, int(clients), seconds)
        count = executed_count(server, _served(label)) - count_before
        used = cpu_seconds(server.pid) - before
        row = replace(row, cpu_us=used / max(1, count) * 1e6, requests=count)
        self.rows.setdefault(name, []).append(row)
        return float(getattr(row, field))

    def _seconds_of(self, name: str) -> int:
        return self._seconds * (IMAGE_TURNS if name.startswith(("convnet", "bare")) else 1)

    def _bare(self, name: str) -> float:
        size = name.removeprefix("bare ")
        command = [sys.executable, str(HERE / "bare_onnx.py"), str(self._file)]
        command += [str(self._seconds_of(name) / 2), size]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        self.bare_us.setdefault(name, []).append(float(text))
        return float(text)


def main() -> int:
    """Measure, print, and write all figures as JSON if asked; return 1 if an answer failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="3 turns of 1 s")
    parser.add_argument(
        "--seconds", type=int, default=1, help="of one row of a turn; images take 4 times as long"
    )
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--only", default="", help="measure the figures with this in their name")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        turns = 3 if given.quick else given.turns
        bench = Bench(1 if given.quick else given.seconds, turns, Path(work))
        bench.run(given.only)
    print(f"{'row, median':32}{'CPU us':>9}{'p50 us':>9}{'req/s':>9}")
    for name, used in bench.bare_us.items():
        print(f"{name:32}{statistics.median(used):9.1f}")
    for name, rows in bench.rows.items():
        fields = [
            statistics.median(getattr(row, field) for row in rows)
            for field in ("cpu_us", "p50_us", "requests_per_s")
        ]
        mark = " busy" * any(row.is_noisy for row in rows) + " BAD" * any(row.bad for row in rows)
        print(f"{name:32}" + "".join(f"{field:9.1f}" for field in fields) + mark)
    print()
    for figure in bench.figures:
        print(figure)
    if given.out:
        document = {
            "figures": [asdict(figure) for figure in bench.figures],
            "rows": {name: [asdict(row) for row in rows] for name, rows in bench.rows.items()},
            "bare_us": bench.bare_us,
        }
        given.out.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(row.bad for rows in bench.rows.values() for row in rows))


def _served(name: str) -> str:
    return name.replace(" ", "_")


if __name__ == "__main__":
    sys.exit(main())
