"""Results, made up."""

import numpy as np

from inferd.bench.figures import distribution
from inferd.bench.phases import ServerPhases
from inferd.bench.result import PointResult, RunResult
from inferd.bench.saturation import Trust, TrustVerdict

TRUSTED = TrustVerdict(Trust.FULL, 50.0, 0.1)
UNKNOWN = TrustVerdict(Trust.NONE, 50.0, 0.9, "the load generator is at its limit")


def latencies(median_us, count=4000):
    random = np.random.default_rng(0)
    found = (random.lognormal(0, 0.1, count) * median_us * 1e3).astype(np.int64)
    return distribution(found, np.arange(count) * 1_000_000)


def point(name="4", *, rate=0.0, verdict=TRUSTED, **more):
    made = {
        "latency": latencies(2000) if verdict.trust is not Trust.NONE else None,
        "server": ServerPhases(100, 0, 2100.0, 40.0, 10.0, 1900.0, 5.0, 2.0, 0),
        "cpu_us": 120.0,
        **more,
    }
    concurrency = 0 if rate else int(name)
    return PointResult(
        name, concurrency, rate, 5.0, 4000, 800.0, made.pop("errors", {}), verdict, **made
    )


def run(*points, **more):
    made = {"version": "", "is_whole": True, **more}
    return RunResult(
        "m<1>", made["version"], "http://h:8000", "inferd 1", "REST binary: x FP32 [1,3]",
        1, 2, "2026-01-01", list(points), made["is_whole"],
    )  # fmt: skip
