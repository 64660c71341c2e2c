"""inferd bench, against a server in this process."""

import json
import signal

import numpy as np
import pytest

from inferd.cli.main import main

SHORT = ["--seconds", "0.3", "--warmup", "0.1"]
ENOUGH = ["--seconds", "2", "--warmup", "0"]  # for an answer, however busy the machine is


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_point_for_each_concurrency_with_the_servers_own_account(command, protocol):
    words = ["-c", "1,2", "--seconds", "1", "--warmup", "0.2", "--json"]
    said = command("bench", "rows", *words, protocol=protocol)
    assert said.code == 0 and not said.err
    one, two = said.json["points"]
    assert (one["concurrency"], two["concurrency"]) == (1, 2)
    for point in (one, two):
        assert point["answered"] > 0 and point["errors"] == {} and point["per_s"] > 0
        assert point["server"]["count"] > 0 and point["cpu_us"] > 0
    how = "gRPC" if protocol == "grpc" else "REST binary"
    assert said.json["request"] == f"{how}: x FP32 [1,3]"


@pytest.mark.slow
def test_a_table_a_document_and_a_page_are_written(command, tmp_path):
    files = ["-o", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html")]
    said = command("bench", "rows", "-r", "50", "--poisson", *SHORT, *files)
    assert said.code == 0
    first, head, row, *lines = said.out.splitlines()
    assert first.startswith("rows at http://") and head.split()[:2] == ["load", "req/s"]
    assert row.split()[0] == "50/s" and f"written: {files[3]}" in lines
    assert json.loads((tmp_path / "r.json").read_text())["points"][0]["rate"] == 50
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    "words", [["--text"], ["--batch", "4", "--varied", "3"], ["--processes", "2"]]
)
@pytest.mark.slow
def test_requests_may_be_json_larger_different_and_from_several_processes(command, words):
    said = command("bench", "rows", "-c", "2", *SHORT, "--json", *words)
    assert said.code == 0 and said.json["points"][0]["errors"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_recorded_requests_are_sent_at_their_times(command, tmp_path, processes):
    entry = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    lines = [{"time": 5 + at / 20, "request": {"inputs": [entry]}} for at in range(9)]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    words = ["--requests", f"{tmp_path}/r.jsonl", "--speed", "1,2", "--processes", str(processes)]
    said = command("bench", "rows", *words, "--json")
    assert said.code == 0, said.err
    assert [one["name"] for one in said.json["points"]] == ["1 x", "2 x"]
    assert [one["answered"] for one in said.json["points"]] == [9, 9]
    assert said.json["points"][1]["seconds"] < said.json["points"][0]["seconds"]


@pytest.mark.slow
def test_inputs_come_from_files_too(command, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    said = command("bench", "rows", "-c", "1", *SHORT, "--json", "-i", f"x=@{tmp_path}/x.npy")
    assert said.json["request"] == "REST binary: x FP32 [2,3]"
    entry = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    lines = [json.dumps({"inputs": [entry]})] * 2
    (tmp_path / "r.jsonl").write_text("\n".join(lines))
    said = command(
        "bench", "rows", "-c", "1", *SHORT, "--json", "--requests", f"{tmp_path}/r.jsonl"
    )
    assert "2 different requests" in said.json["request"]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_streams_have_a_first_answer(command, protocol):
    words = ["-i", "count=[5]", "--stream", "-c", "2", "--seconds", "2", "--warmup", "0", "--json"]
    said = command("bench", "counted", *words, protocol=protocol)
    [point] = said.json["points"]
    assert point["errors"] == {} and point["answers_per_request"] == 5
    said = command("bench", "counted", "-i", "count=[5]", *SHORT, protocol=protocol)
    assert said.code == 2 and "add --stream" in said.err


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_sequences_are_sent_in_order_to_their_end(command, protocol):
    words = ["-c", "2", *ENOUGH, "--sequence-length", "3", "--json"]
    said = command("bench", "seq", *words, protocol=protocol)
    [point] = said.json["points"]
    assert point["errors"] == {} and point["answered"] > 0
    assert said.json["request"].endswith("sequences of 3")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rows", "-c", "0"], "--concurrency 0"),
        (["rows", "-c", "1", "-r", "1"], "give one"),
        (["rows", "--poisson"], "give --rate"),
        (["rows", "--sequence-length", "2", "-r", "1"], "give --concurrency"),
        (["rows", "--sequence-length", "-1", "-c", "1"], "-1 is not at least 1"),
        (["rows", "--seconds", "0"], "0 is not more than 0"),
        (["ints"], "--shape x:8"),
        (["ints", "--shape", "x:4", "--batch", "2"], "takes no batches"),
        (["rows", "-i", "x=1.5"], "dims [1], input 'x' of the model takes [-1,3]"),
        (["rows", "--requests", "/nowhere"], "cannot read /nowhere"),
        (["rows", "--speed", "2"], "--speed is for the recorded requests of --requests"),
        (["rows", "--speed", "2", "--rate", "1", "--requests", "f"], "give one"),
        (["rows", "--speed", "fast", "--requests", "f"], "--speed is 'fast'"),
        (["rows", "-i", "x=1", "--requests", "f"], "give one"),
        (["rows", "--html", "/nowhere/r.html"], "name another folder than /nowhere"),
        (["rows", "--processes", "0"], "0 is not at least 1"),
        (["rows", "--processes", "x"], "'x' is no whole number"),
        (["rows", "--seconds", "1m"], "'1m' is no number"),
        (["rows", "--warmup", "nan"], "nan is not from 0 to 1e6"),
        (["rows", "--seed", "-1"], "-1 is not from 0 to 2^63 - 1"),
        (["rows", "--seed", str(2**63)], "is not from 0 to 2^63 - 1"),
        (["rows", "--varied", "99999999999"], "--varied 99999999999 are more than 100000 requests"),
    ],
)
def test_wrong_arguments_are_code_2(command, words, said):
    found = command("bench", *words)
    assert found.code == 2 and said in found.err and not found.out


