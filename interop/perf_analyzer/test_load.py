"""perf_analyzer, Triton's load generator in C++, as tritonclient's wheels brought it along."""

import csv
import json
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

    def run(protocol, *flags, fails=False, server=two_ports):
        url = server.grpc if protocol == "grpc" else server.url.split("//")[1]
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


@pytest.mark.parametrize(
    ("protocol", "flags"),
    [
        ("http", ["-x", "1", "-z"]),
        ("http", ["--input-tensor-format=json", "--output-tensor-format=json", "-b", "4"]),
        ("http", ["--input-tensor-format=json", "--output-tensor-format=binary"]),
        ("grpc", ["--streaming", "--shared-memory=system", "-b", "2"]),
        ("grpc", ["--streaming", "--async", "--request-parameter=tokens:3:int"]),
        ("grpc", ["--request-rate-range=50:100:50", "--request-distribution=poisson"]),
        ("grpc", ["--measurement-mode=count_windows", "--measurement-request-count=50"]),
        ("http", ["--concurrency-range=1:4", "--binary-search", "--latency-threshold=1000"]),
        ("http", ["--percentile=95", "-H", "X-Who: me", "--max-threads=2", "--async"]),
        ("http", ["--trace-level=TIMESTAMPS", "--trace-rate=10", "--trace-count=5"]),
        ("grpc", ["--trace-level=TIMESTAMPS", "--trace-rate=10", "--log-frequency=5"]),
    ],
    ids=lambda each: each if isinstance(each, str) else " ".join(each),
)
def test_its_other_ways_to_ask_work(analyze, protocol, flags):
    said, rows = analyze(protocol, "-m", "rows", *flags)
    assert rows
    assert all(float(row["Inferences/Second"]) > 0 for row in rows), said


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("way", [(), ("-b", "2")])
def test_its_files_of_data_say_what_is_sent_and_what_comes_back(analyze, tmp_path, protocol, way):
    rows = [[1.5, -2.0, 0.25], [1e30, 0.0, 7.0]]
    right = [{"INPUT0": {"content": row, "shape": [3]}} for row in rows]
    expected = [{"OUTPUT0": {"content": row, "shape": [3]}} for row in rows]
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"data": right, "validation_data": expected}))
    _, [row] = analyze(protocol, "-m", "rows", f"--input-data={file}", *way)
    assert float(row["Inferences/Second"]) > 0


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_texts_that_it_is_given_are_sent(analyze, tmp_path, protocol):
    flags = ["-m", "echo_BYTES", "--shape=INPUT0:1,2"]
    assert analyze(protocol, *flags, "--string-data=a word")[1]
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"data": [{"INPUT0": {"content": ["ä", "b"], "shape": [1, 2]}}]}))
    assert analyze(protocol, *flags[:2], f"--input-data={file}")[1]
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "INPUT0").write_text("one\ntwo\n")
    assert analyze(protocol, *flags, f"--input-data={folder}")[1]


@pytest.mark.parametrize(
    "flags",
    [
        ["--num-of-sequences=3", "--request-rate-range=200", "--serial-sequences"],
        ["--sequence-id-range=100:200", "--sequence-length=4", "--sequence-length-variation=50"],
        ["--concurrency-range=3", "--sync"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("streams", [(), ("--streaming",)])
def test_sequences_may_be_of_any_shape(analyze, flags, streams):
    if streams and "--sync" in flags:
        flags = [flag for flag in flags if flag != "--sync"]
    said, [row] = analyze("grpc", "-m", "seq", *flags, *streams)
    assert float(row["Inferences/Second"]) > 0, said


def test_what_it_did_is_exported(analyze, tmp_path):
    file = tmp_path / "profile.json"
    analyze("grpc", "-m", "rows", "--streaming", f"--profile-export-file={file}")
    [experiment] = json.loads(file.read_text())["experiments"]
    assert all(one["response_timestamps"] for one in experiment["requests"])


def test_a_decoupled_model_gives_several_answers(analyze, tmp_path):
    """Each of three numbers is an answer; a period begins when so many have come."""
    told = {"IN": [1, 2, 3], "DELAY": [0, 0, 0], "WAIT": [0]}
    data = {name: {"content": values, "shape": [len(values)]} for name, values in told.items()}
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"data": [data]}))
    flags = ["-m", "repeat", "--streaming", "--async", f"--input-data={file}"]
    _, [row] = analyze("grpc", *flags)
    assert float(row["Inferences/Second"]) > 0
    profile = tmp_path / "profile.json"
    periods = ["--periodic-concurrency-range=2:6:2", "--request-period=2"]
    analyze("grpc", *flags, *periods, f"--profile-export-file={profile}")
    [experiment] = json.loads(profile.read_text())["experiments"]
    counts = {len(one["response_timestamps"]) for one in experiment["requests"]}
    assert counts <= {3, 4} and counts


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_it_speaks_tls(analyze, tls, protocol):
    if protocol == "http":
        flags = ["--ssl-https-verify-peer=1", "--ssl-https-verify-host=2"]
        flags += ["--ssl-https-ca-certificates-file", tls.ca, "-u", tls.url]
    else:
        flags = ["--ssl-grpc-use-ssl", "--ssl-grpc-root-certifications-file", tls.ca]
    _, [row] = analyze(protocol, "-m", "rows", *flags, server=tls)
    assert float(row["Inferences/Second"]) > 0


def test_an_unknown_model_is_named(analyze):
    said, _ = analyze("http", "-m", "nobody", fails=True)
    assert "nobody" in said
