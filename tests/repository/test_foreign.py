"""Folders as MLServer and MLflow have them."""

import json

import pytest

from inferd.config.model import ModelInput, ModelOutput
from inferd.errors import InvalidConfig, Unsupported
from inferd.repository.local import find_model, is_model
from inferd.tensor.dtype import DataType

MLFLOW = """\
artifact_path: model
flavors:
  python_function:
    data: model.xgb
    env:
      conda: conda.yaml
    loader_module: mlflow.xgboost
  xgboost:
    code: null
    data: 'model.xgb'
    model_class: xgboost.core.Booster
mlflow_version: 2.9.2
signature:
  inputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float32",
    "shape": [-1, 4]}}]'
"""


@pytest.fixture
def folder(tmp_path):
    """folder(settings or text, *files) writes a model called iris."""

    def make(content, *files, config=""):
        where = tmp_path / "iris"
        where.mkdir(exist_ok=True)
        if isinstance(content, dict):
            (where / "model-settings.json").write_text(json.dumps({"name": "iris", **content}))
        else:
            (where / "MLmodel").write_text(content)
        for file in files:
            (where / file).parent.mkdir(exist_ok=True, parents=True)
            (where / file).touch()
        if config:
            (where / "config.pbtxt").write_text(config)
        return where

    return make


def found(where):
    model = find_model(where)
    if model.error is not None:
        raise model.error
    return model


@pytest.mark.parametrize(
    ("implementation", "file", "backend"),
    [
        ("mlserver_sklearn.SKLearnModel", "model.joblib", "sklearn"),
        ("mlserver_sklearn.SKLearnModel", "model.skops", "sklearn"),
        ("mlserver_xgboost.XGBoostModel", "model.json", "xgboost"),
        ("mlserver_lightgbm.LightGBMModel", "model.bst", "lightgbm"),
    ],
)
@pytest.mark.parametrize("uri", ["", ".", "./{file}", "{file}"])
def test_settings_name_the_runtime_and_the_file(folder, implementation, file, backend, uri):
    parameters = {"uri": uri.format(file=file), "version": "v0.1.0"}
    where = folder({"implementation": implementation, "parameters": parameters}, file)
    model = found(where)
    assert (model.config.backend, model.versions, model.file) == (backend, (1,), where / file)
    assert is_model(where)


def test_settings_tell_tensors_batches_and_parameters(folder):
    where = folder(
        {
            "implementation": "mlserver_xgboost.XGBoostModel",
            "max_batch_size": 8,
            "max_batch_time": 0.5,
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
            "parameters": {"uri": "m.ubj", "extra": {"inferd_allow_pickle": True, "n": 3}},
        },
        "m.ubj",
    )
    config = found(where).config
    assert config.input == (ModelInput("x", DataType.FP32, (4,)),)
    assert config.output == (ModelOutput("y", DataType.FP32, (1,)),)
    assert config.max_batch_size == 8
    assert config.dynamic_batching.max_queue_delay_microseconds == 500_000
    assert config.parameters == {"inferd_allow_pickle": "true", "n": "3"}


def test_mlflows_flavor_names_the_file(folder):
    model = found(folder(MLFLOW, "model.xgb"))
    assert (model.config.backend, model.file.name) == ("xgboost", "model.xgb")


def test_settings_may_lead_to_mlflow(folder):
    settings = {"implementation": "mlserver_mlflow.MLflowRuntime", "parameters": {"uri": "./in"}}
    where = folder(settings, "in/model.xgb")
    (where / "in" / "MLmodel").write_text(MLFLOW)
    model = found(where)
    assert (model.config.backend, model.file) == ("xgboost", where / "in" / "model.xgb")


def test_a_configuration_beside_them_adds_what_they_cannot_say(folder):
    config = 'parameters { key: "inferd_allow_pickle" value: { string_value: "true" } }'
    model = found(folder(MLFLOW, "model.xgb", config=config))
    assert model.config.parameters == {"inferd_allow_pickle": "true"}
    assert model.config.backend == "xgboost"


def test_version_folders_come_first(folder):
    where = folder(MLFLOW, "model.xgb", "1/model.onnx")
    model = found(where)
    assert (model.config.backend, model.file) == ("onnxruntime", None)


@pytest.mark.parametrize(
    ("content", "error", "text"),
    [
        ({"implementation": "my.Own"}, Unsupported, "asks for 'my.Own', known are the runtimes"),
        ({}, InvalidConfig, "not as MLServer has it: KeyError"),
        ({"implementation": "mlserver_xgboost.X", "parameters": 7}, InvalidConfig, "not as MLS"),
        (
            {"implementation": "mlserver_xgboost.X", "parameters": {"uri": "s3://b/m"}},
            InvalidConfig,
            "is not a file",
        ),
        (
            {"implementation": "mlserver_xgboost.X", "parameters": {"uri": "../other/m.ubj"}},
            InvalidConfig,
            "lies outside of its folder",
        ),
        (
            {"implementation": "mlserver_xgboost.X", "parameters": {"uri": "/etc/passwd"}},
            InvalidConfig,
            "lies outside of its folder",
        ),
        (
            {"implementation": "mlserver_xgboost.X", "max_batch_time": "inf"},
            InvalidConfig,
            "not as MLServer has it: OverflowError",
        ),
        ({"implementation": "mlserver_xgboost.X"}, InvalidConfig, "there is no file 'model.ubj'"),
        ({"implementation": "mlserver_mlflow.X"}, InvalidConfig, "has no file MLmodel"),
        (
            {"implementation": "mlserver_mlflow.X", "parameters": {"uri": "../other"}},
            InvalidConfig,
            "lies outside of its folder",
        ),
        ({"name": "rose", "implementation": "mlserver_xgboost.X"}, InvalidConfig, "model.ubj"),
        (
            {"implementation": "mlserver_xgboost.X", "inputs": [{"name": "x", "datatype": "F"}]},
            InvalidConfig,
            "KeyError",
        ),
        ("flavors:\n  prophet:\n    data: m.pr\n", Unsupported, "has the flavors prophet, known"),
        ("", Unsupported, "has the flavors none"),
        ("flavors:\n  onnx:\n    data: ../../x.onnx\n", InvalidConfig, "lies outside"),
        ("x" * (1 << 20) + "\n", InvalidConfig, "is larger than"),
    ],
)
def test_what_cannot_be_served_is_told(folder, content, error, text):
    with pytest.raises(error, match=text):
        found(folder(content))


def test_settings_that_are_not_json_are_told(folder):
    where = folder({})
    (where / "model-settings.json").write_text("{")
    with pytest.raises(InvalidConfig, match="is not JSON"):
        found(where)
