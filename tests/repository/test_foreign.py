"""Folders as MLServer and MLflow have them."""

import json

import pytest

from inferd.config.model import ModelInput
from inferd.errors import InvalidConfig, Unsupported
from inferd.repository.layout import files_of
from inferd.repository.local import find_model, is_model
from inferd.repository.repositories import Repositories
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
        ("mlserver_catboost.CatboostModel", "model.cbm", "catboost"),
    ],
)
@pytest.mark.parametrize("uri", ["", ".", "./{file}", "{file}"])
def test_settings_name_the_runtime_and_the_file(folder, implementation, file, backend, uri):
    parameters = {"uri": uri.format(file=file), "version": "v0.1.0"}
    where = folder({"implementation": implementation, "parameters": parameters}, file)
    model = found(where)
    assert (model.config.backend, model.versions, model.file) == (backend, (1,), where / file)
    assert model.config.parameters == {
        "inferd_any_input_name": "true",
        "inferd_default_outputs": "predict",
        "inferd_table": "true",
        "inferd_version_name": "v0.1.0",
    }
    assert is_model(where)


@pytest.mark.parametrize(
    ("said", "version"),
    [("3", 3), (7, 7), ("v0.1.0", 1), ("0", 1), ("-2", 1), ("9" * 30, 1), (None, 1), ("²", 1)],
)
def test_a_version_that_is_a_number_is_served_as_that(folder, said, version):
    parameters = {"uri": "m.ubj", "version": said}
    settings = {"implementation": "mlserver_xgboost.XGBoostModel", "parameters": parameters}
    model = found(folder(settings, "m.ubj"))
    assert model.versions == (version,)
    assert files_of(model, version, model.config).file.name == "m.ubj"
    name = None if said is None or version != 1 else said
    assert model.config.parameters.get("inferd_version_name") == name


def test_an_absolute_uri_may_lead_into_the_folder(folder, tmp_path):
    uri = str(tmp_path / "iris" / "in" / "m.ubj")
    settings = {"implementation": "mlserver_xgboost.XGBoostModel", "parameters": {"uri": uri}}
    assert found(folder(settings, "in/m.ubj")).file == tmp_path / "iris" / "in" / "m.ubj"
    outside = {**settings, "parameters": {"uri": f"{tmp_path}/iris/../m.ubj"}}
    (tmp_path / "m.ubj").touch()
    with pytest.raises(InvalidConfig, match="lies outside of its folder"):
        found(folder(outside))


def test_the_environment_says_the_runtime_of_settings_that_do_not(folder, monkeypatch):
    monkeypatch.setenv("MLSERVER_MODEL_IMPLEMENTATION", "mlserver_lightgbm.LightGBMModel")
    assert found(folder({}, "model.txt")).config.backend == "lightgbm"
    stated = {"implementation": "mlserver_xgboost.XGBoostModel"}
    assert found(folder(stated, "model.ubj")).config.backend == "xgboost"


def test_variables_say_what_a_folder_with_nothing_but_a_file_is(tmp_path, monkeypatch):
    where = tmp_path / "models"
    where.mkdir()
    (where / "model.joblib").touch()
    assert not is_model(where)
    monkeypatch.setenv("MLSERVER_MODEL_IMPLEMENTATION", "mlserver_sklearn.SKLearnModel")
    [model] = Repositories([where]).find_all()
    assert (model.name, model.file, model.error) == ("models", where / "model.joblib", None)
    for name, value in (
        ("NAME", "iris"),
        ("URI", str(where)),
        ("VERSION", "3"),
        ("EXTRA", '{"inferd_allow_pickle": true}'),
    ):
        monkeypatch.setenv(f"MLSERVER_MODEL_{name}", value)
    [model] = Repositories([where]).find_all()
    assert (model.name, model.versions, model.file) == ("iris", (3,), where / "model.joblib")
    assert model.config.backend == "sklearn"
    assert model.config.parameters["inferd_allow_pickle"] == "true"
    monkeypatch.setenv("MLSERVER_MODEL_EXTRA", "{")
    [model] = Repositories([where]).find_all()
    assert "the variable MLSERVER_MODEL_EXTRA is not JSON" in model.error.message


