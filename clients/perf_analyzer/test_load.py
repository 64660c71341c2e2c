"""perf_analyzer, Triton's load generator in C++, as tritonclient's wheels brought it along."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import nvidia.cuda_runtime
import pytest

PROGRAM = Path(sys.executable).with_name("perf_analyzer")
CUDA = Path(nvidia.cuda_runtime.__path__[0]) / "lib"
SHORT = ["-p", "200", "-r", "3", "-s", "1000000"]  # measured for 0.2 s, however much it varies
SERVER_COUNT = re.compile(r"Server: *\n.*?Successful request count: (\d+)", re.DOTALL)


@pytest.fixture
def analyze(two_ports, tmp_path):
    """analyze(protocol, flags...) runs the program; returns what it says and its table's rows."""

    def run(protocol, *flags, fails=False):
        url = two_ports.grpc if protocol == "grpc" else two_ports.url.split("//")[1]
        table = tmp_path / "table.csv"
        command = [PROGRAM, "-i", protocol, "-u", url, "-f", table, *SHORT, *flags]
        environ = {**os.environ, "LD_LIBRARY_PATH": str(CUDA)}
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=50, check=False
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        rows = list(csv.DictReader(table.read_text().splitlines())) if table.exists() else []
        return done.stdout + done.stderr, rows

    return run


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--async",),
        ("-b", "8"),
        ("--shared-memory=system", "--output-shared-memory-size=1024"),
        ("--request-rate-range=100",),
    ],
    ids=["sync", "async", "batch", "shared memory", "rate"],
)
def test_what_it_measures_the_server_has_counted(analyze, protocol, flags):
    said, [row] = analyze(protocol, "-m", "rows", *flags)
    assert float(row["Inferences/Second"]) > 0
    assert int(SERVER_COUNT.search(said)[1]) > 0


def test_each_concurrency_of_a_range_is_measured(analyze):
    _, rows = analyze("grpc", "-m", "rows", "--concurrency-range=1:4")
    assert sorted(row["Concurrency"] for row in rows) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("how", ["none", "gzip", "deflate"])
def test_messages_may_be_compressed(analyze, how):
    _, [row] = analyze("grpc", "-m", "rows", f"--grpc-compression-algorithm={how}")
    assert float(row["Inferences/Second"]) > 0


@pytest.mark.parametrize("flags", [("grpc", "--streaming"), ("grpc", "--async"), ("http",)])
def test_sequences_are_kept_apart(analyze, flags):
    protocol, *more = flags
    said, [row] = analyze(protocol, "-m", "seq", "--sequence-length=5", *more)
    assert float(row["Inferences/Second"]) > 0
    assert int(SERVER_COUNT.search(said)[1]) > 0


def test_metrics_are_collected_meanwhile(analyze, two_ports):
    flags = ["--collect-metrics", f"--metrics-url={two_ports.metrics}", "--metrics-interval=50"]
    said, _ = analyze("grpc", "-m", "rows", *flags)
    assert "Failed" not in said


def test_labels_and_strings_are_no_obstacle(analyze):
    _, [row] = analyze("http", "-m", "echo_BYTES", "--shape=INPUT0:2,3", "--string-length=16")
    assert float(row["Inferences/Second"]) > 0


def test_an_unknown_model_is_named(analyze):
    said, _ = analyze("http", "-m", "nobody", fails=True)
    assert "nobody" in said
