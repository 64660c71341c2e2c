"""Models in folders of other servers that are served."""

import io
import json
import os
import zipfile

import pytest
from good import onnx_model

from inferd.check.foreign import archives_at, bento_module
from inferd.check.places import check_paths
from inferd.repository.local import Reading


def archive(content=None, **model):
    """Return the bytes of a .mar with a manifest about a model, or with that content."""
    text = json.dumps({"model": model}) if content is None else content
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        made.writestr("MAR-INF/MANIFEST.json", text)
    return buffer.getvalue()


EAGER = {"modelName": "net", "serializedFile": "net.pth", "modelFile": "net.py"}


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (EAGER, ["export the model with torch.export as net/1/model.pt2"]),
        ({"modelName": "net", "serializedFile": "net.onnx"}, ["net/1/model.onnx"]),
        (
            {"modelName": "net", "serializedFile": "net.pt", "handler": "image_classifier"},
            ["net/1/model.pt if it is TorchScript", "makes the tensor of a picture"],
        ),
        (
            {"modelName": "net", "serializedFile": "net.pt2", "handler": "mine.py"},
            ["net/1/model.pt2", "what mine.py does before and after becomes a model.py"],
        ),
        ({"modelName": "net", "handler": "mine.py"}, ["write net/1/model.py"]),
        ({"serializedFile": "net.pt2", "handler": "base_handler"}, ["as a/1/model.pt2"]),
    ],
)
def test_what_becomes_of_an_archive_of_torchserve_is_told(repository, model, words):
    folder = repository({"store/a.mar": archive(**model)})
    for path in (folder / "store", folder / "store/a.mar"):
        [one] = check_paths([path], Reading()).findings
        assert (one.level, one.rule, one.file) == ("error", "foreign", folder / "store/a.mar")
        assert all(word in one.fix for word in words)


@pytest.mark.parametrize(
    "content",
    [b"no zip", archive("no json"), archive("[]"), archive('{"model": 3}'), archive("x" * 2**21)],
    ids=["no zip", "no json", "a list", "no model", "too large"],
)
def test_what_only_looks_like_an_archive_is_told(repository, content):
    [one] = archives_at(repository({"a.mar": content}) / "a.mar")
    assert one.text.startswith("it is called like an archive of TorchServe, but cannot be read: ")


def test_an_archive_that_is_a_folder_is_read_too(repository):
    manifest = json.dumps({"model": EAGER})
    [one] = archives_at(repository({"a.mar/MAR-INF/MANIFEST.json": manifest}))
    assert "model 'net', its file 'net.pth', its class in 'net.py'" in one.text


def test_archives_in_a_repository_are_found_where_models_are(repository):
    folder = repository({"a/1/a.mar": archive(**EAGER), "b/b/b/b/b.mar": archive(**EAGER)})
    assert [one.file.name for one in archives_at(folder)] == ["a.mar"]


def test_a_bento_is_told_with_its_models(repository):
    folder = repository(
        {
            "bento.yaml": "service: service:svc",
            "models/iris/abc/model.yaml": "name: iris\nmodule: bentoml.onnx\n",
            "models/iris/abc/saved_model.onnx": "x",
        }
    )
    [one] = archives_at(folder)
    assert "models/iris/abc (bentoml.onnx)" in one.text
    assert f"inferd serve {folder / 'models/iris/abc'}" in one.fix
    assert bento_module(folder / "models/iris/abc") == "bentoml.onnx"
    assert bento_module(folder) == ""


def test_a_list_of_tensorflow_serving_is_told(repository):
    text = '# models\nmodel_config_list { config { name: "a" base_path: "/m/a" } }'
    [one] = archives_at(repository({"models.config": text, "other.conf": "x"}))
    assert (one.level, one.line, one.fix) == ("warning", 2, "name their folders: inferd serve /m/a")


def test_elsewhere_nothing_is_found(repository, tmp_path):
    assert list(archives_at(repository({"m/1/model.onnx": "x", "m/config.pbtxt": "x"}))) == []
    assert list(archives_at(tmp_path / "nowhere")) == []


def test_a_pipe_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "a.mar")
    os.mkfifo(tmp_path / "models.config")
    assert list(archives_at(tmp_path)) == list(archives_at(tmp_path / "a.mar")) == []


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


def test_settings_that_nothing_reads_may_be_nested_too_deeply(repository):
    files = {"a/model-settings.json": "[" * 100_000, "a/1/model.onnx": onnx_model()}
    assert {one.level for one in check(repository(files))} == {"note"}


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


def test_files_that_are_too_large_for_a_list_of_models_are_none(repository):
    large = "# " + "x" * (1 << 20)
    assert list(archives_at(repository({"graph.pbtxt": large, "models.config": large}))) == []
    assert bento_module(repository({"model.yaml": large})) == ""
