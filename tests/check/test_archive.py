"""What is for other servers and cannot be served as it is."""

import io
import json
import os
import zipfile

import pytest

from inferd.check.archive import archives_at, bento_module
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
