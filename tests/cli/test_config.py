"""inferd config, from its arguments to its exit code."""

import json
import shutil
from pathlib import Path

import pytest

import inferd
from inferd.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples/digits/models"


@pytest.fixture
def models(tmp_path):
    shutil.copytree(EXAMPLES, tmp_path / "models")
    return tmp_path / "models"


def test_what_is_in_force_is_shown_with_what_was_filled_in(models, capsys):
    (models / "digits/config.pbtxt").write_text("max_batch_size: 3 # rows\n")
    assert main(["config", str(models / "digits")]) == 0
    said = capsys.readouterr().out
    assert '\n  max_batch_size: 3\n+ input {\n+   name: "image"\n' in said
    assert main(["config", "digits", "--repository", str(models)]) == 0
    assert capsys.readouterr().out == said


def test_the_configuration_alone_is_written_in_two_forms(models, capsys):
    assert main(["config", str(models / "digits"), "--format=json"]) == 0
    assert json.loads(capsys.readouterr().out)["input"][0]["name"] == "image"
    assert main(["config", str(models / "digits"), "--format=pbtxt"]) == 0
    assert 'backend: "onnxruntime"\n' in capsys.readouterr().out


def test_a_file_is_written_once(models, capsys):
    file = models / "digits/config.pbtxt"
    assert main(["config", str(models / "digits"), "--write"]) == 0
    assert capsys.readouterr().out == f"written: {file}\n"
    text = file.read_text()
    assert "# what a request has to have" in text
    assert main(["config", str(models / "digits"), "--write"]) == 1
    assert "is there already; --force replaces it" in capsys.readouterr().err
    file.write_text("max_batch_size: 3")
    assert main(["config", str(models / "digits"), "--write", "--force"]) == 0
    assert "max_batch_size: 3\n" in file.read_text()
    assert sorted(one.name for one in file.parent.iterdir()) == ["1", "config.pbtxt"]


def test_a_wrong_configuration_is_told_with_its_place(models, capsys):
    (models / "digits/config.pbtxt").write_text("\n max_batch_size: x")
    assert main(["config", str(models / "digits")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "config.pbtxt:2:18: error: max_batch_size: expected a whole number" in err


def test_what_only_a_framework_tells_is_said(models, capsys):
    (models / "t/1").mkdir(parents=True)
    (models / "t/1/model.pt").write_bytes(b"x")
    assert main(["config", str(models / "t")]) == 0
    assert "only the model's framework can tell its inputs" in capsys.readouterr().err


def test_a_server_is_asked(models, capsys):
    (models / "digits/config.pbtxt").write_text("max_batch_size: 3")
    with inferd.Server(model_repository=[str(models)], log_info=False) as server:
        last = server.http_url
        for url in (server.http_url, f"grpc://{server.grpc_url.rpartition('/')[2]}"):
            assert main(["config", "digits", "--url", url, "--format=pbtxt"]) == 0
            assert "max_batch_size: 3\n" in capsys.readouterr().out
        words = ["--url", server.http_url, "--repository", str(models)]
        assert main(["config", "digits", *words]) == 0
        assert "\n  max_batch_size: 3\n+ input {\n" in capsys.readouterr().out
        assert main(["config", "nobody", "--url", server.http_url]) == 1
        assert "inferd models --url" in capsys.readouterr().err
    assert main(["config", "digits", "--url", last]) == 1
    assert "start one with inferd serve, or name another with --url" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ([], 2, "See inferd config --help."),
        (["x", "--format=xml"], 2, "See inferd config --help."),
        (["/nowhere"], 1, "does not exist"),
        (["x", "--write", "--url=http://localhost:1"], 1, "--write is for a model's folder"),
    ],
)
def test_wrong_arguments_are_told(words, code, text, capsys):
    assert main(["config", *words]) == code
    assert text in capsys.readouterr().err


def test_help_says_what_the_marks_mean(capsys):
    assert main(["config", "--help"]) == 0
    assert "marked with\n+, what was filled in" in capsys.readouterr().out
