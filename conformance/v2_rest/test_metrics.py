"""Metrics in Prometheus's text, under Triton's names."""

import re
from urllib.parse import urlsplit

from conformance.bodies import ok_body
from conformance.checks import check_ok
from conformance.points import point
from conformance.rest import Rest

METRICS = point(121, "SHOULD", 'GET /metrics: nv_inference_request_success{model="m",version="3"}')


def successes(metrics: str) -> float:
    """Return how often version 3 of m has answered, as /metrics tells it."""
    parts = urlsplit(metrics)
    answer = Rest(f"http://{parts.netloc}").get(parts.path)
    assert answer.status == 200
    content_type = answer.header("content-type")
    assert content_type is not None and content_type.startswith("text/plain"), content_type
    text = answer.body.decode()
    assert "# TYPE nv_inference_request_success counter" in text.splitlines()
    for labels, value in re.findall(
        r"^nv_inference_request_success\{(.*)\} (\S+)$", text, re.MULTILINE
    ):
        if {'model="m"', 'version="3"'} <= set(labels.split(",")):
            return float(value)
    raise AssertionError(text)


@METRICS
def test_an_answered_request_shows_in_the_metrics(rest: Rest, metrics: str):
    before = successes(metrics)
    check_ok(rest.infer("m", ok_body()))
    assert successes(metrics) == before + 1
