"""Models in local folders."""

import os

import pytest

from inferd.config.model import ModelConfig, VersionPolicy
from inferd.errors import InvalidConfig
from inferd.repository.layout import files_of
from inferd.repository.local import MAX_CONFIG_BYTES, find_model, find_models, single_model


def add_model(repository, name, config=None, versions=(1,), file="model.onnx"):
    folder = repository / name
    folder.mkdir(parents=True)
    for version in versions:
        (folder / str(version)).mkdir()
        if file:
            (folder / str(version) / file).write_text("")
    if config is not None:
        (folder / "config.pbtxt").write_text(config)
    return folder


def test_every_folder_is_a_model_and_the_rest_is_passed_over(tmp_path):
    add_model(tmp_path, "b")
    add_model(tmp_path, "a", "max_batch_size: 4")
    (tmp_path / "README.md").write_text("")
    (tmp_path / ".git").mkdir()
    (tmp_path / "__pycache__").mkdir()
    a, b = find_models([tmp_path])
    assert (a.name, a.folder, a.versions, a.error) == ("a", tmp_path / "a", (1,), None)
    assert (a.config.name, a.config.backend, a.config.max_batch_size) == ("a", "onnxruntime", 4)
    assert a.config.version_policy == VersionPolicy(latest=1)
    assert (b.name, b.config.default_model_filename) == ("b", "model.onnx")
    assert files_of(a, 1, a.config).file == tmp_path / "a" / "1" / "model.onnx"


def test_models_of_several_repositories_are_found_together(tmp_path):
    add_model(tmp_path / "one", "b")
    add_model(tmp_path / "two", "a")
    found = find_models([tmp_path / "one", tmp_path / "two"])
    assert [model.name for model in found] == ["a", "b"]


def test_a_name_in_two_repositories_is_not_served(tmp_path):
    add_model(tmp_path / "one", "a")
    add_model(tmp_path / "two", "a")
    add_model(tmp_path / "two", "b")
    a, b = find_models([tmp_path / "one", tmp_path / "two"])
    assert a.config is None
    assert a.versions == ()
    assert a.error.message == "model 'a' appears in 2 places, expected one"
    assert b.error is None


BROKEN = {
    "a/config.pbtxt:1:1: ModelConfig has no field 'zzz'": {"config": "zzz: 1"},
    "model 'a', config.pbtxt: name is 'b', expected 'a'": {"config": "name: 'b'"},
    "model 'a', config.pbtxt: max_batch_size is -1": {"config": "max_batch_size: -1"},
    "model 'a': nothing says which backend runs it": {"file": None},
    "model 'a' has no version folder, such as a/1": {"config": "backend: 'x'", "versions": ()},
    "model 'a': its version_policy allows none of the versions 1, 2": {
        "config": "version_policy { specific { versions: 3 } }",
        "versions": (2, 1),
    },
    "a/config.pbtxt is larger than 4194304 bytes": {"config": "#" * (MAX_CONFIG_BYTES + 1)},
}


@pytest.mark.parametrize(("complaint", "layout"), BROKEN.items(), ids=range(len(BROKEN)))
def test_a_broken_model_carries_its_error_and_stops_no_other(tmp_path, complaint, layout):
    add_model(tmp_path, "a", **layout)
    add_model(tmp_path, "b")
    a, b = find_models([tmp_path])
    assert a.config is None
    assert isinstance(a.error, InvalidConfig)
    assert a.error.message.startswith(complaint)
    assert str(tmp_path) not in a.error.message
    assert b.error is None


def test_the_largest_config_is_read(tmp_path):
    folder = add_model(tmp_path, "a", "#" * MAX_CONFIG_BYTES)
    assert find_model(folder).error is None


def test_a_config_that_is_not_utf8_is_refused(tmp_path):
    folder = add_model(tmp_path, "a", "")
    (folder / "config.pbtxt").write_bytes(b"name: '\xff'")
    assert find_model(folder).error.message == "a/config.pbtxt is not UTF-8: byte 7 is 0xff"


def test_a_config_that_cannot_be_opened_is_refused_without_the_path(tmp_path):
    folder = add_model(tmp_path, "a")
    (folder / "config.pbtxt").symlink_to("config.pbtxt")
    message = find_model(folder).error.message
    assert message == "model 'a' cannot be read: Too many levels of symbolic links"


def test_a_folder_that_is_gone_is_refused_without_the_path(tmp_path):
    error = find_model(tmp_path / "a").error
    assert error.message == "model 'a' cannot be read: No such file or directory"


def test_folders_that_are_no_versions_are_told(tmp_path):
    folder = add_model(tmp_path, "a", versions=(1, "v2"))
    [ignored] = find_model(folder).ignored
    assert ignored.startswith("folder 'v2' is no version")


def test_the_policy_chooses_the_versions(tmp_path):
    folder = add_model(tmp_path, "a", "version_policy { latest { num_versions: 2 } }", (1, 9, 10))
    assert find_model(folder).versions == (9, 10)


