"""Where models are found: repositories, single model folders, bare model files."""

import json
import os
from pathlib import Path

import pytest

from inferd.config.model import ModelConfig, VersionPolicy
from inferd.config.platform import reported_platform
from inferd.errors import InvalidConfig, NotLoadable
from inferd.repository.contents import MAX_CONFIG_BYTES
from inferd.repository.layout import files_of
from inferd.repository.local import AS_USUAL, Reading, find_model
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


def taken(caplog):
    """What the log says that paths were taken for."""
    return [record.getMessage() for record in caplog.records if record.levelname == "INFO"]


@pytest.fixture(autouse=True)
def every_word(caplog):
    caplog.set_level("INFO", "inferd.repository")


def test_a_file_beside_models_is_reported(add_model, tmp_path, caplog):
    add_model(tmp_path, "a")
    (tmp_path / "net.onnx").touch()
    (tmp_path / "README.md").touch()
    (tmp_path / "fetch.py").touch()
    assert [model.name for model in find_models([tmp_path])] == ["a"]
    assert taken(caplog) == [f"'{tmp_path}' is a repository of models: 'a'"]
    [warning] = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert warning.endswith(
        f"the file 'net.onnx' in it is not served; for that: inferd serve {tmp_path / 'net.onnx'}"
    )


def test_an_app_file_does_not_make_a_model_of_its_folder(tmp_path, caplog):
    (tmp_path / "app.py").touch()
    assert find_models([tmp_path]) == []
    assert taken(caplog) == [f"'{tmp_path}' is a repository without models; it holds 'app.py'"]
    assert caplog.messages[-1].endswith(f"inferd serve {tmp_path / 'app.py'}")


ALONE = {  # what lies in a folder called "net" -> the name, the version, the file, and the sign
    "a file": (["style.onnx"], "net", 1, "style.onnx", "its file is style.onnx"),
    "the usual file": (["model.onnx", "b.onnx"], "net", 1, "model.onnx", "its file is model.onnx"),
    "data beside": (["m.onnx", "m.onnx.data", "labels.txt"], "net", 1, "m.onnx", "its file is m."),
    "a SavedModel": (["saved_model.pb", "variables/v.index"], "net", 1, "", "it is a SavedModel"),
    "a version": (["3/model.onnx"], "net", 3, "3/model.onnx", "it has version folder 3"),
    "versions": (["3/model.pt", "12/model.pt"], "net", 12, "12/model.pt", "folders 3, 12"),
    "another name": (["3/net.onnx"], "net", 3, "3/net.onnx", "it has version folder 3"),
    "TF Serving's": (["2/saved_model.pb"], "net", 2, "2", "it has version folder 2"),
    "config.pbtxt": (["config.pbtxt", "x.onnx"], "net", 1, "x.onnx", "it has config.pbtxt"),
    "MLmodel": (["MLmodel", "model.onnx"], "net", 1, "model.onnx", "it has MLmodel"),
    "hidden files": ([".a.onnx", "x.onnx", "y.onnx~"], "net", 1, "x.onnx", "its file is x.onnx"),
}
CONTENTS = {
    "config.pbtxt": "max_batch_size: 0",
    "MLmodel": "flavors:\n  onnx:\n    data: model.onnx\n",
}


def lay(folder, *paths):
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(CONTENTS.get(path, ""))
    return folder


@pytest.mark.parametrize("given", ["", "x"])
@pytest.mark.parametrize("case", ALONE)
def test_a_folder_that_is_a_model_is_served_as_one(tmp_path, caplog, case, given):
    paths, name, version, file, sign = ALONE[case]
    folder = lay(tmp_path / "net", *paths)
    repositories = Repositories([folder], AS_USUAL, given)
    [model] = repositories.find_all()
    assert (model.name, model.versions, model.error) == (given or name, (version,), None)
    assert model.ignored == ()
    assert files_of(model, version, model.config).file == folder / file
    assert repositories.find(given or name) == model
    [said] = taken(caplog)
    assert said.startswith(f"'{folder}' is one model, '{given or name}': ")
    assert sign in said


@pytest.mark.parametrize(
    ("name", "content", "platform"),
    [
        ("model.json", '{"learner":{}}', "xgboost_json"),
        ("iris.ubj", "", "xgboost_ubj"),
        ("model.bst", "tree\n", "lightgbm_txt"),
        ("iris.pkl", "", "sklearn_joblib"),
        ("style.onnx", "", "onnxruntime_onnx"),
        ("saved_model.pb", "", "tensorflow_savedmodel"),
        ("1/saved_model.pb", "", "tensorflow_savedmodel"),
    ],
)
def test_clients_are_told_the_format_of_the_file(tmp_path, name, content, platform):
    file = lay(tmp_path / "net", name) / name
    file.write_text(content)
    paths = [tmp_path / "net"] if "saved_model" in name else [tmp_path / "net", file]
    for path in paths:
        [model] = find_models([path])
        assert (model.error, reported_platform(model.config)) == (None, platform)


