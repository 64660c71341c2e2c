"""The chart renders what Kubernetes, KServe, KEDA and Prometheus Operator take."""

import copy
import json
import subprocess
import sys

import pytest
from kinds import faults
from render_manifests import CHART, DASHBOARD, FILES, FOLDER, manifest, rendered
from rendering import ROOT, VALUES, documents, named

EXAMPLES = sorted((FOLDER / "kserve/examples").glob("*.yaml"))


def everything(helm):
    manifests = [one for options in VALUES.values() for one in documents(rendered(helm, *options))]
    return manifests + [one for file in EXAMPLES for one in documents(file.read_text())]


@pytest.mark.parametrize("which", VALUES)
def test_all_that_is_rendered_is_valid(helm, which):
    found = documents(rendered(helm, *VALUES[which]))
    assert len(found) >= 4
    assert {key: faults(one) for key, one in named(found).items() if faults(one)} == {}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_of_kserve_are_valid_and_meant_for_runtimes_that_are_there(helm, file):
    runtimes = named(documents(manifest(helm, "kserve/runtimes.yaml")))
    [service] = documents(file.read_text())
    assert (service["kind"], faults(service)) == ("InferenceService", [])
    model = service["spec"]["predictor"]["model"]
    names = [model["runtime"]] if "runtime" in model else [name for _, name in runtimes]
    formats = [
        one["name"]
        for name in names
        if model["protocolVersion"]
        in runtimes["ClusterServingRuntime", name]["spec"]["protocolVersions"]
        for one in runtimes["ClusterServingRuntime", name]["spec"]["supportedModelFormats"]
    ]
    assert model["modelFormat"]["name"] in formats


def test_the_plain_manifests_are_what_the_chart_renders(helm):
    command = [sys.executable, str(ROOT / "tools/render_manifests.py"), "--helm", str(helm)]
    run = subprocess.run([*command, "--check"], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "")


def test_no_plain_manifest_is_left_that_nothing_renders():
    there = {str(one.relative_to(FOLDER)) for one in FOLDER.rglob("*.yaml")}
    assert there - {str(one.relative_to(FOLDER)) for one in EXAMPLES} == set(FILES)
    assert (CHART / "dashboards/inferd.json").read_text() == DASHBOARD.read_text()


def test_an_old_helm_renders_the_same(helms):
    new, old = helms
    for options in ((), VALUES["all that is optional"], VALUES["one port"]):
        assert named(documents(rendered(old, *options))) == named(
            documents(rendered(new, *options))
        )


def test_helm_finds_nothing_to_complain_of(helms):
    for helm in helms:
        subprocess.run([helm, "lint", "--strict", CHART], check=True, capture_output=True)


@pytest.mark.parametrize(
    "wrong",
    [
        "server.replica=3", "autoscaling.kind=vpa", "server.ports.http=0", "image.tagg=1",
        "kserve.priority=0", "server.workers=none", "server.models.path=/x",
    ],
)  # fmt: skip
def test_a_value_that_nothing_reads_is_refused(helms, wrong):
    for helm in helms:
        command = [str(helm), "template", "inferd", str(CHART), "--kube-version=1.30"]
        run = subprocess.run([*command, "--set", wrong], capture_output=True, text=True)
        assert run.returncode != 0
        assert wrong.partition("=")[0].rpartition(".")[2] in run.stderr


# --- what the checks themselves are worth ---


FREE = {
    "labels", "annotations", "matchLabels", "nodeSelector", "requests", "limits", "data"
}  # fmt: skip
"""Fields that are maps, where any key is right."""


def objects_of(value, path=()):
    """Yield each object in a manifest whose fields are known, with its path."""
    if isinstance(value, dict):
        yield path
        for key, inner in value.items():
            is_free = key in FREE or (key == "metadata" and "triggers" in path)
            is_free |= key == "selector" and "matchLabels" not in inner  # of a Service
            if not is_free:
                yield from objects_of(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from objects_of(inner, (*path, number))


def at(manifest, path):
    for key in path:
        manifest = manifest[key]
    return manifest


def test_a_field_that_is_not_known_is_found_wherever_it_is_planted(helm):
    missed, planted = [], 0
    seen = set()
    for one in everything(helm):
        for path in objects_of(one):
            where = one["kind"], *("0" if isinstance(key, int) else key for key in path)
            if where in seen:
                continue
            seen.add(where)
            wrong = copy.deepcopy(one)
            at(wrong, path)["mispelt"] = "x"
            planted += 1
            if not any("mispelt" in fault for fault in faults(wrong)):
                missed.append(where)
    assert planted > 90
    assert missed == []


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Deployment", ("spec", "replicas"), "two"),
        ("Deployment", ("spec", "template", "spec", "terminationGracePeriodSeconds"), 1.5),
        ("Deployment", ("spec", "template", "spec", "containers", 0, "args"), "--http-port=1"),
        ("Service", ("spec", "ports", 0, "port"), "http"),
        ("PodDisruptionBudget", ("spec", "selector"), "inferd"),
        ("HorizontalPodAutoscaler", ("spec", "maxReplicas"), "ten"),
        ("ScaledObject", ("spec", "triggers"), {}),
        ("ScaledObject", ("spec", "triggers", 0, "metadata"), "query"),
        ("ServiceMonitor", ("spec", "endpoints", 0, "interval"), "soon"),
        ("NetworkPolicy", ("spec", "ingress"), "all"),
        ("ClusterServingRuntime", ("spec", "supportedModelFormats", 0, "priority"), 0),
        ("ClusterServingRuntime", ("spec", "containers", 0, "ports", 0, "containerPort"), "http"),
        ("InferenceService", ("spec", "predictor", "minReplicas"), "one"),
        ("InferenceService", ("spec", "predictor", "model", "modelFormat"), "onnx"),
    ],
)
def test_a_wrong_value_is_found(helm, kind, path, value):
    one = next(one for one in everything(helm) if one["kind"] == kind)
    at(one, path)
    wrong = copy.deepcopy(one)
    at(wrong, path[:-1])[path[-1]] = value
    assert any(str(path[-2]) in fault for fault in faults(wrong)), faults(wrong)


def test_a_required_field_that_is_missing_is_found(helm):
    for kind, path in {
        "Deployment": ("spec", "selector"),
        "ScaledObject": ("spec", "scaleTargetRef"),
        "ServiceMonitor": ("spec", "selector"),
        "ClusterServingRuntime": ("spec", "containers"),
    }.items():
        one = copy.deepcopy(next(one for one in everything(helm) if one["kind"] == kind))
        del at(one, path[:-1])[path[-1]]
        assert any(path[-1] in fault for fault in faults(one)), kind


def test_a_kind_that_does_not_exist_is_found():
    assert faults({"apiVersion": "v1", "kind": "Pot", "metadata": {"name": "x"}})


def test_the_dashboard_arrives_whole(helm):
    [one] = documents(manifest(helm, "grafana-dashboard.yaml"))
    assert json.loads(one["data"]["inferd.json"]) == json.loads(DASHBOARD.read_text())
