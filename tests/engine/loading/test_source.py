"""What models are made from: which there are to begin with, what lies on disk, what is sent."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from inferd.config.model import InstanceGroup, VersionPolicy
from inferd.core.load import LoadRequest
from inferd.core.processes import ALONE, Processes, unlike
from inferd.engine.loading.load import Loader, LoadOptions
from inferd.engine.loading.lookup import given_model
from inferd.engine.loading.source import ModelSources
from inferd.errors import InvalidConfig, NotLoadable
from inferd.repository.watch import NO_MARKS

SEVERAL = Processes(0, 2)
IDENTITY = 'backend: "identity"'


@pytest.fixture
def sources(repository):
    """sources(processes, options) opens a repository with models m and n; returns it and them."""

    def build(processes=ALONE, **more):
        root = repository(m=IDENTITY, n=IDENTITY)
        options = LoadOptions(**more)
        loader = asyncio.run(made(options, processes))
        found = ModelSources(loader, options)
        return found, found.open([root])

    return build


async def made(options, processes=ALONE):
    return Loader(options, processes=processes)


@pytest.mark.parametrize(
    ("mode", "wanted", "names"),
    [
        ("none", (), ["m", "n"]),
        ("poll", (), ["m", "n"]),
        ("explicit", (), []),
        ("explicit", ("*",), ["m", "n"]),
        ("explicit", ("n", "x", "n"), ["n", "x"]),
    ],
)
def test_the_mode_says_what_there_is_to_begin_with(sources, mode, wanted, names):
    found, models = sources(model_control_mode=mode, load_model=wanted)
    assert [model.name for model in models] == names
    assert [model.name for model in models if model.error] == [n for n in names if n == "x"]
    assert found.names() == ["m", "n"]


def test_a_path_that_is_given_twice_counts_once(repository, tmp_path, monkeypatch):
    root = repository(m=IDENTITY)
    app = tmp_path / "app.py"
    app.write_text("import inferd\n\n@inferd.model\ndef f(x: int) -> int:\n    return x\n")
    monkeypatch.chdir(tmp_path)
    found = ModelSources(asyncio.run(made(LoadOptions())), LoadOptions())
    models = found.open([root, app, Path("models"), Path("app.py")])
    found.close()
    assert [(model.name, model.error and model.error.message) for model in models] == [
        ("f", None),
        ("m", None),
    ]


def test_what_is_never_looked_at_again_has_no_marks(sources):
    found, [model, _] = sources()
    assert found.of(model).marks == NO_MARKS
    assert found.of(model).prints == {}


def test_prints_tell_what_has_changed_and_what_is_gone(sources):
    found, [model, _] = sources(SEVERAL)
    file = model.folder / "1" / "weights"
    file.write_bytes(b"abc")
    before = {"m": found.of(model).prints}
    assert unlike(before, {"m": found.of(model).prints}) == []
    (model.folder / "log").write_text("written by the model")
    assert unlike(before, {"m": found.of(model).prints}) == []
    file.write_bytes(b"abcd")
    assert unlike(before, {"m": found.of(model).prints}) == ["m"]
    assert unlike(before, {"m": found.of(model).prints}, is_start=True) == []
    file.unlink()
    assert unlike(before, {"m": found.of(model).prints}) == ["m"]


def test_prints_tell_what_of_a_configuration_matters(sources):
    found, [model, _] = sources(SEVERAL)
    before = {"m": found.of(model).prints}

    def changed(**more):
        config = replace(model.config, **more)
        after = found.of(msgspec.structs.replace(model, config=config))
        return unlike(before, {"m": after.prints}, is_start=True)

    assert changed(max_batch_size=7) == ["m"]
    assert changed(instance_group=(InstanceGroup(count=3),), version_policy=VersionPolicy()) == []


@pytest.mark.parametrize("path", ["config.pbtxt", "configs/large.pbtxt"])
def test_a_configuration_written_in_another_way_has_the_same_prints(sources, path):
    found, [model, _] = sources(SEVERAL)
    before = {"m": found.of(model).prints}
    # Processes that resize their version meet one that gets its first instance, and loads it anew.
    file = model.folder / path
    file.parent.mkdir(exist_ok=True)
    file.write_text("# four instances by now")
    assert found.of(model).prints == before["m"]


def test_many_files_have_one_print(sources):
    found, [model, _] = sources(SEVERAL)
    for number in range(200):
        (model.folder / f"{number}").touch()
    assert len(found.of(model).prints[1]) == 2


def test_the_prints_of_what_was_sent_do_not_tell_when(sources):
    found, _ = sources(SEVERAL, model_control_mode="explicit")
    request = LoadRequest("x", '{"backend": "identity"}', {"1/weights": b"abc"})
    prints = []
    for time_s in (1, 2):
        upload = found.uploads.store(request.files)
        os.utime(upload.folder / "1" / "weights", (time_s, time_s))
        prints.append(found.sent(request, upload).prints)
    assert prints[0] == prints[1] != {}


def test_the_prints_of_an_app_follow_its_file(tmp_path):
    app = tmp_path / "app.py"
    prints = []
    for times in (1, 2):
        app.write_text(
            "import inferd\n\n@inferd.model\ndef f(x: int) -> int:\n    return x" + " * 1" * times
        )
        found = ModelSources(asyncio.run(made(LoadOptions(), SEVERAL)), LoadOptions())
        [model] = found.open([app])
        prints.append({"f": found.of(model).prints})
        found.close()
    assert unlike(*prints) == ["f"]


def test_what_is_polled_was_looked_at_before_it_was_read(sources):
    found, [model, _] = sources(model_control_mode="poll")
    assert found.of(model).marks != NO_MARKS
    assert found.watch.look() == []


def test_a_model_is_found_by_its_name(sources):
    found, _ = sources(model_control_mode="explicit")
    assert found.find("m").model.name == "m"
    assert found.find("x") is None


def test_a_request_has_the_model_with_its_own_configuration(sources):
    found, _ = sources(model_control_mode="explicit")
    assert not found.requested(LoadRequest("m")).is_override
    source = found.requested(LoadRequest("m", '{"backend": "repeat"}'))
    assert (source.is_override, source.model.config.backend) == (True, "repeat")
    with pytest.raises(NotLoadable):
        found.requested(LoadRequest("x"))
    with pytest.raises(InvalidConfig):
        found.requested(LoadRequest("m", "{"))


def test_what_is_sent_lies_in_a_folder_of_its_own_until_the_end(sources):
    found, _ = sources(model_control_mode="explicit")
    request = LoadRequest("x", '{"backend": "identity"}', {"5/weights": b"abc"})
    upload = found.uploads.store(request.files)
    source = found.sent(request, upload)
    assert (source.model.name, source.model.versions, source.upload) == ("x", (5,), upload)
    assert source.marks_of(5) != found.requested(LoadRequest("m")).marks_of(5)
    found.close()
    assert not upload.folder.exists()


def double(x: int) -> int: ...


@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
def test_what_a_program_gives_is_there_in_every_mode(repository, tmp_path, mode):
    options = LoadOptions(model_control_mode=mode)
    found = ModelSources(asyncio.run(made(options)), options)
    app = tmp_path / "app.py"
    app.write_text("import inferd\n\n@inferd.model\ndef f(x: int) -> int: ...\n")
    root = repository(m=IDENTITY)
    models = found.open([app, root], [given_model(double)])
    assert [model.name for model in models] == ["double", "f", *(["m"] * (mode != "explicit"))]
    assert found.names() == ["double", "f", "m"]
    source = found.find("double")
    assert (source.model.versions, source.marks) == ((1,), NO_MARKS)
    override = LoadRequest("double", '{"parameters": {"a": {"string_value": "b"}}}')
    assert found.requested(override).model.config.parameters == {"a": "b"}
    assert found.requested(override).model.backend is source.model.backend


def test_what_a_program_gives_may_be_named_as_to_be_loaded(repository):
    options = LoadOptions(model_control_mode="explicit", load_model=("double", "m", "x"))
    found = ModelSources(asyncio.run(made(options)), options)
    models = found.open([repository(m=IDENTITY)], [given_model(double)])
    assert [(model.name, model.error is None) for model in models] == [
        ("double", True),
        ("m", True),
        ("x", False),
    ]


@pytest.mark.parametrize("place", ["nowhere", "models/m/config.pbtxt/x", "x" * 300])
def test_a_folder_that_is_not_there_is_told_without_a_traceback(sources, tmp_path, place):
    found, _ = sources(model_control_mode="explicit")
    with pytest.raises(NotLoadable, match="is no folder in a model repository") as caught:
        found.requested(LoadRequest("m", folder=tmp_path / place))
    assert caught.value.__cause__ is None


def test_a_name_is_given_once(repository):
    options = LoadOptions()
    found = ModelSources(asyncio.run(made(options)), options)
    given = given_model(double)
    with pytest.raises(InvalidConfig, match="two models are called 'double'"):
        found.open([], [given, given])
    with pytest.raises(InvalidConfig, match="two models are called 'double'"):
        ModelSources(asyncio.run(made(options)), options).open(
            [repository(double=IDENTITY)], [given]
        )


APP = "import inferd\n@inferd.model\ndef double(x: float) -> float:\n    return 2 * x\n"


@pytest.mark.parametrize("mode", ["none", "explicit", "poll"])
def test_an_app_file_is_not_polled_and_that_is_told(repository, tmp_path, caplog, mode):
    app = tmp_path / "app.py"
    app.write_text(APP)
    root = repository(m=IDENTITY)
    options = LoadOptions(model_control_mode=mode)
    loader = asyncio.run(made(options))
    assert "double" in [model.name for model in ModelSources(loader, options).open([app, root])]
    text = (
        "--model-control-mode=poll follows folders, and app.py is read once, at the start; "
        "start the server again when it has changed"
    )
    assert [record.getMessage() for record in caplog.records] == [text] * (mode == "poll")
    if mode == "poll":
        with pytest.raises(InvalidConfig, match=r"has changed, and without this mode$"):
            ModelSources(loader, options).open([app])
    else:
        assert ModelSources(loader, options).open([app])
