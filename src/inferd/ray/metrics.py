"""Reads what a server has to do from the text of its metrics."""

import re
from collections import defaultdict

from inferd.ray.report import ReplicaLoad

_LINE = re.compile(r"^(\w+)(?:\{.*\})? (\S+)", re.MULTILINE)


def read_load(text: str) -> ReplicaLoad:
    """Return the load that the metrics of a server tell: sums over its models.

    The steps of an ensemble are requests, too.
    """
    sums: defaultdict[str, float] = defaultdict(float)
    for found in _LINE.finditer(text):
        sums[found[1]] += float(found[2])
    return ReplicaLoad(
        inflight=sums["inferd_inflight_requests"],
        request_count=sums["nv_inference_request_success"],
        duration_us=sums["nv_inference_request_duration_us"],
        cpu_s=sums["process_cpu_seconds_total"],
    )
