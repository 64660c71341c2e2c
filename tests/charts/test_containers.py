"""The containers of the chart as processes: their arguments start a server that answers."""

import http.client
import json
import re
import shutil
import socket

import pytest
import yaml
from render_manifests import rendered
from rendering import ROOT, VALUES, documents, named
from server_process import Process

import inferd
from inferd.cli.command_line.flags import read_command_line
from inferd.config.sources import read_settings

SCALING = ("HorizontalPodAutoscaler", "ScaledObject")


def metrics_of_scaling(helm):
    """Return the names of the metrics by which the chart scales."""
    text = rendered(helm, *VALUES["all that is optional"]) + rendered(
        helm, *VALUES["hpa without cpu"]
    )
    scaling = [one for one in documents(text) if one["kind"] in SCALING]
    assert {one["kind"] for one in scaling} == set(SCALING)
    return set(re.findall(r"\b(?:inferd|nv)_[a-z_]+", json.dumps([one["spec"] for one in scaling])))


def containers(helm):
    """Yield (name, manifest, pod, container) of every container that the chart renders."""
    for which in VALUES:
        for key, one in named(documents(rendered(helm, *VALUES[which]))).items():
            spec = (
                one["spec"]["template"]["spec"]
                if one["kind"] == "Deployment"
                else one["spec"]
                if (one["kind"] == "ClusterServingRuntime")
                else None
            )
            for container in (spec or {}).get("containers", []):
                yield (which, *key), one, spec, container


def ask(port, path, body=None):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        client.request("GET" if body is None else "POST", path, body)
        answer = client.getresponse()
        return answer.status, answer.read()
    finally:
        client.close()


def free_ports(numbers):
    """Return a free port for each of the ports of a container."""
    sockets = {number: socket.create_server(("127.0.0.1", 0)) for number in set(numbers)}
    found = {number: one.getsockname()[1] for number, one in sockets.items()}
    for one in sockets.values():
        one.close()
    return found


def mounted(container, models):
    """Return the container's arguments with its folders and ports replaced, and the ports."""
    places = {
        mount["mountPath"]: str(models / mount["name"]) for mount in container["volumeMounts"]
    }
    places |= {"/mnt/models": str(models / "models"), "s3://bucket/models": str(models / "models")}
    ports = free_ports(port["containerPort"] for port in container["ports"])
    arguments = []
    for argument in container["args"]:
        flag, _, value = argument.partition("=")
        if flag in ("--http-port", "--grpc-port", "--metrics-port"):
            value = str(ports[int(value)])
        for mount, place in places.items():
            value = re.sub(rf"^{re.escape(mount)}(?=/|$)", place, value)
        arguments.append(f"{flag}={value}".replace("{{.Name}}", "digits"))
    return arguments, ports


def write_models(folder, arguments):
    """Write a model as the arguments want it: a bare file if they name it, else a repository."""
    source = ROOT / "examples/digits/models/digits/1/model.onnx"
    is_alone = any(argument.startswith("--model-name=") for argument in arguments)
    target = folder / "models" / ("style.onnx" if is_alone else "digits/1/model.onnx")
    target.parent.mkdir(parents=True)
    shutil.copy(source, target)
    (folder / "api-keys").mkdir()
    (folder / "api-keys/api-keys").write_text("")


def test_the_arguments_of_every_container_are_options_of_ours(helm):
    count = 0
    for name, _, _, container in containers(helm):
        line = read_command_line(container["args"])
        settings = read_settings(line.flags, {})
        assert (name, settings.warnings) == (name, ())
        count += 1
    assert count >= len(VALUES) + 7


def test_a_pod_is_given_the_time_that_its_server_takes(helm):
    for name, _, pod, container in containers(helm):
        config = read_settings(read_command_line(container["args"]).flags, {}).config
        grace = pod.get("terminationGracePeriodSeconds", 30)
        assert grace > config.exit_timeout_secs > config.drain_delay > 0, name


