"""What clients send with a load request: a configuration, and files."""

import pytest
from controlled import READY, SENT, engine_on, identity, run, states
from patience import until

from inferd.core.load import LoadRequest, UnloadRequest
from inferd.errors import InvalidConfig, InvalidRequest, LoadFailed, NotLoadable

pytestmark = pytest.mark.usefixtures("temporary")


@run
async def test_a_sent_configuration_stands_in_until_the_next_load(repository, ask):
    async with engine_on(repository(m=identity(dims=1))) as engine:
        await engine.changes.load(LoadRequest("m", SENT))
        assert engine.find("m", "").config.input[0].dims == (3,)
        await engine.infer(ask("m", INPUT0=[1, 2, 3]))
        await engine.changes.load(LoadRequest("m"))
        assert engine.find("m", "").config.input[0].dims == (1,)


@run
async def test_the_same_configuration_again_changes_nothing(theirs, repository):
    async with engine_on(repository(m='backend: "theirs"')) as engine:
        for _ in range(2):
            await engine.changes.load(
                LoadRequest("m", '{"backend": "theirs", "max_batch_size": 2}')
            )
        assert theirs.log.count(("open", "m_0")) == 1


@run
async def test_sent_files_are_the_whole_model(repository, ask, temporary):
    root = repository(m=identity(dims=1))
    async with engine_on(root) as engine:
        for name in ("m", "new"):
            await engine.changes.load(LoadRequest(name, SENT, {"7/weights": b"abc", "labels": b""}))
            assert engine.catalog.metadata(name, "").versions == ["7"]
            await engine.infer(ask(name, INPUT0=[1, 2, 3]))
        assert len(list(temporary.iterdir())) == 2
        await engine.changes.load(LoadRequest("m"))
        assert engine.catalog.metadata("m", "").versions == ["1"]
        await until(lambda: len(list(temporary.iterdir())) == 1)
        with pytest.raises(NotLoadable):  # it lies in no repository
            await engine.changes.load(LoadRequest("new"))
        await engine.changes.unload(UnloadRequest("new"))
        await until(lambda: list(temporary.iterdir()) == [])
        await until(lambda: {name for name, _ in states(engine)} == {"m"})


BAD_CONFIGS = {
    "": "config:1:1: not JSON",
    "{": "config:1:2: not JSON",
    "[]": "config: expected a JSON object",
    "null": "config: expected a JSON object",
    '{"max_batch_size": "many"}': "config: max_batch_size: expected a whole number",
    '{"max_batch_size": 1.5}': "config: max_batch_size",
    '{"max_batch_size": -1, "backend": "identity"}': "model 'm', config: max_batch_size is -1",
    '{"input": {}}': "config: ",
    '{"input": [7]}': "config: ",
    '{"nonsense": 1}': "config: ModelConfig has no field 'nonsense'",
    '{"name": "other", "backend": "identity"}': "model 'm', config: name is 'other'",
    '{"backend": "identity", "version_policy": {"specific": {"versions": [9]}}}': "version_policy",
    "{}": "nothing says which backend runs it; 1/",
    '{"backend": "identity", "parameters": {"a": {"string_value": 7}}}': "config: ",
    "[" * 100_000: "not JSON: depth limit",
    '{"input": ' + "[" * 1000 + "]" * 1000 + "}": "config: input[0]: expected an object",
    " " * (4 * 1024 * 1024 + 1): "the config has 4194305 characters, the limit is 4194304",
}


@pytest.mark.parametrize(("text", "message"), BAD_CONFIGS.items(), ids=range(len(BAD_CONFIGS)))
@run
async def test_a_sent_configuration_that_is_wrong_is_refused(repository, text, message):
    async with engine_on(repository(m=identity())) as engine:
        for files in ({}, {"1/x": b""}):
            with pytest.raises((InvalidConfig, InvalidRequest)) as caught:
                await engine.changes.load(LoadRequest("m", text, files))
            assert message in caught.value.message
            if isinstance(caught.value, InvalidConfig):
                assert caught.value.message.startswith(
                    "failed to load 'm', failed to poll from model "
                )
        assert engine.catalog.index() == []
        assert engine.readiness.is_ready()


@run
async def test_files_need_a_configuration(repository):
    async with engine_on(repository(m=identity())) as engine:
        with pytest.raises(InvalidRequest, match="needs the parameter 'config' as well"):
            await engine.changes.load(LoadRequest("m", None, {"1/x": b""}))


@pytest.mark.parametrize("path", ["../x", "/etc/x", "1/../../x", ""])
@run
async def test_a_file_that_is_to_lie_elsewhere_is_refused(repository, path):
    async with engine_on(repository(m=identity())) as engine:
        with pytest.raises(InvalidRequest, match="leads nowhere"):
            await engine.changes.load(LoadRequest("m", SENT, {path: b""}))
        assert engine.catalog.index() == []


@run
async def test_a_file_in_no_version_folder_is_told_of_in_the_clients_words(repository, temporary):
    async with engine_on(repository(m=identity())) as engine:
        with pytest.raises(InvalidConfig, match="belongs in a version folder: 1/") as caught:
            await engine.changes.load(LoadRequest("new", SENT, {"model.onnx": b"abc"}))
        # The folder in which the files lay has a name that the client never saw.
        assert "inferd-model-" not in caught.value.message


@run
async def test_more_bytes_than_there_is_room_for_are_refused(repository, ask):
    async with engine_on(repository(m=identity()), model_upload_max_bytes=5) as engine:
        await engine.changes.load(LoadRequest("a", SENT, {"1/x": b"abc"}))
        with pytest.raises(InvalidRequest, match="there is room for 2"):
            await engine.changes.load(LoadRequest("b", SENT, {"1/x": b"abc"}))
        await engine.infer(ask("a", INPUT0=[1, 2, 3]))
        await engine.changes.load(LoadRequest("b", SENT, {"1/x": b"ab"}))


@run
async def test_sent_files_that_do_not_load_leave_nothing_behind(repository, temporary):
    async with engine_on(repository(m=identity())) as engine:
        config = '{"backend": "faulty", "parameters": {"fault": {"string_value": "load"}}}'
        with pytest.raises(LoadFailed):
            await engine.changes.load(LoadRequest("new", config, {"1/x": b"abc"}))
        await engine.changes.load(LoadRequest("m"))
        with pytest.raises(LoadFailed):
            await engine.changes.load(LoadRequest("m", config, {"1/x": b"abc", "2/x": b"abc"}))
        assert list(temporary.iterdir()) == []
        assert states(engine) == {("m", "1"): READY}
        assert engine.readiness.is_ready()
