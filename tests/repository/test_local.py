"""Models in local folders."""

import os

import pytest

from inferd.config.model import ModelConfig
from inferd.errors import InvalidConfig
from inferd.repository.local import MAX_CONFIG_BYTES, find_model, is_app, single_model


def test_the_largest_config_is_read(add_model, tmp_path):
    folder = add_model(tmp_path, "a", "#" * MAX_CONFIG_BYTES)
    assert find_model(folder).error is None


def test_a_config_that_is_not_utf8_is_refused(add_model, tmp_path):
    folder = add_model(tmp_path, "a", "")
    (folder / "config.pbtxt").write_bytes(b"name: '\xff'")
    assert find_model(folder).error.message == "a/config.pbtxt is not UTF-8: byte 7 is 0xff"


def test_a_config_may_have_comments_in_another_encoding(add_model, tmp_path):
    folder = add_model(tmp_path, "a", "")
    (folder / "config.pbtxt").write_bytes(b"# mod\xe8le\nbackend: 'identity'")
    assert find_model(folder).config.backend == "identity"


def test_steps_without_a_platform_are_those_of_an_ensemble(add_model, tmp_path):
    folder = add_model(tmp_path, "e", "ensemble_scheduling { step { model_name: 'a' } }")
    assert find_model(folder).error.message == (
        "model 'e', config.pbtxt: ensemble_scheduling needs platform 'ensemble', which is not given"
    )


def test_a_config_that_cannot_be_opened_is_refused_without_the_path(add_model, tmp_path):
    folder = add_model(tmp_path, "a")
    (folder / "config.pbtxt").symlink_to("config.pbtxt")
    message = find_model(folder).error.message
    assert message == "model 'a' cannot be read: Too many levels of symbolic links"


def test_a_folder_that_is_gone_is_refused_without_the_path(tmp_path):
    error = find_model(tmp_path / "a").error
    assert error.message == "model 'a' cannot be read: No such file or directory"


def test_folders_that_are_no_versions_are_reported(add_model, tmp_path):
    folder = add_model(tmp_path, "a", versions=(1, "v2"))
    [ignored] = find_model(folder).ignored
    assert ignored.startswith("folder 'v2' is no version")


def test_the_policy_chooses_the_versions(add_model, tmp_path):
    folder = add_model(tmp_path, "a", "version_policy { latest { num_versions: 2 } }", (1, 9, 10))
    assert find_model(folder).versions == (9, 10)


def test_an_override_stands_in_for_the_config(add_model, tmp_path):
    folder = add_model(tmp_path, "a", "max_batch_size: -1")
    found = find_model(folder, override=ModelConfig("", max_batch_size=2))
    assert (found.error, found.config.max_batch_size) == (None, 2)


def test_an_ensemble_needs_a_version_folder_and_no_file(add_model, tmp_path):
    text = (
        "platform: 'ensemble' input { name: 'X' data_type: TYPE_FP32 dims: 1 } "
        "output { name: 'Y' data_type: TYPE_FP32 dims: 1 } "
        "ensemble_scheduling { step { model_name: 'a' model_version: -1 "
        "input_map { key: 'x' value: 'X' } output_map { key: 'y' value: 'Y' } } }"
    )
    ensemble = find_model(add_model(tmp_path, "e", text, file=None))
    assert (ensemble.error, ensemble.versions) == (None, (1,))
    bare = find_model(add_model(tmp_path, "f", text, versions=()))
    assert bare.error.message == "model 'f' has no version folder, such as f/1"


def test_a_bare_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidConfig, match=r"^there is no model file 'a\.onnx'$"):
        single_model(tmp_path / "a.onnx")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_a_configuration_that_is_no_file_is_not_opened(add_model, tmp_path, make):
    folder = add_model(tmp_path, "a")
    make(folder / "config.pbtxt")
    assert find_model(folder).error.message == "a/config.pbtxt is not a file"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("app.py", "import inferd\n", True),
        ("model.py", "", True),
        ("model.py", "class TritonPythonModel:\n    pass\n", False),
        ("app.txt", "import inferd\n", False),
    ],
)
def test_a_python_file_is_an_app_unless_it_is_a_model_by_itself(tmp_path, name, text, expected):
    path = tmp_path / name
    path.write_text(text)
    assert is_app(path) == expected
    assert not is_app(tmp_path / "nothing.py")
    assert not is_app(tmp_path)


def test_a_file_whose_name_is_not_utf8_is_refused(tmp_path):
    file = tmp_path / os.fsdecode(b"a\xff.onnx")
    file.touch()
    with pytest.raises(InvalidConfig, match=r"the name of the file 'a\\xff\.onnx' is not UTF-8"):
        single_model(file)