@pytest.mark.parametrize("name", ["model.txt", "1/model.onnx"])
def test_a_file_is_not_the_model_where_a_variable_says_that_code_of_its_own_is(
    tmp_path, monkeypatch, name
):
    file = tmp_path / "models" / name
    file.parent.mkdir(parents=True)
    file.write_text("tree\n")
    monkeypatch.setenv("MLSERVER_MODEL_IMPLEMENTATION", "mine.Calibrated")
    [model] = Repositories([tmp_path / "models"]).find_all()
    assert isinstance(model.error, Unsupported)
    assert model.error.message.startswith(
        "model 'models': MLSERVER_MODEL_IMPLEMENTATION asks for 'mine.Calibrated', known are "
    )
    (tmp_path / "models/config.pbtxt").write_text(
        'backend: "lightgbm" default_model_filename: "model.txt"'
        if name == "model.txt"
        else 'platform: "onnxruntime_onnx"'
    )
    [model] = Repositories([tmp_path / "models"]).find_all()
    assert model.error is None


@pytest.mark.parametrize("uri", ["iris.txt", "./iris.txt", "{}/iris.txt"])
def test_a_variable_names_the_file_among_others(tmp_path, monkeypatch, uri):
    where = tmp_path / "models"
    where.mkdir()
    (where / "model.onnx").touch()
    (where / "iris.txt").write_text("tree\n")
    monkeypatch.setenv("MLSERVER_MODEL_IMPLEMENTATION", "mlserver_lightgbm.LightGBMModel")
    monkeypatch.setenv("MLSERVER_MODEL_URI", uri.format(where))
    [model] = Repositories([where]).find_all()
    assert (model.error, model.config.backend) == (None, "lightgbm")
    assert model.file == where / "iris.txt"
    monkeypatch.setenv("MLSERVER_MODEL_URI", "../iris.txt")
    (tmp_path / "iris.txt").write_text("tree\n")
    [model] = Repositories([where]).find_all()
    assert model.config is None or model.file != tmp_path / "iris.txt"


def test_version_folders_stay_what_they_are_whatever_variables_say(tmp_path, monkeypatch):
    monkeypatch.setenv("MLSERVER_MODEL_IMPLEMENTATION", "mlserver_xgboost.XGBoostModel")
    where = tmp_path / "m"
    (where / "1").mkdir(parents=True)
    (where / "1" / "model.json").touch()
    (where / "config.pbtxt").write_text('backend: "xgboost" default_model_filename: "model.json"')
    assert is_model(where)
    assert not is_model(where / "1")
    assert found(where).file is None


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
    assert config.output == ()  # what the model gives, whatever the settings say
    assert config.max_batch_size == 8
    assert config.dynamic_batching.max_queue_delay_microseconds == 500_000
    assert config.parameters == {
        "inferd_any_input_name": "true",
        "inferd_default_outputs": "predict",
        "inferd_table": "true",
        "inferd_allow_pickle": "true",
        "n": "3",
    }


def test_several_inputs_in_settings_are_the_columns_of_a_table(folder):
    inputs = [{"name": name, "datatype": "FP64", "shape": [-1]} for name in ("b", "a")]
    settings = {"implementation": "mlserver_sklearn.SKLearnModel", "inputs": inputs}
    config = found(folder(settings, "model.joblib")).config
    assert config.input == tuple(ModelInput(name, DataType.FP64, (1,)) for name in ("b", "a"))


@pytest.mark.parametrize("said", ["FP64", "INT64", "BYTES"])
def test_inputs_are_those_of_the_settings_and_outputs_those_of_the_model(folder, said):
    tensors = {
        "inputs": [{"name": "x", "datatype": said, "shape": [-1, 4]}],
        "outputs": [{"name": "predict", "datatype": "FP64", "shape": [-1]}],
    }
    settings = {"implementation": "mlserver_sklearn.SKLearnModel", **tensors}
    config = found(folder(settings, "model.joblib")).config
    assert config.input == (ModelInput("x", DataType(said), (4,)),)
    assert config.output == ()


def test_models_that_take_no_rows_take_no_tables(folder):
    flavor = "flavors:\n  onnx:\n    data: model.onnx\n"
    config = found(folder(flavor, "model.onnx")).config
    assert "inferd_table" not in config.parameters


def test_mlflows_flavor_names_the_file(folder):
    model = found(folder(MLFLOW, "model.xgb"))
    assert (model.config.backend, model.file.name) == ("xgboost", "model.xgb")


PYFUNC = """flavors:
  lightgbm:
    data: model.skops
    model_class: lightgbm.sklearn.LGBMClassifier
  python_function:
    predict_fn: predict_proba
"""


