"""inferd check, from its arguments to its exit code."""

import pytest

from inferd.cli.check import HELP
from inferd.cli.main import main


@pytest.fixture
def models(tmp_path):
    for name in ("good", "bad"):
        (tmp_path / name / "m" / "1").mkdir(parents=True)
    (tmp_path / "good/m/config.pbtxt").write_text('backend: "identity"')
    (tmp_path / "bad/m/config.pbtxt").write_text('\n backendd: "identity"')
    return tmp_path


def test_sound_models_end_with_0(models, capsys):
    assert main(["check", str(models / "good")]) == 0
    assert capsys.readouterr() == ("1 model: nothing to mend\n", "")


def test_errors_end_with_1_and_are_told_with_their_place(models, capsys, monkeypatch):
    monkeypatch.chdir(models)
    assert main(["check", "good", "bad"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("bad/m/config.pbtxt:2:2: error: ModelConfig has no field 'backendd'")
    assert said.endswith("2 models: 1 error\n")


def test_warnings_count_only_where_that_is_asked(models, capsys):
    (models / "good/left.onnx").write_bytes(b"x")
    assert main(["check", str(models / "good")]) == 0
    assert main(["check", str(models / "good"), "--strict"]) == 1
    assert capsys.readouterr().out.count("1 warning") == 2


@pytest.mark.parametrize("words", [[], ["--nonsense", "x"]])
def test_wrong_arguments_end_with_2(words, capsys):
    assert main(["check", *words]) == 2
    assert capsys.readouterr().err.endswith("See inferd check --help.\n")


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_is_printed(word, capsys):
    assert main(["check", word]) == 0
    assert capsys.readouterr().out == HELP


def test_help_fits_a_narrow_terminal():
    assert max(map(len, HELP.splitlines())) <= 98
