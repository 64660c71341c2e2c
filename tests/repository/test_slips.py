"""What usual slips in a model's folder are told as, and where the texts appear."""

import pytest

from inferd.config.model import ModelConfig
from inferd.errors import InvalidConfig, NoVersion
from inferd.repository.layout import FoundModel, files_of
from inferd.repository.local import find_model
from inferd.repository.slips import MOST_SLIPS, found_instead

BACKEND = "backend: 'onnxruntime' max_batch_size: 4"


def write(folder, *paths):
    for path in paths:
        file = folder / path
        if path.endswith("/"):
            file.mkdir(parents=True)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(BACKEND if path.endswith(".pbtxt") else "")
    return folder


WITHOUT_A_FILE = {  # the paths in the model's folder -> what its error tells of them
    "model.onnx beside": (
        ("model.onnx",),
        "found 'model.onnx' in the model's folder, but it belongs in a version folder: 1/",
    ),
    "beside an empty version": (
        ("model.onnx", "1/"),
        "found 'model.onnx' in the model's folder, but it belongs in a version folder: 1/; "
        "1/ is empty",
    ),
    "a SavedModel beside": (("saved_model.pb",), "found 'saved_model.pb' in the model's folder"),
    "v1": (("v1/model.onnx",), "folder 'v1' is no version: expected a decimal number without"),
    "01": (("01/model.onnx",), "without leading 0, here 1"),
    "version_2": (("version_2/model.onnx",), "without leading 0, here 2"),
    "1.0": (("1.0/model.onnx",), "without leading 0, here 1"),
    "a model in a model": (
        ("m/1/model.onnx",),
        "folder 'm' is no version: expected a decimal number without leading 0; it looks like a "
        "model itself, which belongs in the repository's folder",
    ),
    "another name": (
        ("1/net.onnx",),
        "found '1/net.onnx', but it must be called 'model.onnx', or default_model_filename have "
        "its name",
    ),
    "another case": (
        ("1/Model.ONNX",),
        "found '1/Model.ONNX', but it must be spelled 'model.onnx'",
    ),
    "one folder deeper": (
        ("1/net/model.onnx",),
        "found '1/net/model.onnx', but it belongs in 1/ itself",
    ),
    "the files of a SavedModel": (
        ("1/saved_model.pb", "1/variables/x"),
        "found '1/saved_model.pb', but it belongs, with what lies beside it, in "
        "1/model.savedmodel/",
    ),
    "the configuration inside": (
        ("1/config.pbtxt", "1/weights.h5"),
        "found '1/config.pbtxt', but it belongs beside the version folders",
    ),
    "the configuration under another name": (
        ("Config.pbtxt.txt", "1/a"),
        "found 'Config.pbtxt.txt', but the configuration is called 'config.pbtxt'",
    ),
    "an empty version": (("1/",), "1/ is empty"),
    "files of unknown kinds": (
        ("1/a.bin", "1/b.h5", "1/c", "1/d", "1/.hidden"),
        "1/ holds 'a.bin', 'b.h5', 'c' and 1 more",
    ),
}


@pytest.mark.parametrize(("paths", "told"), WITHOUT_A_FILE.values(), ids=WITHOUT_A_FILE)
def test_the_reason_names_what_was_found(tmp_path, paths, told):
    found = find_model(write(tmp_path / "m", *paths))
    assert found.error.message.startswith("model 'm': nothing says which backend runs it; ")
    assert told in found.error.message.partition(" names no platform")[0]


def test_without_a_version_the_reason_names_what_was_found(tmp_path):
    found = find_model(write(tmp_path / "m", "config.pbtxt", "v1/model.onnx", "model.onnx"))
    assert isinstance(found.error, NoVersion)
    assert found.error.message == (
        "model 'm' has no version folder, such as m/1; folder 'v1' is no version: expected a "
        "decimal number without leading 0, here 1; found 'model.onnx' in the model's folder, but "
        "it belongs in a version folder: 1/"
    )


WITH_A_NAME = {  # the paths -> what is told when model.onnx is wanted
    "another name": (("1/net.onnx",), "; found '1/net.onnx', but it must be called 'model.onnx'"),
    "another kind": (("1/model.pt",), "; 1/ holds 'model.pt'"),
    "another case": (("1/MODEL.onnx",), "but it must be spelled 'model.onnx'"),
    "beside": (("1/", "model.onnx"), "; found 'model.onnx' in the model's folder"),
    "deeper": (("1/x/model.onnx",), "found '1/x/model.onnx', but it belongs in 1/ itself"),
}


@pytest.mark.parametrize(("paths", "told"), WITH_A_NAME.values(), ids=WITH_A_NAME)
def test_a_missing_file_names_what_was_found(tmp_path, paths, told):
    config = ModelConfig("m", default_model_filename="model.onnx")
    with pytest.raises(InvalidConfig) as refused:
        files_of(FoundModel("m", write(tmp_path / "m", *paths)), 1, config)
    assert refused.value.message.startswith("model 'm' version 1: there is no 1/model.onnx")
    assert told in refused.value.message


def test_a_file_of_another_name_that_the_configuration_wants(tmp_path):
    folder = write(tmp_path / "m", "1/model.onnx")
    told = found_instead(folder, folder / "1", "net.onnx")
    assert told.startswith("found '1/model.onnx', but it must be called 'net.onnx'")


def test_names_are_escaped_and_cut_and_few_are_told(tmp_path):
    names = [f"1/{'x' * 100}{number}.onnx" for number in range(9)]
    folder = write(tmp_path / "m", *names, "1/b\udcff.onnx")
    told = found_instead(folder, folder / "1", "model.onnx")
    assert told.count("found '") == MOST_SLIPS
    assert "'1/b\\xff.onnx'" in told
    assert "x" * 61 not in told


def test_python_files_beside_the_versions_are_usual(tmp_path):
    folder = write(tmp_path / "m", "helpers.py", "1/model.pt")
    assert found_instead(folder, folder / "1", "model.py") == "1/ holds 'model.pt'"


def test_nothing_is_told_of_folders_that_are_not_there(tmp_path):
    assert found_instead(tmp_path / "m", tmp_path / "m" / "1", "model.onnx") == ""
    assert found_instead(tmp_path / "m", None, "") == ""
