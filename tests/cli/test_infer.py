"""inferd infer: one request to a server, or to a model without one."""

import io
import json
import os
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from inferd.cli.infer import repeat_text
from inferd.cli.main import main

ROWS = "--input=x=[[1,2,3],[4,5,6]]"
NGINX = b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nContent-Type: text/html\r\n\r\n<html>404"


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_an_answer_is_shown_with_datatype_dims_and_values(command, protocol):
    said = command("infer", "rows", ROWS, protocol=protocol)
    assert said.code == 0 and said.err == ""
    first, *lines = said.out.splitlines()
    assert first.startswith("rows, version 1, ") and first.endswith(" ms")
    assert lines == ["y  FP32 [2,3]", "  [[1., 2., 3.],", "   [4., 5., 6.]]"]


@pytest.mark.parametrize("more", [[], ["--text"]])
def test_json_has_the_answer_and_nothing_else(command, more):
    found = command("infer", "rows", ROWS, "--json", *more).json
    assert found["model"] == "rows" and len(found["ms"]) == 1
    assert found["outputs"]["y"]["data"] == [[1, 2, 3], [4, 5, 6]]


def test_files_of_every_kind_are_sent(command, tmp_path):
    rows = np.array([[1, 2, 3]], np.float32)
    np.save(tmp_path / "r.npy", rows)
    np.savez(tmp_path / "r.npz", x=rows)
    (tmp_path / "r.csv").write_text("a,b,c\n1,2,3\n")
    (tmp_path / "r.json").write_text(json.dumps({"x": [[1, 2, 3]]}))
    (tmp_path / "r.raw").write_bytes(rows.tobytes())
    words = [
        "x=@{}/r.npy",
        "@{}/r.npz",
        "x=@{}/r.npz:x",
        "x=@{}/r.csv",
        "@{}/r.json",
        "x=@{}/r.raw",
    ]
    for word in words:
        said = command("infer", "rows", "-i", word.format(tmp_path), "--json")
        assert said.code == 0 and said.json["outputs"]["y"]["data"] == [[1, 2, 3]], word
    Image.fromarray(np.arange(12, dtype=np.uint8).reshape(2, 2, 3)).save(tmp_path / "p.png")
    said = command("infer", "pixels", "-i", f"x=@{tmp_path}/p.png", "--json")
    assert np.ravel(said.json["outputs"]["y"]["data"]).tolist() == list(range(12))
    assert "2x2 as 2x2 RGB, pixels 0..255" in said.err


def test_standard_input_is_read(command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"[7]")))
    assert command("infer", "ints", "-i", "x=@-", "--json").json["outputs"]["y"]["data"] == [7]


def test_texts_are_shown_as_such(command):
    assert "  'hi there'\n" in command("infer", "texts", "-i", "x=hi there").out
    assert "  b'\\xff'\n" in command("infer", "texts", "-i", os.fsdecode(b"x=\xff")).out
    deep = "[" * 100_000
    assert "nested too deeply" in command("infer", "texts", "-i", f"x={deep}").err
    assert command("infer", "texts", "-i", "x=a", "--parameter", f"p={deep}").code == 0


def test_inputs_may_be_drawn(command):
    assert command("infer", "rows", "--random").code == 0
    said = command("infer", "ints", "--random")
    assert said.code == 2 and "--shape x:8" in said.err
    assert command("infer", "ints", "--random", "--shape", "x:4").code == 0
    assert "leave --input away" in command("infer", "ints", "--random", "-i", "x=1").err


def test_the_answer_is_written_to_a_file(command, tmp_path):
    file = tmp_path / "out.npz"
    said = command("infer", "rows", ROWS, "-o", str(file))
    assert said.out.endswith(f"written: {file}, {file.stat().st_size} bytes\n")
    with np.load(file) as arrays:
        assert arrays["y"].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_folder_that_is_not_there_is_said_before_anything_is_sent(command, tmp_path):
    said = command("infer", "nobody", ROWS, "-o", str(tmp_path / "none" / "o.npz"))
    assert said.code == 2 and "there is no folder" in said.err


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_sent(
    command, tmp_path, monkeypatch
):
    # The system lets root, whom tests may run as, write to any folder.
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (tmp_path, os.W_OK))
    said = command("infer", "nobody", ROWS, "-o", str(tmp_path / "o.npz"))
    assert said.code == 2 and "cannot be written" in said.err


