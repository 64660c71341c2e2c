"""The suite against a server that is right, then one that breaks each point: it must tell."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.old_faults import ALL_FAULTS as FAULTS

HERE = Path(__file__).parent
Addresses = dict[str, str]


@pytest.fixture(scope="module")
def addresses() -> Iterator[Addresses]:
    """The wrong server, and where it listens."""
    command = [sys.executable, "-m", "conformance.wrong_server"]
    with subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()


def run_suite(addresses: Addresses, report: Path, *options: str) -> dict[str, Any]:
    """Run the suite and return its report."""
    command = [
        sys.executable, "-m", "pytest", str(HERE), "-q", "--tb=no", "--report", str(report),
        "--url", addresses["url"], "--grpc", addresses["grpc"],
        "--metrics-url", addresses["metrics"],
        "--unready-url", addresses["unready"],
        "--restricted-url", addresses["restricted"],
        "--unshared-url", addresses["unshared"],
        "--explicit-url", addresses["explicit"], *options,
    ]  # fmt: skip
    ended = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
    assert report.exists(), ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads(report.read_text())
    return found


@pytest.mark.timeout(600)
def test_a_right_server_passes_every_point(addresses: Addresses, tmp_path: Path):
    report = run_suite(addresses, tmp_path / "report.json")
    assert report["unexplained"] == []
    assert [row for row in report["points"] if row["state"] != "passed"] == []


@pytest.mark.timeout(600)
def test_every_point_turns_red_under_its_fault(addresses: Addresses, tmp_path: Path):
    report = run_suite(addresses, tmp_path / "report.json", "--break", addresses["control"])
    rows = report["points"]
    assert {row["point"] for row in rows} == set(FAULTS)
    assert [row["point"] for row in rows if row["state"] != "failed"] == []