def test_a_flavor_may_hold_a_python_object(folder):
    config = found(folder(PYFUNC, "model.skops")).config
    assert config.backend == "sklearn"
    assert config.parameters["inferd_default_outputs"] == "predict_proba"


SIGNED = """flavors:
  sklearn:
    pickled_model: model.skops
signature:
  inputs: '[{"type": "double", "name": "age", "required": true}, {"type": "long", "name":
    "pH value", "required": true}, {"type": "long", "name": "it''s \\u00e4", "required":
    true}]'
  outputs: '[{"type": "tensor", "name": "y"}]'
  params: null
"""


def test_the_columns_of_a_signature_are_read(folder):
    config = found(folder(SIGNED, "model.skops")).config
    assert json.loads(config.parameters["inferd_columns"]) == ["age", "pH value", "it's ä"]
    assert config.input == ()


@pytest.mark.parametrize(
    ("inputs", "others"),
    [
        ('[{"type": "double", "name": "a"}]', "one column may have any name"),
        ('[{"type": "double"}, {"type": "long"}]', "no names"),
        ('[{"type": "tensor", "name": "a"}, {"type": "tensor", "name": "b"}]', "no columns"),
        ('[{"type": "long", "name": "a"}, {"type": "tensor", "name": "b"}]', "not all columns"),
        ('[{"type": "long", "name": 1}, {"type": "long", "name": "b"}]', "no text"),
        ("[1, 2]", "no columns"),
        ("{}", "no columns"),
        ("[", "no JSON"),
    ],
)
def test_other_signatures_name_no_columns(folder, inputs, others):
    text = f"flavors:\n  sklearn:\n    data: model.skops\nsignature:\n  inputs: '{inputs}'\n"
    assert "inferd_columns" not in found(folder(text, "model.skops")).config.parameters, others


def test_settings_may_lead_to_mlflow(folder):
    settings = {"implementation": "mlserver_mlflow.MLflowRuntime", "parameters": {"uri": "./in"}}
    where = folder(settings, "in/model.xgb")
    (where / "in" / "MLmodel").write_text(MLFLOW)
    model = found(where)
    assert (model.config.backend, model.file) == ("xgboost", where / "in" / "model.xgb")


def test_a_configuration_beside_them_adds_what_they_cannot_say(folder):
    config = 'parameters { key: "inferd_allow_pickle" value: { string_value: "true" } }'
    model = found(folder(MLFLOW, "model.xgb", config=config))
    assert model.config.parameters == {
        "inferd_any_input_name": "true",
        "inferd_default_outputs": "predict",
        "inferd_model_class": "xgboost.core.Booster",
        "inferd_table": "true",
        "inferd_allow_pickle": "true",
    }
    assert model.config.backend == "xgboost"


@pytest.mark.parametrize(("beside", "most"), [("", 4), ("max_batch_size: 0", 0)])
def test_a_batch_size_of_0_beside_them_counts_if_it_is_written(folder, beside, most):
    said = {"implementation": "mlserver_xgboost.XGBoostModel", "max_batch_size": 4}
    model = found(folder(said, "model.bst", config=beside))
    assert model.config.max_batch_size == most


def test_version_folders_come_first(folder):
    where = folder(MLFLOW, "model.xgb", "1/model.onnx")
    model = found(where)
    assert (model.config.backend, model.file) == ("onnxruntime", None)


@pytest.mark.parametrize(
    ("content", "error", "text"),
    [
        ({"implementation": "my.Own"}, Unsupported, "asks for 'my.Own', known are the runtimes"),
        ({}, InvalidConfig, "not as MLServer has it: .*it says no implementation"),
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
            "tensor 'x' has the datatype 'F', known are BOOL",
        ),
        ("flavors:\n  prophet:\n    data: m.pr\n", Unsupported, "has the flavors prophet, known"),
        ("", Unsupported, "has the flavors none"),
        ("flavors:\n  onnx:\n    data: ../../x.onnx\n", InvalidConfig, "lies outside"),
        ("x" * (1 << 20) + "\n", InvalidConfig, "is larger than"),
    ],
)
def test_what_cannot_be_served_is_reported(folder, content, error, text):
    with pytest.raises(error, match=text):
        found(folder(content))


def test_settings_that_are_not_json_are_reported(folder):
    where = folder({})
    (where / "model-settings.json").write_text("{")
    with pytest.raises(InvalidConfig, match="is not JSON"):
        found(where)
