"""What metrics cost per request: the same server with and without them, by turns in one run.

    .venv/bin/python bench/metrics.py [--quick] [--seconds 2] [--repeats 15] [--out FILE]

Counts are kept either way; metrics are their text, on a separate port. With metrics on, /metrics is
read every second of a run, fifteen times as often as Prometheus does. Each pair of runs, one server
after the other, gives one ratio: the figure is the median of all, which load from other users of
the machine disturbs least.
"""

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import cases
import make_models
import numpy as np
from cases import Case
from load import Row, check_once, measure_fixed
from servers import HOST, Server, free_port, run_inferd

CASES = (Case("bin", "simple"), Case("grpc", "simple"))
LIMIT = 0.02
"""How much more a request may cost with metrics on: medians of one server differ by as much."""

SCRAPE_EVERY_S = 1.0

Pairs = dict[tuple[str, int], list[tuple[Row, Row]]]
"""By case and concurrency: pairs of runs, (without metrics, with them)."""


class Scraper(threading.Thread):
    """Reads /metrics every SCRAPE_EVERY_S until `stop`; `count` says how often."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._is_stopped = threading.Event()
        self.count = 0

    def run(self) -> None:
        """See the class."""
        while not self._is_stopped.is_set():
            connection = http.client.HTTPConnection(HOST, self._port, timeout=10)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read()
            connection.close()
            if b"nv_inference_request_success{" not in text:
                sys.exit("the metrics do not tell of any model")
            self.count += 1
            self._is_stopped.wait(SCRAPE_EVERY_S)

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._is_stopped.set()
        self.join()


def run_scraped(server: Server, metrics_port: int, case: Case, count: int, seconds: int) -> Row:
    """Measure `server` while its metrics are read."""
    scraper = Scraper(metrics_port)
    scraper.start()
    try:
        return measure_fixed(server, case, cases.MODELS[case.kind], count, seconds)
    finally:
        scraper.stop()


def measure_all(work: Path, seconds: int, repeats: int) -> Pairs:
    """Return the runs of all cases."""
    repository = work / "models"
    make_models.write_model(
        repository, "simple", make_models.SIMPLE_CONFIG, make_models.simple_model()
    )
    metrics_port = free_port()
    pairs: Pairs = {}
    with ExitStack() as stack:
        (work / "off").mkdir()
        off = run_inferd(repository, work / "off", flags=["--allow-metrics=false"])
        without = stack.enter_context(off)
        on = run_inferd(repository, work, flags=["--metrics-port", str(metrics_port)])
        scraped = stack.enter_context(on)
        for case in CASES:
            for server in (without, scraped):
                warm_up(server, case)
            for repeat in range(repeats):
                for count in case.concurrencies:
                    model = cases.MODELS[case.kind]
                    runs = [
                        lambda c=case, n=count, m=model: measure_fixed(without, c, m, n, seconds),
                        lambda c=case, n=count: run_scraped(scraped, metrics_port, c, n, seconds),
                    ]
                    turns = runs[::-1] if repeat % 2 else runs
                    rows = [run() for run in turns]
                    first, second = rows[::-1] if repeat % 2 else rows
                    pairs.setdefault((case.name, count), []).append((first, second))
    return pairs


def warm_up(server: Server, case: Case) -> None:
    """Send one request and check its answer."""
    inputs = cases.make_inputs(case.kind, cases.SIZES[case.kind][0], np.random.default_rng(7))
    check_once(server, case, cases.encode(case, cases.MODELS[case.kind], "", inputs))


def difference(rows: list[tuple[Row, Row]]) -> float:
    """Return how much more requests cost with metrics, as a fraction."""
    return statistics.median(on.cpu_us / off.cpu_us for off, on in rows) - 1


def main() -> int:
    """Measure, print, and write all figures as JSON if asked; return 1 if an answer failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="1 s a run, three times")
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    seconds, repeats = (1, 3) if given.quick else (given.seconds, given.repeats)
    with tempfile.TemporaryDirectory() as work:
        pairs = measure_all(Path(work), seconds, repeats)
    print(f"{'row':18}{'off us':>9}{'on us':>9}{'on / off':>10}")
    for (name, count), rows in pairs.items():
        off_us = statistics.median(off.cpu_us for off, _ in rows)
        on_us = statistics.median(on.cpu_us for _, on in rows)
        busy = " busy" * any(row.is_noisy for pair in rows for row in pair)
        print(f"{f'{name} x{count}':18}{off_us:9.1f}{on_us:9.1f}{difference(rows):+10.1%}{busy}")
    found = difference([pair for rows in pairs.values() for pair in rows])
    verdict = "met" if found <= LIMIT else "missed"
    print(f"{'all pairs of runs':36}{found:+10.1%}  at most {LIMIT:+.0%}: {verdict}")
    if given.out:
        document = {
            f"{name} x{count}": [[asdict(row) for row in pair] for pair in rows]
            for (name, count), rows in pairs.items()
        }
        given.out.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(row.bad for rows in pairs.values() for pair in rows for row in pair))


if __name__ == "__main__":
    sys.exit(main())
