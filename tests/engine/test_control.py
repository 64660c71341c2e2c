"""Loading and unloading while the server runs: what serves, and what is refused."""

import asyncio
import contextlib
import functools
import json
import logging
import os
import tempfile
import threading

import pytest

from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.metadata import ModelState
from inferd.core.request import InferResponse
from inferd.engine import control as control_module
from inferd.engine.catalog import Catalog
from inferd.engine.control import Control
from inferd.engine.engine import Engine
from inferd.engine.load import Loader, LoadOptions
from inferd.engine.served import Served
from inferd.errors import (
    InvalidConfig,
    InvalidRequest,
    LoadFailed,
    ModelNotFound,
    NotLoadable,
    Unavailable,
)

PATIENCE_S = 30
READY, UNAVAILABLE = ModelState.READY, ModelState.UNAVAILABLE


def identity(dims=1, more=""):
    """Return a config whose model gives back FP32 [dims]."""
    return (
        'backend: "identity"\n'
        f'input {{ name: "INPUT0" data_type: TYPE_FP32 dims: {dims} }}\n'
        f'output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: {dims} }}\n{more}'
    )


IN_THREADS = 'backend: "theirs"\nparameters { key: "unbounded" value: { string_value: "1" } }'
ALL_VERSIONS = "version_policy { all {} }"
BROKEN = 'backend: "faulty"\nparameters { key: "fault" value: { string_value: "load" } }'
SENT = json.dumps(
    {
        "backend": "identity",
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [3]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [3]}],
    }
)


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Where sent files are put; a test leaves nothing there."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def write(path, text=""):
    """Write a file so that it looks other than before, however quick the test is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))


@contextlib.asynccontextmanager
async def engine_on(*roots, mode="explicit", **options):
    """An engine that has loaded what its mode says of `roots`."""
    options = LoadOptions(model_control_mode=mode, repository_poll_secs=0, **options)
    engine = Engine(load_options=options)
    try:
        await engine.load_all(roots)
        yield engine
    finally:
        await engine.close(PATIENCE_S)


def run(test):
    """Return `test`, a coroutine function, as one pytest can run; fixtures come as arguments."""

    @functools.wraps(test)
    def runner(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return runner


def states(engine):
    """Return (name, version) -> state, or (state, reason) where there is a reason."""
    return {
        (row.name, row.version): (row.state, row.reason) if row.reason else row.state
        for row in engine.index()
    }


async def until(condition):
    """Wait until `condition()` holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.001)


UNLOADED = (UNAVAILABLE, "unloaded")


# --- which mode allows what ---


@pytest.mark.parametrize("mode", ["none", "poll"])
@run
async def test_where_clients_do_not_control_models_they_are_told_so(repository, mode):
    async with engine_on(repository(m=identity()), mode=mode) as engine:
        for call in (engine.load(LoadRequest("m")), engine.unload(UnloadRequest("m"))):
            with pytest.raises(Unavailable, match=f"model-control-mode={mode}.*=explicit"):
                await call
        assert states(engine) == {("m", "1"): READY}


@run
async def test_explicit_begins_with_nothing(repository):
    async with engine_on(repository(m=identity(), n=identity())) as engine:
        assert engine.index() == []
        assert engine.is_ready()
        assert [(r.name, r.version, r.state) for r in await engine.repository_index()] == [
            ("m", "", None),
            ("n", "", None),
        ]
        assert await engine.repository_index(ready=True) == []


@pytest.mark.parametrize(("wanted", "loaded"), [(("n",), {"n"}), (("*",), {"m", "n"})])
@run
async def test_explicit_begins_with_the_models_named(repository, wanted, loaded):
    root = repository(m=identity(), n=identity())
    async with engine_on(root, load_model=wanted) as engine:
        assert {name for name, _ in states(engine)} == loaded
        rows = await engine.repository_index()
        assert [row.name for row in rows] == ["m", "n"]


@run
async def test_a_model_to_begin_with_that_is_not_there_makes_the_server_not_ready(repository):
    async with engine_on(repository(m=identity()), load_model=("m", "x", "x")) as engine:
        assert states(engine) == {
            ("m", "1"): READY,
            ("x", ""): (
                UNAVAILABLE,
                "failed to load 'x': there is no such model in the repository",
            ),
        }
        assert not engine.is_ready()


@run
async def test_a_server_that_ends_loads_nothing_more(repository):
    async with engine_on(repository(m=identity())) as engine:
        engine.drain()
        with pytest.raises(Unavailable, match="shutting down"):
            await engine.load(LoadRequest("m"))


# --- load ---


@run
async def test_a_model_is_loaded_and_answers(repository, ask):
    async with engine_on(repository(m=identity())) as engine:
        with pytest.raises(ModelNotFound):
            await engine.infer(ask("m", INPUT0=[1]))
        await engine.load(LoadRequest("m"))
        answer = await engine.infer(ask("m", INPUT0=[1]))
        assert answer.outputs[0].numpy().tolist() == [1]
        assert states(engine) == {("m", "1"): READY}


@run
async def test_a_model_that_came_after_the_start_is_loaded(repository):
    root = repository(m=identity())
    async with engine_on(root) as engine:
        repository(late=identity())
        await engine.load(LoadRequest("late"))
        assert states(engine) == {("late", "1"): READY}


