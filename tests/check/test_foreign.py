"""Models in folders of other servers that are served."""

import json

import pytest
from good import onnx_model

from inferd.check.places import check_paths
from inferd.repository.local import Reading


def check(path):
    found = check_paths([path], Reading()).findings
    return [one for one in found if one.rule != "package"]


def test_settings_of_mlserver_without_effect_are_told(repository):
    settings = {
        "name": "iris",
        "implementation": "mlserver_xgboost.XGBoostModel",
        "parallel_workers": 2,
        "warm_workers": False,
        "parameters": {"uri": "./model.ubj", "version": "7", "content_type": "np"},
    }
    folder = repository({"a/model-settings.json": json.dumps(settings), "a/model.ubj": "x"})
    told = {one.text: one for one in check(folder)}
    assert {one.level for one in told.values()} == {"note", "warning"}
    idle = told.pop("parallel_workers has no effect in inferd")
    assert idle.file == folder / "a/model-settings.json"
    assert "instance_group" in idle.fix
    assert "content_type has no effect in inferd" in told
    note = "a folder as MLServer has it: served as model 'iris', version 7, platform xgboost_ubj"
    assert note in told
    assert len(told) == 2


def test_settings_that_are_wrong_are_told(repository):
    settings = {"name": "iris", "implementation": "mine.Model"}
    [one] = check(repository({"a/model-settings.json": json.dumps(settings)}))
    assert (one.level, one.model) == ("error", "iris")
    assert "asks for 'mine.Model'" in one.text


def test_a_model_of_mlflow_is_told(repository):
    text = "flavors:\n  onnx:\n    data: model.onnx\n"
    [one] = check(repository({"a/MLmodel": text, "a/model.onnx": onnx_model()}))
    assert (one.level, one.rule) == ("note", "foreign")
    assert "a folder as MLflow has it: served as model 'a', version 1" in one.text
    assert "conda.yaml" in one.text


@pytest.mark.parametrize(
    ("files", "server"),
    [({"m/model.onnx": onnx_model()}, "KServe"), ({"m/iris.onnx": onnx_model()}, "KServe")],
)
def test_a_folder_with_a_file_is_that_of_kserve(repository, files, server):
    [one] = check(repository(files) / "m")
    assert (one.level, one.rule) == ("note", "foreign")
    assert f"a folder as {server} has it: served as model 'm'" in one.text
    assert "clients of /v1/models/m:predict have to use V2" in one.text


def test_a_model_of_bentoml_is_told(repository):
    files = {"iris/model.yaml": "module: bentoml.onnx", "iris/saved_model.onnx": onnx_model()}
    [one] = check(repository(files) / "iris")
    assert one.text.endswith("bentoml.onnx saved it; its service is not run")


def test_a_file_alone_is_nothing_to_tell(repository):
    assert check(repository({"m.onnx": onnx_model()}) / "m.onnx") == []
