"""The rows of the statistics extension by plain rules: every duration counts as a microsecond."""

import time
from typing import Any

PHASES = ("success", "queue", "compute_input", "compute_infer", "compute_output")
NS = 1000


def duration(count: int = 0) -> dict[str, int]:
    """Return the sum of that many durations."""
    return {"count": count, "ns": count * NS}


class Tally:
    """What one model version has done."""

    def __init__(self) -> None:
        self.batch_sizes: list[int] = []
        self.last_ms = 0
        self.hit_count = 0
        self.miss_count = 0

    def look_up(self, *, is_hit: bool) -> None:
        """Count a look into the response cache."""
        self.hit_count += is_hit
        self.miss_count += not is_hit

    def add(self, batch_size: int) -> None:
        """Count a request that was answered."""
        self.batch_sizes.append(batch_size)
        self.last_ms = time.time_ns() // 1_000_000

    def row(self, name: str, version: str) -> dict[str, Any]:
        """Return the row of statistics."""
        count = len(self.batch_sizes)
        phases = {phase: duration(count) for phase in PHASES}
        phases |= {phase: duration(count + self.hit_count) for phase in PHASES[:2]}
        phases |= {"fail": duration(), "cache_miss": duration(self.miss_count)}
        phases["cache_hit"] = duration(self.hit_count)
        return {
            "name": name,
            "version": version,
            "last_inference": self.last_ms,
            "inference_count": sum(self.batch_sizes),
            "execution_count": count,
            "inference_stats": phases,
            "batch_stats": [
                {
                    "batch_size": size,
                    **{phase: duration(self.batch_sizes.count(size)) for phase in PHASES[2:]},
                }
                for size in sorted(set(self.batch_sizes))
            ],
        }