@run
async def test_a_model_that_has_not_changed_is_not_loaded_again(theirs, repository):
    async with engine_on(repository(m='backend: "theirs"')) as engine:
        for _ in range(3):
            await engine.load(LoadRequest("m"))
        assert theirs.log.count(("open", "m_0")) == 1


@run
async def test_only_the_version_that_changed_is_loaded_again(theirs, repository):
    root = repository(1, 2, m='backend: "theirs"\n' + ALL_VERSIONS)
    async with engine_on(root) as engine:
        await engine.load(LoadRequest("m"))
        assert theirs.log.count(("open", "m_0")) == 2
        write(root / "m" / "2" / "weights")
        await engine.load(LoadRequest("m"))
        assert theirs.log.count(("open", "m_0")) == 3
        write(root / "m" / "labels.txt")  # may matter to every version
        await engine.load(LoadRequest("m"))
        assert theirs.log.count(("open", "m_0")) == 5
        write(root / "m" / "1" / "__pycache__" / "model.pyc")
        await engine.load(LoadRequest("m"))
        assert theirs.log.count(("open", "m_0")) == 5


@run
async def test_another_policy_loads_only_what_it_adds(theirs, repository):
    root = repository(
        1, 2, 3, m='backend: "theirs"\nversion_policy { specific { versions: [1, 2] } }'
    )
    async with engine_on(root) as engine:
        await engine.load(LoadRequest("m"))
        write(
            root / "m" / "config.pbtxt",
            'backend: "theirs"\nversion_policy { specific { versions: [2, 3] } }',
        )
        await engine.load(LoadRequest("m"))
        assert theirs.log.count(("open", "m_0")) == 3
        assert engine.model_metadata("m", "").versions == ["2", "3"]
        for version in ("2", "3"):
            assert engine.model_config("m", version).version_policy.specific == (2, 3)
        await until(lambda: states(engine)["m", "1"] == UNLOADED)
        assert engine.is_ready()


@run
async def test_a_new_version_takes_over_and_the_old_one_is_closed(theirs, repository, ask):
    root = repository(m='backend: "theirs"')
    async with engine_on(root) as engine:
        await engine.load(LoadRequest("m"))
        repository(2, m='backend: "theirs"')
        await engine.load(LoadRequest("m"))
        assert (await engine.infer(ask("m", A=[1]))).version == "2"
        assert await asyncio.to_thread(theirs.closed.wait, PATIENCE_S)
        await until(lambda: states(engine) == {("m", "1"): UNLOADED, ("m", "2"): READY})
        with pytest.raises(Unavailable, match="version 1 is UNAVAILABLE: unloaded"):
            await engine.infer(ask("m", "1", A=[1]))
        assert engine.is_ready()


@run
async def test_a_reload_loses_no_request_that_runs(theirs, repository, ask):
    root = repository(m=IN_THREADS)
    async with engine_on(root) as engine:
        await engine.load(LoadRequest("m"))
        theirs.may_execute.clear()
        running = [asyncio.create_task(engine.infer(ask("m", A=[n]))) for n in range(4)]
        await until(theirs.executing.is_set)
        write(root / "m" / "config.pbtxt", identity(dims=2))
        await engine.load(LoadRequest("m"))
        assert not any(task.done() for task in running)
        new = await engine.infer(ask("m", INPUT0=[5, 6]))
        assert new.outputs[0].numpy().tolist() == [5, 6]
        theirs.may_execute.set()
        old = await asyncio.gather(*running)
        assert [answer.outputs[0].numpy().tolist() for answer in old] == [[0], [1], [2], [3]]


@run
async def test_a_request_that_does_not_end_is_cut_after_a_while(repository, ask):
    hanging = 'backend: "faulty"\nparameters { key: "fault" value: { string_value: "hang" } }'
    async with engine_on(repository(m=hanging), model_unload_timeout_secs=0.01) as engine:
        await engine.load(LoadRequest("m"))
        running = asyncio.create_task(engine.infer(ask("m", INPUT0=[1])))
        await asyncio.sleep(0)
        await engine.unload(UnloadRequest("m"))
        assert states(engine) == {("m", "1"): ModelState.UNLOADING}
        await running  # the faulty model lets go when it is closed
        await until(lambda: states(engine) == {("m", "1"): UNLOADED})


# --- what does not load ---


@run
async def test_a_failed_reload_keeps_what_serves(repository, ask):
    root = repository(m=identity())
    async with engine_on(root) as engine:
        await engine.load(LoadRequest("m"))
        write(root / "m" / "config.pbtxt", BROKEN)
        for _ in range(2):
            with pytest.raises(LoadFailed) as caught:
                await engine.load(LoadRequest("m"))
            assert caught.value.message == (
                "load failed for model 'm': version 1: "
                "model 'm' fails to load, as its fault 'load' says"
            )
            await engine.infer(ask("m", INPUT0=[1]))
            assert states(engine) == {("m", "1"): READY}
            assert engine.is_ready()
        write(root / "m" / "config.pbtxt", "max_batch_size: 1 max_batch_size: 2")
        with pytest.raises(NotLoadable, match=r"^failed to load 'm': m/config.pbtxt:1:"):
            await engine.load(LoadRequest("m"))
        await engine.infer(ask("m", INPUT0=[1]))
        write(root / "m" / "config.pbtxt", identity(dims=2))
        await engine.load(LoadRequest("m"))
        await engine.infer(ask("m", INPUT0=[1, 2]))


