import numpy as np
import pytest

from inferd.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["{folder}/no.skops", "-o", "x.onnx"], 1, "no.skops does not exist"),
        (["{folder}", "-o", "x.onnx"], 1, "is a folder: name the model's file in it"),
        (["{folder}/model.txt", "-o", "x.onnx"], 1, "say --library=sklearn|xgboost|lightgbm"),
        (["{folder}/model.skops"], 2, "-o/--output"),
        (["{folder}/model.skops", "-o", "x.onnx", "--tolerance=-1"], 1, "--tolerance is -1.0"),
        (["{folder}/model.skops", "-o", "x.onnx", "--sample={folder}/no.npz"], 1, "No such file"),
        (["{folder}/model.skops", "-o", "x.onnx", "--sample={folder}/odd.npz"], 1, "same number"),
        (["{folder}/model.skops", "-o", "x.onnx", "--sample={folder}/deep.npz"], 1, "[rows] for"),
        (["{folder}/model.ubj", "-o", "x.onnx", "--library=nobody"], 2, "invalid choice"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, capsys, arguments, code, text):
    for name in ("model.skops", "model.txt", "model.ubj"):
        (tmp_path / name).write_bytes(b"")
    np.savez(tmp_path / "odd.npz", a=np.zeros(3), b=np.zeros(4))
    np.savez(tmp_path / "deep.npz", a=np.zeros((3, 2)), b=np.zeros(3))
    assert main(["convert", *(one.format(folder=tmp_path) for one in arguments)]) == code
    assert text in capsys.readouterr().err
    assert not list(tmp_path.glob("*.onnx"))


def test_help_says_what_is_compared(capsys):
    assert main(["convert", "--help"]) == 0
    assert "drawn around the model's own thresholds" in capsys.readouterr().out
