"""The dashboard asks only for metrics and labels that there are."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inferd.config.options.metrics import MetricsSettings
from inferd.observe.devices import METRICS as GPU_METRICS
from inferd.observe.devices import Cpu, process_families
from inferd.observe.prometheus import Observed, exposition
from inferd.observe.stats import Counts

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "inferd.json"
METRIC = r"\b((?:nv|inferd|process)_[a-z_]+)(?:\{([^}]*)\})?"
FROM_PROMETHEUS = {"job", "instance"}


@pytest.fixture(scope="module")
def document():
    return json.loads(DASHBOARD.read_text())


@pytest.fixture(scope="module")
def told():
    """The names of samples the server tells, each with its labels."""
    others = process_families() + Cpu().families()
    text = "".join(
        exposition([Observed("m", "1", Counts(), 0, 0.0, {})], MetricsSettings(), others)
    )
    found = {name: {"gpu_uuid"} for name, *_ in GPU_METRICS}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
            found[sample.name.removesuffix("_total")] = found[sample.name]
    return found


def queries(document):
    for panel in document["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"], target["legendFormat"]
    for variable in document["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"], ""


def test_every_metric_asked_for_is_told_with_the_labels_asked_for(document, told):
    asked = set()
    for query, legend in queries(document):
        found = re.findall(METRIC, query)
        assert found, query
        for name, matchers in found:
            asked.add(name)
            labels = set(re.findall(r"(\w+)=~", matchers)) | set(
                re.findall(r"\{\{(\w+)\}\}", legend)
            )
            assert labels <= told[name] | FROM_PROMETHEUS, query
    assert {"nv_inference_request_success", "inferd_request_duration_seconds_bucket"} <= asked


def test_panels_lie_beside_each_other(document):
    taken = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