@run
async def test_when_one_new_version_fails_none_takes_over(theirs, repository, ask):
    root = repository(m='backend: "theirs"\n' + ALL_VERSIONS)
    async with engine_on(root, model_load_thread_count=1) as engine:
        await engine.load(LoadRequest("m"))
        repository(2, 3, m='backend: "theirs"\n' + ALL_VERSIONS)
        theirs.failures.extend([None, ArithmeticError("no")])
        with pytest.raises(LoadFailed, match=r"version 3: .*ArithmeticError: no"):
            await engine.load(LoadRequest("m"))
        assert theirs.log.count(("close", "m_0")) == 1
        assert states(engine) == {
            ("m", "1"): READY,
            ("m", "2"): (UNAVAILABLE, "not served, because version 3 failed"),
            ("m", "3"): (
                UNAVAILABLE,
                "model 'm' version 3 cannot be loaded: ArithmeticError: no",
            ),
        }
        assert engine.is_ready()  # what served still does
        await engine.load(LoadRequest("m"))
        assert engine.model_metadata("m", "").versions == ["1", "2", "3"]


@run
async def test_a_model_that_fails_at_first_makes_the_server_not_ready_until_it_is_unloaded(
    repository,
):
    async with engine_on(repository(m=BROKEN)) as engine:
        with pytest.raises(LoadFailed):
            await engine.load(LoadRequest("m"))
        assert not engine.is_ready()
        await engine.unload(UnloadRequest("m"))
        assert states(engine) == {("m", "1"): UNLOADED}
        assert engine.is_ready()


@run
async def test_failed_versions_are_forgotten_when_a_load_succeeds(repository):
    root = repository(1, 2, m=BROKEN + ALL_VERSIONS)
    async with engine_on(root) as engine:
        with pytest.raises(LoadFailed):
            await engine.load(LoadRequest("m"))
        write(root / "m" / "config.pbtxt", identity())
        await engine.load(LoadRequest("m"))
        assert states(engine) == {("m", "2"): READY}


@run
async def test_what_is_not_there_cannot_be_loaded(repository):
    async with engine_on(repository(m=identity())) as engine:
        with pytest.raises(NotLoadable) as caught:
            await engine.load(LoadRequest("x"))
        assert caught.value.message == (
            "failed to load 'x': there is no such model in the repository"
        )
        assert engine.index() == []
        assert engine.is_ready()


NAMES = [
    "",
    ".",
    "..",
    "../m",
    "../../etc/passwd",
    "/etc/passwd",
    "m/1",
    "m/",
    "/m",
    "m/../m",
    "..\\m",
    "m\\1",
    "\\\\host\\share",
    "C:/m",
    ".git",
    "m\0",
    "m\n",
    "~/m",
]


@pytest.mark.parametrize("name", NAMES)
@run
async def test_a_name_that_is_a_path_is_refused(repository, name):
    """The path traversal published for a server that makes a path of the name."""
    root = repository(m=identity())
    (root.parent / "secret" / "1").mkdir(parents=True)
    (root.parent / "secret" / "config.pbtxt").write_text(identity())
    files = {"1/x": b""}
    async with engine_on(root) as engine:
        for request in (
            LoadRequest(name),
            LoadRequest(name, SENT),
            LoadRequest(name, SENT, files),
            UnloadRequest(name),
        ):
            call = engine.unload if isinstance(request, UnloadRequest) else engine.load
            with pytest.raises(InvalidRequest, match="is no name of a model"):
                await call(request)
        assert engine.index() == []


@pytest.mark.parametrize("name", ["%2e%2e", "%2Fetc", "m%2f1", "m ", "M", "C:", "~", "*", "$m"])
@run
async def test_a_name_that_is_no_models_is_not_there(repository, name):
    async with engine_on(repository(m=identity())) as engine:
        with pytest.raises(NotLoadable, match="there is no such model"):
            await engine.load(LoadRequest(name))
        await engine.unload(UnloadRequest(name))
        assert engine.index() == []


@run
async def test_links_out_of_the_repository_are_followed_by_the_operator_alone(repository, tmp_path):
    root = repository(m=identity())
    (root / "m").rename(tmp_path / "elsewhere")
    (root / "m").symlink_to(tmp_path / "elsewhere")
    async with engine_on(root) as engine:
        with pytest.raises(NotLoadable) as caught:
            await engine.load(LoadRequest("m"))
        assert "'m' is a link that leads out of the repository" in caught.value.message
        assert str(tmp_path) not in caught.value.message
    async with engine_on(root, model_repository_links="any") as engine:
        await engine.load(LoadRequest("m"))
        assert states(engine) == {("m", "1"): READY}
    for options in ({"mode": "none"}, {"mode": "poll"}, {"load_model": ("m",)}):
        async with engine_on(root, **options) as engine:
            assert states(engine) == {("m", "1"): READY}


