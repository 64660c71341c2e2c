"""inferd check, from its arguments to its exit code."""

import pytest

from inferd.cli.check import HELP
from inferd.cli.main import main


@pytest.fixture
def models(tmp_path):
    for name in ("good/m", "bad/n"):
        (tmp_path / name / "1").mkdir(parents=True)
    (tmp_path / "good/m/config.pbtxt").write_text('backend: "identity"')
    (tmp_path / "bad/n/config.pbtxt").write_text('\n backendd: "identity"')
    return tmp_path


def test_sound_models_end_with_0(models, capsys):
    assert main(["check", str(models / "good")]) == 0
    assert capsys.readouterr() == ("1 model: nothing to mend\n", "")


def test_errors_end_with_1_and_are_told_with_their_place(models, capsys, monkeypatch):
    monkeypatch.chdir(models)
    assert main(["check", "good", "bad"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("bad/n/config.pbtxt:2:2: error: ModelConfig has no field 'backendd'")
    assert said.endswith("2 models: 1 error\n")


def test_warnings_count_only_where_that_is_asked(models, capsys):
    (models / "good/left.onnx").write_bytes(b"x")
    assert main(["check", str(models / "good")]) == 0
    assert main(["check", str(models / "good"), "--strict"]) == 1
    assert capsys.readouterr().out.count("1 warning") == 2


@pytest.mark.parametrize(
    ("words", "begin"),
    [
        (["--json"], '{\n  "models": 1,\n  "errors": 1,'),
        (["--format=json"], '{\n  "models": 1,'),
        (["--format", "sarif"], '{\n  "$schema": '),
        (["--format=github"], "::error file="),
    ],
)
def test_other_forms_are_written(models, capsys, words, begin):
    assert main(["check", str(models / "bad"), *words]) == 1
    assert capsys.readouterr().out.startswith(begin)


def test_what_only_a_framework_tells_is_said(models, capsys):
    (models / "good/m/config.pbtxt").write_text('backend: "pytorch"')
    (models / "good/m/1/model.pt").write_bytes(b"x")
    main(["check", str(models / "good")])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "not read without a framework, so only --load tells more: m"


@pytest.mark.parametrize("words", [[], ["--nonsense", "x"], ["--format=xml", "x"]])
def test_wrong_arguments_end_with_2(words, capsys):
    assert main(["check", *words]) == 2
    assert capsys.readouterr().err.endswith("See inferd check --help.\n")


def test_a_repository_in_a_cloud_is_not_read(capsys):
    assert main(["check", "s3://bucket/models"]) == 2
    assert "copy it, and check the copy" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_is_printed(word, capsys):
    assert main(["check", word]) == 0
    assert capsys.readouterr().out == HELP


def test_help_fits_a_narrow_terminal():
    assert max(map(len, HELP.splitlines())) <= 98


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9", "x"])
def test_a_time_limit_that_is_none_is_a_wrong_argument(models, capsys, seconds):
    words = ["--load", "--load-timeout", seconds]
    assert main(["check", str(models / "good"), *words]) == 2
    assert (
        f"argument --load-timeout: {seconds if seconds != 'x' else repr('x')} is n"
        in capsys.readouterr().err
    )
