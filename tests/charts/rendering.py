"""What the chart renders with several values, read back."""

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]

VALUES = {
    "as it is": (),
    "all that is optional": (
        "--set", "kserve.enabled=true", "--set", "networkPolicy.enabled=true",
        "--set", "serviceMonitor.enabled=true", "--set", "grafanaDashboard.enabled=true",
        "--set", "autoscaling.kind=keda", "--set", "autoscaling.latencyMilliseconds=500",
    ),
    "one port": (
        "--set", "server.ports.grpc=8000", "--set", "server.ports.metrics=8000",
        "--set", "serviceMonitor.enabled=true", "--set", "networkPolicy.enabled=true",
    ),
    "hpa without cpu": ("--set", "autoscaling.kind=hpa", "--set", "autoscaling.cpuUtilization=0"),
    "all strings and lists": (
        "--set-json", "server.args=[\"--model-control-mode=poll\"]",
        "--set-json", "server.env=[{\"name\": \"A\", \"value\": \"b\"}]",
        "--set-json", "server.envFrom=[{\"secretRef\": {\"name\": \"cloud\"}}]",
        "--set-json", "server.tolerations=[{\"operator\": \"Exists\"}]",
        "--set-json", "server.extraVolumes=[{\"name\": \"x\", \"emptyDir\": {}}]",
        "--set-json", "server.extraVolumeMounts=[{\"name\": \"x\", \"mountPath\": \"/x\"}]",
        "--set-json", "image.pullSecrets=[{\"name\": \"registry\"}]",
        "--set-json", "networkPolicy.from=[{\"podSelector\": {\"matchLabels\": {\"a\": \"b\"}}}]",
        "--set", "networkPolicy.enabled=true", "--set", "server.apiKeySecret=keys",
        "--set", "server.podLabels.team=a", "--set", "server.podAnnotations.note=b",
        "--set", "server.nodeSelector.disk=ssd", "--set", "server.priorityClassName=high",
        "--set", "server.serviceAccountName=inferd", "--set", "server.workers=auto",
        "--set", "server.service.type=LoadBalancer", "--set", "server.service.annotations.c=d",
        "--set", "kserve.enabled=true", "--set", "kserve.allowPickle=true",
    ),
    "models from a cloud": (
        "--set-json", "server.models={\"paths\": [\"s3://bucket/models\"], \"volume\": null}",
    ),
}  # fmt: skip


def documents(text):
    return [one for one in yaml.safe_load_all(text) if one]


def named(manifests):
    return {(one["kind"], one["metadata"]["name"]): one for one in manifests}