def test_probes_services_and_monitors_name_ports_that_are_there(helm):
    for which in VALUES:
        manifests = named(documents(rendered(helm, *VALUES[which])))
        deployment = manifests["Deployment", "inferd"]["spec"]["template"]
        [container] = deployment["spec"]["containers"]
        ports = {port["name"] for port in container["ports"]}
        probes = [
            container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")
        ]
        assert {probe["port"] for probe in probes} <= ports
        services = [one for one in manifests.values() if one["kind"] == "Service"]
        for service in services:
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
            labels = deployment["metadata"]["labels"]
            assert service["spec"]["selector"].items() <= labels.items()
            numbers = [port["port"] for port in service["spec"]["ports"]]
            assert len(set(numbers)) == len(numbers)
        for monitor in (one for one in manifests.values() if one["kind"] == "ServiceMonitor"):
            wanted = monitor["spec"]["selector"]["matchLabels"].items()
            [chosen] = [one for one in services if wanted <= one["metadata"]["labels"].items()]
            [endpoint] = monitor["spec"]["endpoints"]
            assert endpoint["port"] in {port["name"] for port in chosen["spec"]["ports"]}


@pytest.mark.parametrize(
    "name",
    [
        ("as it is", "Deployment", "inferd"),
        ("one port", "Deployment", "inferd"),
        ("models from a cloud", "Deployment", "inferd"),
        ("all that is optional", "ClusterServingRuntime", "inferd-onnx"),
        ("all that is optional", "ClusterServingRuntime", "inferd-triton"),
        ("all strings and lists", "ClusterServingRuntime", "inferd-tables"),
    ],
    ids=" ".join,
)
def test_a_container_starts_is_ready_for_its_probes_and_answers(helm, tmp_path, name):
    found = {key: (one, container) for key, one, _, container in containers(helm)}
    one, container = found[name]
    arguments, ports = mounted(container, tmp_path)
    write_models(tmp_path, arguments)
    server = Process("--http-address=127.0.0.1", "--grpc-address=127.0.0.1", *arguments)
    try:
        server.wait_for(r"is live at")
        server.wait_for(r"\bready\b")
        numbers = {port["name"]: ports[port["containerPort"]] for port in container["ports"]}
        numbers |= ports
        for kind in ("readinessProbe", "livenessProbe"):
            probe = container[kind]["httpGet"]
            assert ask(numbers[probe["port"]], probe["path"])[0] == 200
        http_port = ports[container["ports"][0]["containerPort"]]
        body = (ROOT / "examples/digits/digit.json").read_bytes()
        status, answer = ask(http_port, "/v2/models/digits/infer", body)
        assert (status, len(json.loads(answer)["outputs"])) == (200, 2)
        if one["kind"] == "ClusterServingRuntime":
            scraped = one["spec"]["annotations"]
            port, path = scraped["prometheus.kserve.io/port"], scraped["prometheus.kserve.io/path"]
            status, text = ask(ports[int(port)], path)
        else:
            status, text = ask(numbers.get("metrics", http_port), "/metrics")
        assert status == 200
        told = set(re.findall(r"^(\w+)", text.decode(), re.MULTILINE))
        assert {"inferd_inflight_requests"} <= metrics_of_scaling(helm) <= told
        server.process.terminate()
        assert server.end() == 0
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()


def test_the_schema_of_values_knows_all_values():
    schema = json.loads((ROOT / "deploy/helm/inferd/values.schema.json").read_text())
    values = yaml.safe_load((ROOT / "deploy/helm/inferd/values.yaml").read_text())

    def names(properties, given, path=""):
        for key, value in given.items():
            assert key in properties, f"{path}{key}"
            inner = properties[key].get("properties")
            if isinstance(value, dict) and inner:
                assert set(inner) >= set(value)
                names(inner, value, f"{path}{key}.")

    names(schema["properties"], values)
    chart = yaml.safe_load((ROOT / "deploy/helm/inferd/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == inferd.__version__