def test_strict_wants_a_config(tmp_path):
    add_model(tmp_path, "a")
    add_model(tmp_path, "b", "")
    a, b = find_models([tmp_path], strict=True)
    assert a.error.message == "model 'a' has no config.pbtxt, and deriving one is turned off"
    assert b.error is None


def test_a_named_config_goes_before_config_pbtxt_where_there_is_one(tmp_path):
    a = add_model(tmp_path, "a", "max_batch_size: 1")
    add_model(tmp_path, "b", "max_batch_size: 2")
    (a / "configs").mkdir()
    (a / "configs" / "large.pbtxt").write_text("max_batch_size: 64")
    found = find_models([tmp_path], "large")
    assert [model.config.max_batch_size for model in found] == [64, 2]
    (a / "configs" / "large.pbtxt").write_text("max_batch_size: -1")
    error = find_model(a, "large").error
    assert error.message.startswith("model 'a', configs/large.pbtxt: max_batch_size is -1")


def test_an_override_stands_in_for_the_config(tmp_path):
    folder = add_model(tmp_path, "a", "max_batch_size: -1")
    found = find_model(folder, override=ModelConfig("", max_batch_size=2))
    assert (found.error, found.config.max_batch_size) == (None, 2)


def test_gpus_are_counted_for_automatic_instances(tmp_path):
    add_model(tmp_path, "a")
    [model] = find_models([tmp_path], gpu_count=1)
    assert [group.kind for group in model.config.instance_group] == ["KIND_GPU"]


def test_an_ensemble_needs_a_version_folder_and_no_file(tmp_path):
    text = (
        "platform: 'ensemble' ensemble_scheduling { step { model_name: 'a' model_version: -1 "
        "input_map { key: 'x' value: 'X' } output_map { key: 'y' value: 'Y' } } }"
    )
    ensemble = find_model(add_model(tmp_path, "e", text, file=None))
    assert (ensemble.error, ensemble.versions) == (None, (1,))
    bare = find_model(add_model(tmp_path, "f", text, versions=()))
    assert bare.error.message == "model 'f' has no version folder, such as f/1"


def test_a_models_own_folder_is_that_model(tmp_path):
    [model] = find_models([add_model(tmp_path, "a")])
    assert (model.name, model.versions) == ("a", (1,))
    [model] = find_models([add_model(tmp_path, "b", "name: 'other'")])
    assert (model.name, model.error) == ("other", None)


def test_a_relative_path_to_a_model_knows_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(add_model(tmp_path, "a"))
    [model] = find_models([type(tmp_path)()])
    assert model.name == "a"


def test_models_may_be_called_by_numbers(tmp_path):
    add_model(tmp_path, "7")
    add_model(tmp_path, "8", "")
    assert [model.name for model in find_models([tmp_path])] == ["7", "8"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("resnet.onnx", "resnet"),
        ("my net (2).onnx", "my_net__2_"),
        ("net-symbol.json", "net"),
        ("zoo/model.onnx", "zoo"),
        ("zoo/3/model.onnx", "zoo"),
        ("zoo/.onnx", "zoo"),
        ("zoo/...onnx", "model"),
        ("zoo/model.py", "zoo"),
    ],
)
def test_a_bare_file_is_a_model_of_that_name(tmp_path, path, name):
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
    [model] = find_models([file])
    assert (model.name, model.versions, model.error) == (name, (1,), None)
    assert model.config.default_model_filename == file.name
    assert files_of(model, 1, model.config).file == file


def test_a_saved_model_folder_is_a_model_of_that_name(tmp_path):
    (tmp_path / "net.savedmodel").mkdir()
    [model] = find_models([tmp_path / "net.savedmodel"])
    assert (model.name, model.config.platform) == ("net", "tensorflow_savedmodel")


def test_a_bare_file_of_unknown_ending_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(InvalidConfig, match=r"^'a\.txt' is no known model file, .* \.onnx, "):
        find_models([tmp_path / "a.txt"])


def test_a_bare_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidConfig, match=r"^there is no model file 'a\.onnx'$"):
        single_model(tmp_path / "a.onnx")


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidConfig, match="does not exist: expected a model repository or a"):
        find_models([tmp_path / "none"])


def test_a_path_the_system_cannot_read_is_refused(tmp_path):
    # Newer Pythons call a name that is too long one that does not exist.
    with pytest.raises(InvalidConfig, match=r"cannot be read: File name too long|does not exist"):
        find_models([tmp_path / ("a" * 300)])


def test_an_empty_repository_holds_no_models(tmp_path):
    assert find_models([tmp_path]) == []


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_a_configuration_that_is_no_file_is_not_opened(tmp_path, make):
    folder = add_model(tmp_path, "a")
    make(folder / "config.pbtxt")
    assert find_model(folder).error.message == "a/config.pbtxt is not a file"


def test_a_folder_whose_name_is_not_utf8_is_refused(tmp_path):
    add_model(tmp_path, os.fsdecode(b"a\xff"), "")
    [found] = find_models([tmp_path])
    assert found.name == r"a\xff"
    assert found.error.message == r"model 'a\xff': the name of its folder is not UTF-8"
