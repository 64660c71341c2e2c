"""The containers of KServe's stock runtimes start the server, and answer in V2."""

import json
import shutil
import sys
from pathlib import Path

import lightgbm
import numpy as np
import pytest
from stock_runtimes import MLSERVER_DEFAULTS, STOCK, Container, call, served, started

ROOT = Path(__file__).parents[2]
DIGIT = 3  # what the model sees in the picture
ROWS = [[1.0, 2.0], [3.0, 4.0]]


def write_onnx(folder):
    shutil.copytree(ROOT / "examples/digits/models/digits/1", folder)


def write_lightgbm(folder):
    data = lightgbm.Dataset(np.array(ROWS * 20), [3.0, 7.0] * 20)
    exact = {"verbosity": -1, "min_data_in_leaf": 1, "learning_rate": 1.0}
    booster = lightgbm.train(exact, data, 2)
    folder.mkdir()
    booster.save_model(folder / "model.bst")


def digit():
    return json.loads((ROOT / "examples/digits/digit.json").read_text())


def rows():
    tensor = {"name": "input-0", "datatype": "FP64", "shape": [2, 2], "data": ROWS}
    return {"inputs": [tensor]}


@pytest.mark.slow
def test_tritons_container_serves_a_repository(tmp_path):
    write_onnx(tmp_path / "digits/1")
    container = STOCK["kserve-tritonserver"].filled(tmp_path)
    found, said = served(container, {}, "digits", digit())
    assert found == [DIGIT]
    assert "not served here" not in said


@pytest.mark.slow
def test_tritons_container_serves_one_model_under_the_name_of_the_service(tmp_path):
    write_onnx(tmp_path / "1")
    container = STOCK["kserve-tritonserver"].filled(tmp_path)
    found, _ = served(container, {"INFERENCE_SERVICE_NAME": "iris"}, "iris", digit())
    assert found == [DIGIT]


@pytest.mark.slow
def test_mlservers_container_serves_what_its_variables_name(tmp_path):
    write_lightgbm(tmp_path / "models")
    stock = STOCK["kserve-mlserver"]
    container = Container(env=dict(stock.env) | MLSERVER_DEFAULTS)
    container = container.filled(tmp_path / "models", "mlserver_lightgbm.LightGBMModel")
    found, _ = served(container, {}, "iris", rows())
    assert found == pytest.approx([3, 7])


@pytest.mark.slow
def test_mlservers_container_with_code_of_its_own_answers_nothing_in_its_place(tmp_path):
    write_lightgbm(tmp_path / "models")
    container = Container(env=dict(STOCK["kserve-mlserver"].env) | MLSERVER_DEFAULTS)
    server = started(container.filled(tmp_path / "models", "mine.Calibrated"), {})
    try:
        port = server.wait_live()
        server.wait_for(r"asks for 'mine\.Calibrated'")
        assert call(port, "/v2/health/ready")[0] != 200
        status, answer = call(port, "/v2/models/models/infer", rows())
        assert status == 404 and "mine.Calibrated" in answer["error"], answer
        server.process.terminate()
        server.end()
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runtime", "write", "request_of", "expected"),
    [
        ("kserve-lgbserver", write_lightgbm, rows, [3, 7]),
        # Those of other libraries: tests/platforms serves their formats.
        ("kserve-sklearnserver", write_lightgbm, rows, [3, 7]),
        ("kserve-catboostserver", write_lightgbm, rows, [3, 7]),
        ("kserve-xgbserver", write_lightgbm, rows, [3, 7]),
        ("kserve-openvino", write_onnx, digit, [DIGIT]),
    ],
)
def test_the_others_serve_one_model_and_say_what_is_missing(
    tmp_path, runtime, write, request_of, expected
):
    write(tmp_path / "models")
    container = STOCK[runtime].filled(tmp_path / "models")
    found, said = served(container, {}, "iris", request_of())
    assert found == pytest.approx(expected)
    assert "/v1/models/NAME:predict) " in said.replace("predict),", "predict) ")
    assert "clients use V2" in said


@pytest.mark.slow
def test_tensorflow_servings_container_starts_a_link_with_the_name_of_its_program(tmp_path):
    write_onnx(tmp_path / "models/1")
    link = tmp_path / "tensorflow_model_server"
    link.symlink_to(Path(sys.executable).parent / "inferd")
    stock = STOCK["kserve-tensorflow-serving"]
    assert Path(stock.command[0]).name == link.name
    container = stock.filled(tmp_path / "models")._replace(command=(str(link),))
    found, said = served(container, {}, "iris", digit())
    assert found == [DIGIT]
    assert "tensorflow.serving over gRPC" in said
    assert "without effect here: --rest_api_timeout_in_ms" in said


def test_every_stock_runtime_is_started_by_a_test():
    text = Path(__file__).read_text()
    assert [name for name in STOCK if f'"{name}"' not in text] == []