REPOSITORIES = {
    "models": (["a/1/model.onnx", "b/config.pbtxt"], ["a", "b"]),
    "a stray file": (["a/1/model.onnx", "model.onnx"], ["a"]),
    "a model called 1": (["1/1/model.onnx"], ["1"]),
    "one called 1, configured": (["1/config.pbtxt", "1/1/model.onnx", "x.onnx"], ["1"]),
    "MLServer's, deeper": (["group/a/model-settings.json", "x.onnx"], ["a"]),
    "nothing": ([], []),
    "files of no library": (["a.h5", "b/c.h5"], ["b"]),
}


@pytest.mark.parametrize("case", REPOSITORIES)
def test_a_folder_of_models_is_a_repository(tmp_path, caplog, case):
    paths, names = REPOSITORIES[case]
    folder = lay(tmp_path / "net", *paths)
    folder.mkdir(exist_ok=True)
    assert list(Repositories([folder]).places()) == names
    assert taken(caplog)[0].startswith(f"'{folder}' is a repository ")


def test_a_folder_with_several_files_is_refused(tmp_path):
    folder = lay(tmp_path / "net", "a.onnx", "b.onnx")
    with pytest.raises(InvalidConfig, match=r"'net' holds 2 model files: 'a\.onnx', 'b\.onnx'; "):
        Repositories([folder])


def test_a_version_folder_that_is_given_itself_has_the_models_name(tmp_path):
    folder = lay(tmp_path / "net", "1/model.onnx")
    [model] = find_models([folder / "1"])
    assert (model.name, model.versions, model.error) == ("net", (1,), None)


@pytest.mark.parametrize(("path", "name"), [("..", "net"), (".", "net"), ("../my net", "my net")])
def test_paths_of_all_kinds_have_names(tmp_path, monkeypatch, path, name):
    lay(tmp_path / "net", "sub/other.h5", "model.onnx")
    lay(tmp_path / "my net", "model.onnx")
    monkeypatch.chdir(tmp_path / "net" / "sub" if path == ".." else tmp_path / "net")
    [model] = find_models([Path(path)])
    assert (model.name, model.error) == (name, None)


def test_a_folder_whose_name_is_no_models_name_gets_one(tmp_path):
    [model] = find_models([lay(tmp_path / ".net\\x", "model.onnx")])
    assert (model.name, model.error) == ("net_x", None)


def test_the_given_name_goes_before_those_in_files(add_settings, tmp_path):
    configured = lay(tmp_path / "a", "model.onnx")
    (configured / "config.pbtxt").write_text("name: 'own'")
    versioned = lay(tmp_path / "b", "1/model.onnx")
    (versioned / "config.pbtxt").write_text("name: 'own'")
    settings = add_settings("c", {"name": "own", "implementation": "mlserver_xgboost.X"})
    bare = lay(tmp_path / "d", "own.onnx") / "own.onnx"
    for path in (configured, versioned, settings, bare):
        assert [model.name for model in find_models([path])] == ["own"]
        repositories = Repositories([path], AS_USUAL, "given")
        model = repositories.find("given")
        assert (model.name, model.config.name, model.error) == ("given", "given", None)
        assert repositories.find("own") is None
        sent = repositories.find("given", ModelConfig("", max_batch_size=3))
        assert (sent.config.max_batch_size, sent.error) == (3, None)


def test_the_given_name_is_for_one_model(add_model, tmp_path):
    add_model(tmp_path / "repo", "a")
    one, two = lay(tmp_path / "one", "x.onnx"), lay(tmp_path / "two", "x.onnx")
    found = Repositories([one, tmp_path / "repo"], AS_USUAL, "given").find_all()
    assert [model.name for model in found] == ["a", "given"]
    (tmp_path / "empty").mkdir()
    refused = {
        (tmp_path / "repo",): f"here '{tmp_path / 'repo'}' is a repository of models: 'a'; leave",
        (one, two): f"here '{one}' is a model, '{two}' is a model; leave it out",
        (tmp_path / "empty",): "empty' is a repository without models; leave it out",
        (): "here no such path is; leave it out",
    }
    for paths, text in refused.items():
        with pytest.raises(InvalidConfig, match="--model-name is the name of one model") as caught:
            Repositories(paths, AS_USUAL, "given")
        assert text in caught.value.message


def test_many_models_are_not_all_listed(add_model, tmp_path, caplog):
    for number in range(8):
        add_model(tmp_path, f"m{number}")
    Repositories([tmp_path])
    [said] = taken(caplog)
    assert said.endswith("of models: 'm0', 'm1', 'm2', 'm3', 'm4' and 3 more")


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
    assert a.error.message == (
        "model appears in two or more repositories: 'a' is in 2 places, expected one"
    )
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
