"""Where models are found: repositories, single model folders, bare model files."""

import json
import os

import pytest

from inferd.config.model import ModelConfig, VersionPolicy
from inferd.errors import InvalidConfig, NotLoadable
from inferd.repository.layout import files_of
from inferd.repository.local import MAX_CONFIG_BYTES, Reading, find_model
from inferd.repository.repositories import Repositories


def find_models(paths, config_name="", **options):
    return Repositories(paths, Reading(config_name, **options)).find_all()


def test_every_folder_is_a_model_and_the_rest_is_passed_over(add_model, tmp_path):
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


def test_a_file_where_folders_of_models_are_expected_is_reported(add_model, tmp_path, caplog):
    (tmp_path / "model.onnx").touch()
    (tmp_path / "README.md").touch()
    assert find_models([tmp_path]) == []
    [reported] = caplog.messages
    assert reported.endswith(f"to serve the file in it: inferd serve {tmp_path / 'model.onnx'}")
    add_model(tmp_path, "a")
    assert len(find_models([tmp_path])) == 1
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("left", ["lost+found", ".snapshot", "__pycache__"])
def test_what_file_systems_leave_is_no_model_no_version_and_no_settings(
    add_model, add_settings, tmp_path, left
):
    folder = add_model(tmp_path, "a")
    settings = add_settings("group/b")
    for place in (tmp_path, folder, tmp_path / "group", tmp_path / "group" / left):
        (place / left).mkdir(exist_ok=True)
    add_settings(f"group/{left}/found")
    add_settings(f"{left}/found")
    a, b = find_models([tmp_path])
    assert (a.name, a.error, a.ignored) == ("a", None, ())
    assert (b.name, b.error, b.folder) == ("b", None, settings)


@pytest.fixture
def add_settings(tmp_path):
    """add_settings(path, ...) writes a model as MLServer has them; {} has no name."""

    def add(path, content=None):
        folder = tmp_path / path
        folder.mkdir(parents=True)
        reported = (
            {"implementation": "mlserver_xgboost.XGBoostModel"} if content is None else content
        )
        (folder / "model-settings.json").write_text(json.dumps(reported))
        (folder / "model.json").touch()
        return folder

    return add


def test_settings_of_mlserver_may_lie_in_folders_below(add_model, add_settings, tmp_path):
    add_model(tmp_path, "plain")
    a, b = add_settings("group/a"), add_settings("group/more/b")
    add_settings("group/a/below_a_model/c")
    add_settings("plain/1/d")
    add_settings("deep/1/2/3/4/5/6/e")
    found = {model.name: model for model in find_models([tmp_path])}
    assert sorted(found) == ["a", "b", "deep", "plain"]
    assert (found["a"].folder, found["a"].file) == (a, a / "model.json")
    assert (found["b"].folder, found["b"].config.name) == (b, "b")
    assert found["a"].error is found["b"].error is found["plain"].error is None
    assert "nothing says which backend" in found["deep"].error.message


def test_links_to_settings_are_not_followed(add_settings, tmp_path):
    (tmp_path / "one" / "group").mkdir(parents=True)
    (tmp_path / "one" / "group" / "a").symlink_to(add_settings("elsewhere/a"))
    (tmp_path / "one" / "group" / "loop").symlink_to(tmp_path / "one")
    assert [model.name for model in find_models([tmp_path / "one"])] == ["group"]


@pytest.mark.parametrize(
    "beside", [None, "", "parameters { key: 'a' value: { string_value: '1' } }"]
)
def test_settings_of_mlserver_name_their_model(add_settings, tmp_path, beside):
    folder = add_settings("folder", {"name": "iris", "implementation": "mlserver_xgboost.X"})
    if beside is not None:
        (folder / "config.pbtxt").write_text(beside)
    repositories = Repositories([tmp_path])
    assert list(repositories.places()) == ["iris"]
    model = repositories.find("iris")
    assert (model.name, model.config.name, model.folder) == ("iris", "iris", folder)


@pytest.mark.parametrize(
    "content", [{"name": "a/b"}, {"name": ""}, {"name": 3}, [], {"name": ".."}]
)
def test_a_name_that_is_none_is_that_of_the_folder(add_settings, tmp_path, content):
    add_settings("folder", content)
    [model] = find_models([tmp_path])
    assert model.name == "folder"
    assert model.error is not None


def test_models_of_several_repositories_are_found_together(add_model, tmp_path):
    add_model(tmp_path / "one", "b")
    add_model(tmp_path / "two", "a")
    found = find_models([tmp_path / "one", tmp_path / "two"])
    assert [model.name for model in found] == ["a", "b"]


def test_a_name_in_two_repositories_is_not_served(add_model, tmp_path):
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
def test_a_broken_model_carries_its_error_and_stops_no_other(
    add_model, tmp_path, complaint, layout
):
    add_model(tmp_path, "a", **layout)
    add_model(tmp_path, "b")
    a, b = find_models([tmp_path])
    assert a.config is None
    assert isinstance(a.error, InvalidConfig)
    assert a.error.message.startswith(complaint)
    assert str(tmp_path) not in a.error.message
    assert b.error is None


def test_strict_wants_a_config(add_model, tmp_path):
    add_model(tmp_path, "a")
    add_model(tmp_path, "b", "")
    a, b = find_models([tmp_path], strict=True)
    assert a.error.message == "model 'a' has no config.pbtxt, and deriving one is turned off"
    assert b.error is None