@run
async def test_a_repository_that_is_away_loads_and_unloads_nothing(repository, ask):
    root = repository(m=identity())
    async with engine_on(root) as engine:
        await engine.load(LoadRequest("m"))
        root.rename(root.with_name("away"))
        with pytest.raises(NotLoadable, match="a model repository cannot be read"):
            await engine.load(LoadRequest("m"))
        with pytest.raises(NotLoadable, match="a model repository cannot be read"):
            await engine.repository_index()
        await engine.infer(ask("m", INPUT0=[1]))


# --- what a client sends ---


@run
async def test_a_sent_configuration_stands_in_until_the_next_load(repository, ask):
    async with engine_on(repository(m=identity(dims=1))) as engine:
        await engine.load(LoadRequest("m", SENT))
        assert engine.model_config("m", "").input[0].dims == (3,)
        await engine.infer(ask("m", INPUT0=[1, 2, 3]))
        await engine.load(LoadRequest("m"))
        assert engine.model_config("m", "").input[0].dims == (1,)


@run
async def test_the_same_configuration_again_changes_nothing(theirs, repository):
    async with engine_on(repository(m='backend: "theirs"')) as engine:
        for _ in range(2):
            await engine.load(LoadRequest("m", '{"backend": "theirs", "max_batch_size": 2}'))
        assert theirs.log.count(("open", "m_0")) == 1


@run
async def test_sent_files_are_the_whole_model(repository, ask, temporary):
    root = repository(m=identity(dims=1))
    async with engine_on(root) as engine:
        for name in ("m", "new"):
            await engine.load(LoadRequest(name, SENT, {"7/weights": b"abc", "labels": b""}))
            assert engine.model_metadata(name, "").versions == ["7"]
            await engine.infer(ask(name, INPUT0=[1, 2, 3]))
        assert len(list(temporary.iterdir())) == 2
        await engine.load(LoadRequest("m"))
        assert engine.model_metadata("m", "").versions == ["1"]
        await until(lambda: len(list(temporary.iterdir())) == 1)
        with pytest.raises(NotLoadable):  # it lies in no repository
            await engine.load(LoadRequest("new"))
        await engine.unload(UnloadRequest("new"))
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
                await engine.load(LoadRequest("m", text, files))
            assert message in caught.value.message
        assert engine.index() == []
        assert engine.is_ready()


@run
async def test_files_need_a_configuration(repository):
    async with engine_on(repository(m=identity())) as engine:
        with pytest.raises(InvalidRequest, match="needs the parameter 'config' as well"):
            await engine.load(LoadRequest("m", None, {"1/x": b""}))


@pytest.mark.parametrize("path", ["../x", "/etc/x", "1/../../x", ""])
@run
async def test_a_file_that_is_to_lie_elsewhere_is_refused(repository, path):
    async with engine_on(repository(m=identity())) as engine:
        with pytest.raises(InvalidRequest, match="leads nowhere"):
            await engine.load(LoadRequest("m", SENT, {path: b""}))
        assert engine.index() == []


@run
async def test_more_bytes_than_there_is_room_for_are_refused(repository, ask):
    async with engine_on(repository(m=identity()), model_upload_max_bytes=5) as engine:
        await engine.load(LoadRequest("a", SENT, {"1/x": b"abc"}))
        with pytest.raises(InvalidRequest, match="there is room for 2"):
            await engine.load(LoadRequest("b", SENT, {"1/x": b"abc"}))
        await engine.infer(ask("a", INPUT0=[1, 2, 3]))
        await engine.load(LoadRequest("b", SENT, {"1/x": b"ab"}))


@run
async def test_sent_files_that_do_not_load_leave_nothing_behind(repository, temporary):
    async with engine_on(repository(m=identity())) as engine:
        config = '{"backend": "faulty", "parameters": {"fault": {"string_value": "load"}}}'
        with pytest.raises(LoadFailed):
            await engine.load(LoadRequest("new", config, {"1/x": b"abc"}))
        await engine.load(LoadRequest("m"))
        with pytest.raises(LoadFailed):
            await engine.load(LoadRequest("m", config, {"1/x": b"abc", "2/x": b"abc"}))
        assert list(temporary.iterdir()) == []
        assert states(engine) == {("m", "1"): READY}
        assert engine.is_ready()


# --- unload ---


@run
async def test_an_unloaded_model_is_not_there_and_is_loaded_again(repository, ask):
    async with engine_on(repository(1, 2, m=identity(more=ALL_VERSIONS))) as engine:
        await engine.load(LoadRequest("m"))
        await engine.unload(UnloadRequest("m"))
        with pytest.raises(ModelNotFound):
            await engine.infer(ask("m", INPUT0=[1]))
        await until(lambda: states(engine) == {("m", "1"): UNLOADED, ("m", "2"): UNLOADED})
        assert engine.is_ready()
        await engine.load(LoadRequest("m"))
        await engine.infer(ask("m", INPUT0=[1]))
        assert states(engine) == {("m", "1"): READY, ("m", "2"): READY}


@run
async def test_unloading_what_is_not_loaded_is_no_error(repository):
    async with engine_on(repository(m=identity())) as engine:
        for name in ("m", "x", "m"):
            await engine.unload(UnloadRequest(name, unload_dependents=True))
        assert engine.index() == []


