"""Made-up models: what they cost with each candidate, by a simple theory of queues and cores."""

import math
import random

from inferd.tune.goal import Cost
from inferd.tune.settings import BATCH, DELAY, INSTANCES, PROCESS, THREADS, Knob, Space

CORES, CONCURRENCY = 2, 16
SPACE = Space(
    [
        Knob(INSTANCES, (1, 2, 4)),
        Knob(THREADS, (1, 2, 4)),
        Knob(BATCH, (1, 4, 8, 16, 32)),
        Knob(DELAY, (0, 500, 2000)),
        Knob(PROCESS, ("server", "worker")),
    ]
)
START = (1, 1, 1, 0, "server")


def costs_of(seed):
    """Return the cost of each candidate for the model of a seed, some percent of it chance."""
    draw = random.Random(seed)
    call_ms, row_ms = 10 ** draw.uniform(-2, 0.7), 10 ** draw.uniform(-2.5, 1)
    parallel = draw.uniform(0.2, 0.95)
    return {
        one: _cost(SPACE.named(one), call_ms, row_ms, parallel, draw) for one in SPACE.candidates
    }


def _cost(values, call_ms, row_ms, parallel, draw):
    instances, threads = values[INSTANCES], values[THREADS]
    rows = min(values[BATCH], CONCURRENCY / instances)
    run_ms = (call_ms + row_ms * rows) * (1 - parallel + parallel / min(threads, CORES))
    run_ms *= max(1, instances * threads / CORES) * (1.3 if threads > CORES else 1)
    run_ms *= 1.15 if values[PROCESS] == "server" and instances > 1 else 1
    handling_ms = 0.02 * rows + (0.08 if values[PROCESS] == "worker" else 0)
    waits_ms = 0 if CONCURRENCY / instances >= values[BATCH] else values[DELAY] / 1000
    per_s = min(1000 * instances * rows / (run_ms + handling_ms + waits_ms), 50_000)
    per_s *= math.exp(draw.gauss(0, 0.02))
    latency_ms = CONCURRENCY / per_s * 1000
    p99 = latency_ms * (1.3 + 0.2 * instances) * math.exp(draw.gauss(0, 0.05)) + waits_ms
    return Cost(per_s, {"p50": latency_ms, "p99": p99})
