"""Writes deploy/kubernetes, the plain manifests, from the chart in deploy/helm/inferd.

    python tools/render_manifests.py --helm PROGRAM [--check]

The chart's copy of the dashboard is written, too. With --check nothing is written, and the exit
code is 1 if a file would change.
"""

import argparse
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy/helm/inferd"
FOLDER = ROOT / "deploy/kubernetes"
DASHBOARD = ROOT / "deploy/grafana/inferd.json"

KUBE_VERSION = "1.30"
"""What old versions of helm have to be told: they know none that the chart allows."""

_SERVERLESS = ("--set", "server.enabled=false")

FILES = {
    "inferd.yaml": (),
    "hpa.yaml": ("--set", "autoscaling.kind=hpa", "--show-only", "templates/autoscaling.yaml"),
    "keda.yaml": ("--set", "autoscaling.kind=keda", "--show-only", "templates/autoscaling.yaml"),
    "networkpolicy.yaml": (
        "--set",
        "networkPolicy.enabled=true",
        "--show-only",
        "templates/networkpolicy.yaml",
    ),
    "servicemonitor.yaml": (
        "--set",
        "serviceMonitor.enabled=true",
        "--show-only",
        "templates/servicemonitor.yaml",
    ),
    "grafana-dashboard.yaml": (*_SERVERLESS, "--set", "grafanaDashboard.enabled=true"),
    "kserve/runtimes.yaml": (*_SERVERLESS, "--set", "kserve.enabled=true"),
}
"""File in deploy/kubernetes -> the options of `helm template` that make it."""

_HELMS = ("helm.sh/chart:", "app.kubernetes.io/managed-by:", "# Source:")
"""Lines that are true of what helm installs, and of nothing else."""


@cache
def rendered(helm: str | Path, *options: str) -> str:
    """Return what `helm template` makes of the chart. Raises CalledProcessError."""
    command = [str(helm), "template", "inferd", str(CHART), "--kube-version", KUBE_VERSION]
    run = subprocess.run([*command, *options], check=True, stdout=subprocess.PIPE, text=True)
    return run.stdout


def manifest(helm: str | Path, name: str) -> str:
    """Return the text of one file in deploy/kubernetes."""
    lines = rendered(helm, *FILES[name]).splitlines(keepends=True)
    kept = [line for line in lines if not line.strip().startswith(_HELMS)]
    head = "# Rendered from deploy/helm/inferd by tools/render_manifests.py: change it there.\n"
    return head + "".join(kept)


def main() -> int:
    """Write the files, or compare them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--helm", required=True)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    wanted = {FOLDER / name: manifest(given.helm, name) for name in FILES}
    wanted[CHART / "dashboards/inferd.json"] = DASHBOARD.read_text()
    stale = [file for file, text in wanted.items() if not file.exists() or file.read_text() != text]
    for file in stale:
        print(f"{file.relative_to(ROOT)} {'is stale' if given.check else 'written'}")
        if not given.check:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(wanted[file])
    return int(given.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