@run
async def test_a_model_is_loaded_while_its_predecessor_still_runs(theirs, repository, ask):
    async with engine_on(repository(m=IN_THREADS)) as engine:
        await engine.load(LoadRequest("m"))
        theirs.may_execute.clear()
        running = asyncio.create_task(engine.infer(ask("m", A=[1])))
        await until(theirs.executing.is_set)
        await engine.unload(UnloadRequest("m"))
        assert states(engine) == {("m", "1"): ModelState.UNLOADING}
        with pytest.raises(ModelNotFound, match="no version ready"):
            await engine.infer(ask("m", A=[1]))
        await engine.load(LoadRequest("m"))
        assert states(engine) == {("m", "1"): READY}
        assert not running.done()
        theirs.may_execute.set()
        await running
        assert (await engine.infer(ask("m", A=[7]))).outputs[0].numpy().tolist() == [7]
        assert states(engine) == {("m", "1"): READY}


@run
async def test_the_log_tells_what_serves_when_that_changes(repository, caplog):
    root = repository(m=identity(more=ALL_VERSIONS))
    async with engine_on(root, load_model=("m",)) as engine:
        with caplog.at_level(logging.INFO, "inferd.engine"):
            await engine.load(LoadRequest("m"))
            repository(2, m=identity(more=ALL_VERSIONS))
            await engine.load(LoadRequest("m"))
            for _ in range(2):
                await engine.unload(UnloadRequest("m"))
            write(root / "m" / "config.pbtxt", BROKEN)
            with pytest.raises(LoadFailed):
                await engine.load(LoadRequest("m"))
    [first, second, third] = caplog.messages
    assert (first, second) == (
        "model 'm' now serves version 1, 2",
        "model 'm' now serves no version",
    )
    assert third.startswith("load failed for model 'm': version 2: ")


# --- many at once ---


@run
async def test_loads_of_one_model_at_once_load_it_once(theirs, repository):
    async with engine_on(repository(m='backend: "theirs"')) as engine:
        await asyncio.gather(*(engine.load(LoadRequest("m")) for _ in range(50)))
        assert theirs.log.count(("open", "m_0")) == 1


@run
async def test_loads_and_unloads_at_once_end_as_the_last_one_says(repository):
    async with engine_on(repository(m=identity())) as engine:
        for last in ("load", "unload", "load"):
            jobs = []
            for number in range(30):
                what = last if number == 29 else ("load", "unload")[number % 2]
                request = LoadRequest("m") if what == "load" else UnloadRequest("m")
                jobs.append(getattr(engine, what)(request))
            await asyncio.gather(*jobs)
            expected = READY if last == "load" else UNLOADED
            await until(lambda: states(engine) == {("m", "1"): expected})  # noqa: B023


@run
async def test_more_changes_than_may_wait_are_refused(theirs, repository):
    theirs.may_open.clear()
    async with engine_on(repository(m='backend: "theirs"')) as engine:
        jobs = [
            asyncio.create_task(engine.load(LoadRequest("m")))
            for _ in range(control_module.MAX_WAITING + 1)
        ]
        done, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        [refused] = done
        with pytest.raises(Unavailable, match="wait already"):
            refused.result()
        theirs.may_open.set()
        await asyncio.gather(*(job for job in jobs if job is not refused))
        assert states(engine) == {("m", "1"): READY}


@run
async def test_a_load_goes_on_though_its_client_has_gone(theirs, repository):
    theirs.may_open.clear()
    async with engine_on(repository(m='backend: "theirs"')) as engine:
        loading = asyncio.create_task(engine.load(LoadRequest("m")))
        assert await asyncio.to_thread(theirs.opening.wait, PATIENCE_S)
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        assert states(engine) == {("m", "1"): ModelState.LOADING}
        assert engine.is_ready()
        theirs.may_open.set()
        await until(lambda: states(engine) == {("m", "1"): READY})


@run
async def test_an_engine_that_closes_gives_up_what_loads(theirs, repository):
    theirs.may_open.clear()
    async with engine_on(repository(m='backend: "theirs"')) as engine:
        loading = asyncio.create_task(engine.load(LoadRequest("m")))
        assert await asyncio.to_thread(theirs.opening.wait, PATIENCE_S)
        await engine.close(PATIENCE_S)
        assert loading.done()
        theirs.may_open.set()
        assert await asyncio.to_thread(theirs.closed.wait, PATIENCE_S)
        assert engine.index() == []


@run
async def test_a_model_that_does_not_load_in_time_has_failed(theirs, repository):
    theirs.may_open.clear()
    async with engine_on(repository(m='backend: "theirs"'), model_load_timeout_secs=0.01) as engine:
        with pytest.raises(LoadFailed, match=r"did not load within 0\.01 s \(--model-load-timeout"):
            await engine.load(LoadRequest("m"))
        theirs.may_open.set()
        assert await asyncio.to_thread(theirs.closed.wait, PATIENCE_S)


# --- poll ---


async def looked(engine):
    """Have the engine look at its repositories once, and wait for what follows from that."""
    await asyncio.gather(*await engine.look())