def test_a_named_config_goes_before_config_pbtxt_where_there_is_one(add_model, tmp_path):
    a = add_model(tmp_path, "a", "max_batch_size: 1")
    add_model(tmp_path, "b", "max_batch_size: 2")
    (a / "configs").mkdir()
    (a / "configs" / "large.pbtxt").write_text("max_batch_size: 64")
    found = find_models([tmp_path], "large")
    assert [model.config.max_batch_size for model in found] == [64, 2]
    (a / "configs" / "large.pbtxt").write_text("max_batch_size: -1")
    error = find_model(a, Reading("large")).error
    assert error.message.startswith("model 'a', configs/large.pbtxt: max_batch_size is -1")


def test_gpus_are_counted_for_automatic_instances(add_model, tmp_path):
    add_model(tmp_path, "a")
    [model] = find_models([tmp_path], gpu_count=1)
    assert [group.kind for group in model.config.instance_group] == ["KIND_GPU"]


def test_a_models_own_folder_is_that_model(add_model, tmp_path):
    [model] = find_models([add_model(tmp_path, "a")])
    assert (model.name, model.versions) == ("a", (1,))
    [model] = find_models([add_model(tmp_path, "b", "name: 'other'")])
    assert (model.name, model.error) == ("other", None)


def test_a_relative_path_to_a_model_knows_its_name(add_model, tmp_path, monkeypatch):
    monkeypatch.chdir(add_model(tmp_path, "a"))
    [model] = find_models([type(tmp_path)()])
    assert model.name == "a"


def test_models_may_be_called_by_numbers(add_model, tmp_path):
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


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidConfig, match="does not exist: expected a model repository or a"):
        find_models([tmp_path / "none"])


def test_a_path_the_system_cannot_read_is_refused(tmp_path):
    # Newer Pythons call a name that is too long one that does not exist.
    with pytest.raises(InvalidConfig, match=r"cannot be read: File name too long|does not exist"):
        find_models([tmp_path / ("a" * 300)])


def test_an_empty_repository_holds_no_models(tmp_path):
    assert find_models([tmp_path]) == []


def test_a_folder_whose_name_is_not_utf8_is_refused(add_model, tmp_path):
    add_model(tmp_path, os.fsdecode(b"a\xff"), "")
    [found] = find_models([tmp_path])
    assert found.name == r"a\xff"
    assert found.error.message == r"model 'a\xff': the name of its folder is not UTF-8"


def test_a_model_is_found_by_its_name_alone(add_model, tmp_path):
    add_model(tmp_path / "one", "a")
    lone = add_model(tmp_path, "folder", "name: 'lone'")
    bare = tmp_path / "bare.onnx"
    bare.write_text("")
    repositories = Repositories([tmp_path / "one", lone, bare])
    assert list(repositories.places()) == ["a", "bare", "lone"]
    a, lone_model = repositories.find("a"), repositories.find("lone")
    assert (a.folder, a.root) == (tmp_path / "one" / "a", tmp_path / "one")
    assert (lone_model.folder, lone_model.root, lone_model.error) == (lone, None, None)
    assert repositories.find("bare").file == bare
    for name in ("b", "folder", "A", "", ".", "..", "../one/a", "a/", "a/1", str(a.folder), "a\0"):
        assert repositories.find(name) is None


def test_models_come_and_go(add_model, tmp_path):
    repositories = Repositories([tmp_path])
    assert repositories.places() == {}
    add_model(tmp_path, "a")
    assert list(repositories.places()) == ["a"]
    # A file like this makes a model of a folder that is named by itself, not of a repository.
    (tmp_path / "config.pbtxt").write_text("")
    assert list(repositories.places()) == ["a"]


def test_a_repository_that_has_gone_is_not_an_empty_one(tmp_path):
    root = tmp_path / "models"
    root.mkdir()
    repositories = Repositories([root])
    root.rmdir()
    with pytest.raises(NotLoadable) as caught:
        repositories.places()
    assert caught.value.message == "a model repository cannot be read: No such file or directory"


def test_a_lone_model_that_changes_its_name_is_broken(add_model, tmp_path):
    folder = add_model(tmp_path, "a", "name: 'lone'")
    repositories = Repositories([folder])
    (folder / "config.pbtxt").write_text("name: 'other'")
    assert "name is 'other', expected 'lone'" in repositories.find("lone").error.message
    assert repositories.find("other") is None


def test_a_bare_file_that_has_gone_is_broken(tmp_path):
    file = tmp_path / "net.onnx"
    file.write_text("")
    repositories = Repositories([file])
    file.unlink()
    assert repositories.find("net").error.message == "there is no model file 'net.onnx'"


def test_a_sent_configuration_stands_in_for_the_one_on_disk(add_model, tmp_path):
    add_model(tmp_path, "a", "max_batch_size: -1")
    file = tmp_path / "net.onnx"
    file.write_text("")
    repositories = Repositories([tmp_path, file])
    for name in ("a", "net"):
        found = repositories.find(name, ModelConfig("", max_batch_size=3))
        assert (found.config.name, found.config.max_batch_size, found.error) == (name, 3, None)
        wrong = repositories.find(name, ModelConfig("", max_batch_size=-3))
        assert wrong.error.message.startswith(f"model '{name}', config: max_batch_size is -3")