def test_repeating_says_how_long_it_took(command):
    assert "5 times: median" in command("infer", "rows", ROWS, "--repeat", "5").out
    assert len(command("infer", "rows", ROWS, "--repeat", "5", "--json").json["ms"]) == 5
    assert repeat_text([0.002, 0.001, 0.003]) == (
        "3 times: median 2 ms, from 1 to 3, p95 3, first 2\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rows", "-i", "x=[1.5,2]"], "dims [2], input 'x' of the model takes [-1,3]"),
        (["ints", "-i", "x=1.5"], "float64, input 'x' of the model takes INT32: 1.5 is no INT32"),
        (["rows", "-i", "x=cat"], "has strings, input 'x' of the model takes FP32"),
        (["rows"], "no input is given; the model takes 'x' FP32 [-1,3]"),
        (["rows", "-i", "z=1"], "the model has no input 'z'; it takes 'x' FP32 [-1,3]"),
        (["rows", "-i", "x=@/nowhere.npy"], "cannot read /nowhere.npy: No such file"),
        (["rows", ROWS, "--parameter", "a"], "--parameter a is not NAME=VALUE"),
        (["rows", ROWS, "--header", "a"], "--header a is not NAME:VALUE"),
        (["rows", ROWS, "--api-key-file", "/nowhere"], "cannot read --api-key-file /nowhere"),
        (["rows", ROWS, "--repeat", "0"], "0 is not at least 1"),
        (["rows", ROWS, "--pixels", "0..2"], "invalid choice"),
        ([], "the following arguments are required: MODEL"),
    ],
)
def test_wrong_arguments_and_inputs_are_code_2(command, words, said):
    found = command("infer", *words)
    assert found.code == 2 and said in found.err and not found.out


def test_an_unknown_model_is_named_with_the_way_to_those_there_are(command, served):
    said = command("infer", "nobody", ROWS)
    assert said.code == 1 and "nobody" in said.err
    assert f"inferd models --url {served.http_url}" in said.err


def test_no_server_is_said_with_what_to_do(command, dead_url):
    said = command("infer", "rows", ROWS, url=dead_url)
    assert said.code == 1 and f"no server listens at {dead_url}" in said.err
    assert "start one with inferd serve, or name another with --url" in said.err


def test_a_port_of_another_protocol_is_named(command, served):
    said = command("infer", "rows", ROWS, url=f"http://{served.grpc_url}")
    assert said.code == 1 and "grpc://" in said.err and "See --url" not in said.err
    said = command("infer", "rows", ROWS, url=served.metrics_url.removesuffix("/metrics"))
    assert said.code == 1 and "a server that speaks V2? See --url" in said.err
    said = command("infer", "rows", ROWS, url=served.http_url.replace("http", "grpc"))
    assert said.code == 1 and "http://" in said.err
    said = command("infer", "rows", ROWS, url=served.http_url.replace("http", "https"))
    assert said.code == 1 and "is it http://?" in said.err


def test_a_server_of_another_kind_is_noticed(command, other_server):
    said = command("infer", "rows", ROWS, url=other_server(NGINX))
    assert said.code == 1 and "a server that speaks V2?" in said.err
    said = command("infer", "rows", ROWS, url=other_server(b"SSH-2.0-OpenSSH_9.2\r\n"))
    assert said.code == 1 and "does not answer with HTTP" in said.err


def test_a_server_that_streams_over_grpc_alone_is_noticed(command, other_server):
    said = command("infer", "rows", ROWS, "--stream", url=other_server(NGINX))
    assert said.code == 1 and "streams over gRPC: --url grpc://..." in said.err


def test_a_url_that_is_none_is_code_2(command):
    said = command("infer", "rows", ROWS, url="ftp://host")
    assert said.code == 2 and "grpc://HOST:PORT" in said.err


@pytest.mark.slow
def test_a_model_file_needs_no_server(command, tmp_path):
    (tmp_path / "same" / "1").mkdir(parents=True)
    config = 'backend: "identity"\ninput { name: "x" data_type: TYPE_INT32 dims: [ -1 ] }\n'
    config += 'output { name: "y" data_type: TYPE_INT32 dims: [ -1 ] }\n'
    (tmp_path / "same" / "config.pbtxt").write_text(config)
    said = command("infer", str(tmp_path / "same"), "-i", "x=[1,2]", "--json", url="")
    assert said.code == 0 and said.json["outputs"]["y"]["data"] == [1, 2]
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    said = command("infer", str(tmp_path / "bad.onnx"), "-i", "x=1", url="")
    assert said.code == 1 and "bad" in said.err


def test_what_was_measured_until_ctrl_c_is_shown(command, monkeypatch):
    """The third request is interrupted."""
    import inferd.client

    infer, sent = inferd.client.Client.infer, []

    def interrupted(*given, **more):
        sent.append(1)
        if len(sent) == 3:
            signal.raise_signal(signal.SIGINT)
        return infer(*given, **more)

    monkeypatch.setattr(inferd.client.Client, "infer", interrupted)
    said = command("infer", "rows", ROWS, "--repeat", "9")
    assert said.code == 130 and "2 times: median" in said.out


def test_help_shows_how(capsys):
    assert main(["infer", "--help"]) == 0
    text = capsys.readouterr().out
    assert "inferd infer digits --input image=@seven.png" in text and "NAME=@FILE" in text


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_answers_of_a_stream_are_shown_one_by_one(command, protocol):
    words = ["infer", "counted", "-i", "count=3", "--stream"]
    lines = command(*words, "--json", protocol=protocol).out.splitlines()
    values = [np.ravel(json.loads(one)["outputs"]["output"]["data"]).tolist() for one in lines]
    assert values == [[0], [1], [2]]
    assert command(*words, protocol=protocol).out.count("counted, version 1") == 3
    assert command(*words, "--repeat", "2").code == 2