@run
async def test_polling_follows_what_happens_to_models(repository, ask, tmp_path):
    root = repository(m=identity())
    async with engine_on(root, mode="poll") as engine:
        assert states(engine) == {("m", "1"): READY}
        repository(n=identity(2))
        await looked(engine)
        await engine.infer(ask("n", INPUT0=[1, 2]))
        write(root / "n" / "config.pbtxt", identity(3))
        await looked(engine)
        await engine.infer(ask("n", INPUT0=[1, 2, 3]))
        (root / "n" / "2").mkdir()
        write(root / "n" / "2" / "weights")
        await looked(engine)
        assert (await engine.infer(ask("n", INPUT0=[1, 2, 3]))).version == "2"
        (root / "n").rename(tmp_path / "away")
        await looked(engine)
        with pytest.raises(ModelNotFound):
            await engine.infer(ask("n", INPUT0=[1, 2, 3]))
        await until(lambda: states(engine) == {("m", "1"): READY})
        (tmp_path / "away").rename(root / "n")
        await looked(engine)
        await engine.infer(ask("n", INPUT0=[1, 2, 3]))
        assert engine.is_ready()


@run
async def test_polling_loads_nothing_that_did_not_change(theirs, repository):
    root = repository(m='backend: "theirs"')
    async with engine_on(root, mode="poll") as engine:
        write(root / "m" / "1" / "__pycache__" / "model.cpython-311.pyc")
        write(root / "m" / ".config.pbtxt.swp")
        for _ in range(3):
            await looked(engine)
        assert theirs.log.count(("open", "m_0")) == 1


@run
async def test_polling_keeps_what_serves_when_the_change_is_broken(repository, ask, caplog):
    root = repository(m=identity())
    async with engine_on(root, mode="poll") as engine:
        with caplog.at_level(logging.ERROR, "inferd.engine"):
            write(root / "m" / "config.pbtxt", "nonsense")
            for _ in range(3):
                await looked(engine)
                await engine.infer(ask("m", INPUT0=[1]))
                assert engine.is_ready()
            assert len(caplog.messages) == 1  # it is tried each time, and told once
            write(root / "m" / "config.pbtxt", BROKEN)
            for _ in range(3):
                await looked(engine)
                await engine.infer(ask("m", INPUT0=[1]))
            assert len(caplog.messages) == 2
            write(root / "m" / "config.pbtxt", identity(2))
            await looked(engine)
            await engine.infer(ask("m", INPUT0=[1, 2]))
            assert states(engine) == {("m", "1"): READY}
            assert len(caplog.messages) == 2


@run
async def test_polling_tries_what_failed_again_though_nothing_changed(theirs, repository):
    theirs.failures.extend([OSError("busy"), OSError("busy")])
    async with engine_on(repository(m='backend: "theirs"'), mode="poll") as engine:
        assert not engine.is_ready()
        await looked(engine)
        assert not engine.is_ready()
        await looked(engine)
        assert states(engine) == {("m", "1"): READY}
        assert engine.is_ready()


@run
async def test_a_new_broken_model_is_told_of_and_the_others_go_on(repository, ask):
    root = repository(m=identity())
    async with engine_on(root, mode="poll") as engine:
        repository(n="nonsense", o=BROKEN)
        await looked(engine)
        await engine.infer(ask("m", INPUT0=[1]))
        assert states(engine)["n", ""][0] is UNAVAILABLE
        assert states(engine)["o", "1"][0] is UNAVAILABLE
        (root / "n" / "config.pbtxt").unlink()
        (root / "n" / "1").rmdir()
        (root / "n").rmdir()
        write(root / "o" / "config.pbtxt", identity())
        await looked(engine)
        assert states(engine) == {("m", "1"): READY, ("o", "1"): READY}


@run
async def test_polling_unloads_nothing_while_the_repository_is_away(repository, ask, caplog):
    root = repository(m=identity())
    async with engine_on(root, mode="poll") as engine:
        root.rename(root.with_name("away"))
        with caplog.at_level(logging.ERROR, "inferd.engine"):
            for _ in range(3):
                await looked(engine)
        assert len(caplog.messages) == 1
        await engine.infer(ask("m", INPUT0=[1]))
        root.with_name("away").rename(root)
        await looked(engine)
        assert states(engine) == {("m", "1"): READY}


@run
async def test_one_model_that_loads_slowly_holds_up_no_other(theirs, repository, ask):
    root = repository(m=identity())
    async with engine_on(root, mode="poll") as engine:
        theirs.may_open.clear()
        repository(slow='backend: "theirs"')
        slow = await engine.look()
        assert await asyncio.to_thread(theirs.opening.wait, PATIENCE_S)
        write(root / "m" / "config.pbtxt", identity(2))
        write(root / "slow" / "config.pbtxt", 'backend: "theirs"\nmax_batch_size: 2')
        await looked(engine)
        await engine.infer(ask("m", INPUT0=[1, 2]))
        theirs.may_open.set()
        await asyncio.gather(*slow)
        assert engine.model_config("slow", "").max_batch_size == 0
        await looked(engine)  # what changed while it loaded
        assert engine.model_config("slow", "").max_batch_size == 2