def test_unknown_models_and_dead_servers_are_code_1(command, dead_url):
    said = command("bench", "nobody")
    assert said.code == 1 and "nobody" in said.err and "inferd models" in said.err
    said = command("bench", "rows", url=dead_url)
    assert said.code == 1 and "no server listens at" in said.err


@pytest.mark.slow
def test_ctrl_c_shows_what_was_measured(command, monkeypatch):
    """The signal comes with the first progress of the second point."""
    from inferd.cli import bench

    shown, points = bench._shown, []

    def interrupting(*arguments):
        show = shown(*arguments)

        def interrupted(point, share, now):
            if point.concurrency == 2 and not points:
                points.append(point)
                signal.raise_signal(signal.SIGINT)
            show(point, share, now)

        return interrupted

    monkeypatch.setattr(bench, "_shown", interrupting)
    said = command("bench", "rows", "-c", "1,2,4", "--seconds", "0.5", "--warmup", "0", "--json")
    assert said.code == 130 and not said.json["is_whole"]
    assert said.json["points"][0]["name"] == "1"
    assert len(said.json["points"]) <= 2


def test_help_shows_how(capsys):
    assert main(["bench", "--help"]) == 0
    text = capsys.readouterr().out
    assert "inferd bench resnet --url grpc://host:8001" in text and "--processes" in text


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("model", ["rows", "texts"])
def test_tensors_may_lie_in_shared_memory(command, protocol, model):
    words = ["-c", "3", *ENOUGH, "--json", "--shared-memory"]
    words += ["--shape", "x:4"] if model == "texts" else ["--varied", "2"]
    said = command("bench", model, *words, protocol=protocol)
    [point] = said.json["points"]
    assert point["errors"] == {} and point["answered"] > 0
    assert said.json["request"].endswith("in shared memory")
    said = command("bench", model, *words, "--stream", protocol=protocol)
    assert said.code == 2 and "one answer each" in said.err