@run
async def test_a_polling_engine_looks_by_itself(repository):
    root = repository(m=identity())
    options = LoadOptions(model_control_mode="poll", repository_poll_secs=0.001)
    engine = Engine(load_options=options)
    await engine.load_all([root])
    repository(n=identity())
    await until(lambda: ("n", "1") in states(engine))
    await engine.close(PATIENCE_S)


# --- bounds ---


@run
async def test_the_index_does_not_grow_with_every_version_there_ever_was(repository):
    root = repository(m=identity())
    async with engine_on(root) as engine:
        for number in range(2, 40):
            (root / "m" / str(number)).mkdir()
            await engine.load(LoadRequest("m"))
        await until(lambda: ModelState.UNLOADING not in states(engine).values())
        assert states(engine)["m", "39"] is READY
        assert len(engine.index()) <= 20


@run
async def test_names_that_were_tried_are_not_remembered(repository):
    catalog = Catalog()
    control = Control(catalog, LoadOptions(model_control_mode="explicit"))
    await control.start([repository(m=identity())])
    for number in range(50):
        with pytest.raises(NotLoadable):
            await control.load(LoadRequest(f"x{number}"))
        await control.unload(UnloadRequest(f"x{number}"))
    assert not vars(control)["_lineups"]
    assert catalog.models == {}
    await control.close(PATIENCE_S)


# --- ensembles ---


class Chain:
    """A scheduler that stands in for an ensemble's."""

    async def run(self, request):
        return InferResponse(request.model, "1", outputs=list(request.inputs))

    async def close(self, timeout_s):
        """End."""


class EnsembleLoader(Loader):
    """Loads ensembles, too, as if there were a scheduler for them."""

    def load(self, model, version, steps=(), attempt=None):
        if model.config is not None and model.config.ensemble_scheduling is not None:
            return Served(model.config, version, "ensemble", Chain())
        return super().load(model, version, steps)


def ensemble(*names):
    maps = 'input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }'
    steps = [f'step {{ model_name: "{name}" model_version: -1 {maps} }}' for name in names]
    return f'platform: "ensemble"\nensemble_scheduling {{ {" ".join(steps)} }}'


@contextlib.asynccontextmanager
async def ensembles_on(root, mode="explicit", loader=EnsembleLoader, **options):
    catalog = Catalog()
    options = LoadOptions(model_control_mode=mode, repository_poll_secs=0, **options)
    control = Control(catalog, options, loader(options))
    await control.start([root])
    try:
        yield control, catalog
    finally:
        await control.close(PATIENCE_S)


@run
async def test_an_ensemble_brings_its_steps_and_may_take_them_with_it(repository):
    root = repository(e=ensemble("a", "b"), a=identity(), b=identity(), c=identity())
    async with ensembles_on(root) as (control, catalog):
        await control.load(LoadRequest("b"))
        await control.load(LoadRequest("e"))
        assert catalog.names() == ["a", "b", "e"]
        await control.unload(UnloadRequest("e"))
        assert catalog.names() == ["a", "b"]
        await control.load(LoadRequest("e"))
        await control.unload(UnloadRequest("e", unload_dependents=True))
        assert catalog.names() == ["b"]  # it was asked for by itself


@run
async def test_a_step_that_another_ensemble_needs_stays(repository):
    root = repository(e=ensemble("a"), f=ensemble("a"), a=identity())
    async with ensembles_on(root) as (control, catalog):
        await control.load(LoadRequest("e"))
        await control.load(LoadRequest("f"))
        await control.unload(UnloadRequest("e", unload_dependents=True))
        assert catalog.names() == ["a", "f"]
        await control.unload(UnloadRequest("f", unload_dependents=True))
        assert catalog.names() == []


@run
async def test_an_ensemble_goes_and_comes_with_its_steps(repository):
    root = repository(e=ensemble("a"), outer=ensemble("e"), a=identity())
    async with ensembles_on(root) as (control, catalog):
        await control.load(LoadRequest("outer"))
        assert catalog.names() == ["a", "e", "outer"]
        await control.unload(UnloadRequest("a"))
        assert catalog.names() == []
        await until(lambda: catalog.models["e"].versions[1].state is UNAVAILABLE)
        assert catalog.models["e"].versions[1].reason == "model 'a', which it calls, is unloaded"
        await control.load(LoadRequest("a"))
        assert catalog.names() == ["a", "e", "outer"]  # they can be asked once the load is answered
        await control.unload(UnloadRequest("outer", unload_dependents=True))
        assert catalog.names() == ["a"]


@run
async def test_a_load_does_not_wait_for_ever_for_an_ensemble(repository, monkeypatch):
    monkeypatch.setattr(control_module, "CALLERS_WAIT_S", 0.02)
    goes_on = threading.Event()

    class OtherStepTakesLong(EnsembleLoader):
        def load(self, model, version, steps=(), attempt=None):
            if model.name == "b":
                goes_on.wait(PATIENCE_S)
            return super().load(model, version, steps)

    root = repository(e=ensemble("a", "b"), a=identity(), b=identity())
    async with ensembles_on(root, loader=OtherStepTakesLong) as (control, catalog):
        goes_on.set()
        await control.load(LoadRequest("e"))
        await control.unload(UnloadRequest("a"))
        await control.unload(UnloadRequest("b"))
        goes_on.clear()
        await control.load(LoadRequest("a"))
        assert catalog.names() == ["a"]
        goes_on.set()
        await until(lambda: catalog.names() == ["a", "b", "e"])


@run
async def test_an_ensemble_without_its_step_does_not_load(repository):
    root = repository(e=ensemble("a", "nobody"), a=identity(), f=ensemble("broken"), broken=BROKEN)
    async with ensembles_on(root) as (control, _):
        with pytest.raises(NotLoadable) as caught:
            await control.load(LoadRequest("e"))
        assert caught.value.message == (
            "failed to load 'e': model 'e' needs nobody, which is not loaded"
        )
        with pytest.raises(NotLoadable, match=r"needs broken \(model 'broken' fails to load, as"):
            await control.load(LoadRequest("f"))


@run
async def test_an_ensemble_that_calls_itself_does_not_load(repository):
    root = repository(e=ensemble("f"), f=ensemble("e"))
    async with ensembles_on(root) as (control, _):
        with pytest.raises(LoadFailed, match="ensemble 'e' calls itself: e → f → e"):
            await control.load(LoadRequest("e"))


@run
async def test_an_ensemble_that_serves_cannot_be_made_to_call_itself(repository):
    root = repository(e=ensemble("a"), f=ensemble("e"), a=identity())
    async with ensembles_on(root) as (control, catalog):
        await control.load(LoadRequest("f"))
        write(root / "e" / "config.pbtxt", ensemble("f"))
        with pytest.raises(NotLoadable, match="ensemble 'e' calls itself: e → f → e"):
            await control.load(LoadRequest("e"))
        assert catalog.names() == ["a", "e", "f"]
        await control.unload(UnloadRequest("e"))
        assert catalog.names() == ["a"]


@run
async def test_two_loads_at_once_cannot_make_ensembles_call_each_other(repository):
    root = repository(e=ensemble("a"), f=ensemble("a"), a=identity())
    async with ensembles_on(root) as (control, catalog):
        await asyncio.gather(control.load(LoadRequest("e")), control.load(LoadRequest("f")))
        write(root / "e" / "config.pbtxt", ensemble("f"))
        write(root / "f" / "config.pbtxt", ensemble("e"))
        loads = control.load(LoadRequest("e")), control.load(LoadRequest("f"))
        done = await asyncio.gather(*loads, return_exceptions=True)
        [error] = [one for one in done if one is not None]
        assert "calls itself" in error.message
        await control.unload(UnloadRequest("a"))
        assert catalog.names() == []


@pytest.mark.parametrize("mode", ["none", "poll"])
@run
async def test_at_the_start_the_index_says_why_an_ensemble_does_not_load(repository, mode):
    root = repository(e=ensemble("f"), f=ensemble("e"), g=ensemble("nobody"))
    async with ensembles_on(root, mode) as (_, catalog):
        assert {row.name: (row.version, row.state, row.reason) for row in catalog.rows()} == {
            "e": ("1", UNAVAILABLE, "ensemble 'e' calls itself: e → f → e"),
            "f": ("1", UNAVAILABLE, "ensemble 'f' calls itself: f → e → f"),
            "g": ("1", UNAVAILABLE, "model 'g' needs nobody, which is not loaded"),
        }


@pytest.mark.parametrize("mode", ["none", "poll"])
@run
async def test_ensembles_and_their_steps_load_together_at_the_start(repository, mode):
    root = repository(e=ensemble("a"), outer=ensemble("e", "b"), a=identity(), b=identity())
    async with ensembles_on(root, mode) as (_, catalog):
        assert catalog.names() == ["a", "b", "e", "outer"]
        assert catalog.is_sound()


@run
async def test_polling_takes_down_the_ensemble_of_a_step_that_goes(repository, tmp_path):
    root = repository(e=ensemble("a"), a=identity())
    async with ensembles_on(root, "poll") as (control, catalog):
        (root / "a").rename(tmp_path / "away")
        await asyncio.gather(*await control.look())
        assert catalog.names() == []
        (tmp_path / "away").rename(root / "a")
        await asyncio.gather(*await control.look())
        await until(lambda: catalog.names() == ["a", "e"])


# --- steadiness ---


@run
async def test_traffic_sees_no_gap_while_a_model_is_reloaded(repository, ask):
    root = repository(m=identity(more='parameters { key: "n" value: { string_value: "0" } }'))
    async with engine_on(root) as engine:
        await engine.load(LoadRequest("m"))
        stop = False
        asked = 0

        async def ask_on(number):
            nonlocal asked
            while not stop:
                answer = await engine.infer(ask("m", INPUT0=[number]))
                assert answer.outputs[0].numpy().tolist() == [number]
                asked += 1
                await asyncio.sleep(0.001)  # a loop that never rests starves the loading thread

        clients = [asyncio.create_task(ask_on(number)) for number in range(8)]
        for number in range(1, 6):
            more = f'parameters {{ key: "n" value: {{ string_value: "{number}" }} }}'
            write(root / "m" / "config.pbtxt", identity(more=more))
            await engine.load(LoadRequest("m"))
            assert engine.model_config("m", "").parameters["n"] == str(number)
        stop = True
        await asyncio.gather(*clients)
        assert asked > 8
