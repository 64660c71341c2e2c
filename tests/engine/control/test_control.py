"""Loading and unloading while the server runs: what serves, and what is refused."""

import asyncio
import logging

import pytest
from controlled import (
    ALL_VERSIONS,
    BROKEN,
    IN_THREADS,
    PATIENCE_S,
    READY,
    SENT,
    UNAVAILABLE,
    UNLOADED,
    engine_on,
    identity,
    run,
    states,
    write,
)
from patience import until

from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.metadata import ModelState
from inferd.errors import (
    InferdError,
    InvalidRequest,
    LoadFailed,
    ModelNotFound,
    NotLoadable,
    Unavailable,
)

pytestmark = pytest.mark.usefixtures("temporary")


# --- which mode allows what ---


@pytest.mark.parametrize("mode", ["none", "poll"])
@run
async def test_where_clients_do_not_control_models_they_are_told_so(repository, mode):
    async with engine_on(repository(m=identity()), mode=mode) as engine:
        for call in (
            engine.changes.load(LoadRequest("m")),
            engine.changes.unload(UnloadRequest("m")),
        ):
            with pytest.raises(Unavailable, match=f"model-control-mode={mode}.*=explicit"):
                await call
        assert states(engine) == {("m", "1"): READY}


@run
async def test_explicit_begins_with_nothing(repository):
    async with engine_on(repository(m=identity(), n=identity())) as engine:
        assert engine.catalog.index() == []
        assert engine.readiness.is_ready()
        assert [(r.name, r.version, r.state) for r in await engine.control.index()] == [
            ("m", "", None),
            ("n", "", None),
        ]
        assert await engine.control.index(ready=True) == []


@pytest.mark.parametrize(("wanted", "loaded"), [(("n",), {"n"}), (("*",), {"m", "n"})])
@run
async def test_explicit_begins_with_the_models_named(repository, wanted, loaded):
    root = repository(m=identity(), n=identity())
    async with engine_on(root, load_model=wanted) as engine:
        assert {name for name, _ in states(engine)} == loaded
        rows = await engine.control.index()
        assert [row.name for row in rows] == ["m", "n"]


@run
async def test_a_model_to_begin_with_that_is_not_there_makes_the_server_not_ready(repository):
    async with engine_on(repository(m=identity()), load_model=("m", "x", "x")) as engine:
        assert states(engine) == {
            ("m", "1"): READY,
            ("x", ""): (
                UNAVAILABLE,
                "failed to load 'x', failed to poll from model repository: "
                "there is no such model in it",
            ),
        }
        assert not engine.readiness.is_ready()


@run
async def test_until_the_repositories_are_read_a_client_is_told_to_wait(repository):
    async with engine_on(mode="none") as engine:
        loading = asyncio.create_task(engine.load_all([repository(m=identity())]))
        await asyncio.sleep(0)  # its thread has begun, and nobody has heard of its end
        with pytest.raises(Unavailable, match=r"'m' is not found on .*: it is still finding out"):
            engine.catalog.find("m", "")
        assert not engine.catalog.is_ready("m", "")
        await loading
        assert engine.catalog.is_ready("m", "")
        with pytest.raises(ModelNotFound):
            engine.catalog.find("n", "")


@run
async def test_a_repository_that_cannot_be_read_makes_no_client_wait(tmp_path):
    async with engine_on(mode="none") as engine:
        with pytest.raises(InferdError):
            await engine.load_all([tmp_path / "missing"])
        with pytest.raises(ModelNotFound):
            engine.catalog.find("m", "")


@run
async def test_a_server_that_ends_loads_nothing_more(repository):
    async with engine_on(repository(m=identity())) as engine:
        engine.drain()
        with pytest.raises(Unavailable, match="shutting down"):
            await engine.changes.load(LoadRequest("m"))


# --- load ---


@run
async def test_a_model_is_loaded_and_answers(repository, ask):
    async with engine_on(repository(m=identity())) as engine:
        with pytest.raises(ModelNotFound):
            await engine.infer(ask("m", INPUT0=[1]))
        await engine.changes.load(LoadRequest("m"))
        answer = await engine.infer(ask("m", INPUT0=[1]))
        assert answer.outputs[0].numpy().tolist() == [1]
        assert states(engine) == {("m", "1"): READY}


@run
async def test_a_model_that_came_after_the_start_is_loaded(repository):
    root = repository(m=identity())
    async with engine_on(root) as engine:
        repository(late=identity())
        await engine.changes.load(LoadRequest("late"))
        assert states(engine) == {("late", "1"): READY}


@run
async def test_a_model_that_has_not_changed_is_not_loaded_again(theirs, repository):
    async with engine_on(repository(m='backend: "theirs"')) as engine:
        for _ in range(3):
            await engine.changes.load(LoadRequest("m"))
        assert theirs.log.count(("open", "m_0")) == 1


@run
async def test_only_the_version_that_changed_is_loaded_again(theirs, repository):
    root = repository(1, 2, m='backend: "theirs"\n' + ALL_VERSIONS)
    async with engine_on(root) as engine:
        await engine.changes.load(LoadRequest("m"))
        assert theirs.log.count(("open", "m_0")) == 2
        write(root / "m" / "2" / "weights")
        await engine.changes.load(LoadRequest("m"))
        assert theirs.log.count(("open", "m_0")) == 3
        write(root / "m" / "labels.txt")  # may matter to every version
        await engine.changes.load(LoadRequest("m"))
        assert theirs.log.count(("open", "m_0")) == 5
        write(root / "m" / "1" / "__pycache__" / "model.pyc")
        await engine.changes.load(LoadRequest("m"))
        assert theirs.log.count(("open", "m_0")) == 5


@run
async def test_another_policy_loads_only_what_it_adds(theirs, repository):
    root = repository(
        1, 2, 3, m='backend: "theirs"\nversion_policy { specific { versions: [1, 2] } }'
    )
    async with engine_on(root) as engine:
        await engine.changes.load(LoadRequest("m"))
        write(
            root / "m" / "config.pbtxt",
            'backend: "theirs"\nversion_policy { specific { versions: [2, 3] } }',
        )
        await engine.changes.load(LoadRequest("m"))
        assert theirs.log.count(("open", "m_0")) == 3
        assert engine.catalog.metadata("m", "").versions == ["2", "3"]
        for version in ("2", "3"):
            assert engine.find("m", version).config.version_policy.specific == (2, 3)
        await until(lambda: states(engine)["m", "1"] == UNLOADED)
        assert engine.readiness.is_ready()


@run
async def test_a_new_version_takes_over_and_the_old_one_is_closed(theirs, repository, ask):
    root = repository(m='backend: "theirs"')
    async with engine_on(root) as engine:
        await engine.changes.load(LoadRequest("m"))
        repository(2, m='backend: "theirs"')
        await engine.changes.load(LoadRequest("m"))
        assert (await engine.infer(ask("m", A=[1]))).version == "2"
        assert await asyncio.to_thread(theirs.closed.wait, PATIENCE_S)
        await until(lambda: states(engine) == {("m", "1"): UNLOADED, ("m", "2"): READY})
        with pytest.raises(
            Unavailable, match="version 1 is not at ready state, it is UNAVAILABLE: unloaded"
        ):
            await engine.infer(ask("m", "1", A=[1]))
        assert engine.readiness.is_ready()


@run
async def test_a_reload_loses_no_request_that_runs(theirs, repository, ask):
    root = repository(m=IN_THREADS)
    async with engine_on(root) as engine:
        await engine.changes.load(LoadRequest("m"))
        theirs.may_execute.clear()
        running = [asyncio.create_task(engine.infer(ask("m", A=[n]))) for n in range(4)]
        await until(theirs.executing.is_set)
        write(root / "m" / "config.pbtxt", identity(dims=2))
        await engine.changes.load(LoadRequest("m"))
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
        await engine.changes.load(LoadRequest("m"))
        request = ask("m", INPUT0=[1])
        running = asyncio.create_task(engine.infer(request))
        await until(lambda: request.started_ns)  # before, it would be refused instead
        await engine.changes.unload(UnloadRequest("m"))
        assert states(engine) == {("m", "1"): ModelState.UNLOADING}
        await running  # the faulty model lets go when it is closed
        await until(lambda: states(engine) == {("m", "1"): UNLOADED})


# --- what does not load ---


@run
async def test_a_failed_reload_keeps_what_serves(repository, ask):
    root = repository(m=identity())
    async with engine_on(root) as engine:
        await engine.changes.load(LoadRequest("m"))
        write(root / "m" / "config.pbtxt", BROKEN)
        for _ in range(2):
            with pytest.raises(LoadFailed) as caught:
                await engine.changes.load(LoadRequest("m"))
            assert caught.value.message == (
                "load failed for model 'm': version 1: "
                "model 'm' fails to load, as its fault 'load' says"
            )
            await engine.infer(ask("m", INPUT0=[1]))
            why = "model 'm' fails to load, as its fault 'load' says"
            assert states(engine) == {("m", "1"): (READY, why)}
            assert engine.readiness.is_ready()
        write(root / "m" / "config.pbtxt", "max_batch_size: 1 max_batch_size: 2")
        with pytest.raises(
            NotLoadable,
            match=r"^failed to load 'm', failed to poll from model repository: m/config.pbtxt:1:",
        ):
            await engine.changes.load(LoadRequest("m"))
        await engine.infer(ask("m", INPUT0=[1]))
        assert states(engine)["m", "1"][1].startswith("m/config.pbtxt:1:")
        write(root / "m" / "config.pbtxt", identity())  # as it serves
        await engine.changes.load(LoadRequest("m"))
        assert states(engine) == {("m", "1"): READY}
        write(root / "m" / "config.pbtxt", identity(dims=2))
        await engine.changes.load(LoadRequest("m"))
        await engine.infer(ask("m", INPUT0=[1, 2]))


@run
async def test_when_one_new_version_fails_none_takes_over(theirs, repository, ask):
    root = repository(m='backend: "theirs"\n' + ALL_VERSIONS)
    async with engine_on(root, model_load_thread_count=1) as engine:
        await engine.changes.load(LoadRequest("m"))
        repository(2, 3, m='backend: "theirs"\n' + ALL_VERSIONS)
        theirs.failures.extend([None, ArithmeticError("no")])
        with pytest.raises(
            LoadFailed, match=r"version 3 is at UNAVAILABLE state: .*ArithmeticError: no"
        ):
            await engine.changes.load(LoadRequest("m"))
        assert theirs.log.count(("close", "m_0")) == 1
        assert states(engine) == {
            ("m", "1"): READY,
            ("m", "2"): (UNAVAILABLE, "not served, because version 3 failed"),
            ("m", "3"): (
                UNAVAILABLE,
                "model 'm' version 3 cannot be loaded: ArithmeticError: no",
            ),
        }
        assert engine.readiness.is_ready()  # what served still does
        write(root / "m" / "1" / "weights")
        theirs.failures.extend([None, ArithmeticError("no")])
        with pytest.raises(
            LoadFailed, match=r"version 2 is at UNAVAILABLE state: .*ArithmeticError: no"
        ):
            await engine.changes.load(LoadRequest("m"))
        assert states(engine)["m", "1"] == (READY, "not reloaded, because version 2 failed")
        await engine.changes.load(LoadRequest("m"))
        assert engine.catalog.metadata("m", "").versions == ["1", "2", "3"]


@run
async def test_a_model_that_fails_at_first_makes_the_server_not_ready_until_it_is_unloaded(
    repository,
):
    async with engine_on(repository(m=BROKEN)) as engine:
        with pytest.raises(LoadFailed):
            await engine.changes.load(LoadRequest("m"))
        assert not engine.readiness.is_ready()
        await engine.changes.unload(UnloadRequest("m"))
        assert states(engine) == {("m", "1"): UNLOADED}
        assert engine.readiness.is_ready()


@run
async def test_failed_versions_are_forgotten_when_a_load_succeeds(repository):
    root = repository(1, 2, m=BROKEN + ALL_VERSIONS)
    async with engine_on(root) as engine:
        with pytest.raises(LoadFailed):
            await engine.changes.load(LoadRequest("m"))
        write(root / "m" / "config.pbtxt", identity())
        await engine.changes.load(LoadRequest("m"))
        assert states(engine) == {("m", "2"): READY}


@run
async def test_a_model_without_a_version_to_serve_does_not_come_up(repository):
    root = repository(1, m='backend: "identity"\nversion_policy { specific { versions: 9 } }')
    (root / "bare").mkdir()
    (root / "bare" / "config.pbtxt").write_text('backend: "identity"')
    async with engine_on(root) as engine:
        with pytest.raises(LoadFailed, match=r"^load failed for model 'm': .* allows none of the"):
            await engine.changes.load(LoadRequest("m"))
        with pytest.raises(LoadFailed, match=r"^load failed for model 'bare': .*no version folder"):
            await engine.changes.load(LoadRequest("bare"))
        assert states(engine) == {
            ("m", ""): (
                UNAVAILABLE,
                "model 'm': its version_policy allows none of the versions 1",
            ),
            ("bare", ""): (
                UNAVAILABLE,
                "model 'bare' has no version folder, such as bare/1",
            ),
        }
        assert not engine.readiness.is_ready()
        (root / "bare" / "1").mkdir()
        await engine.changes.load(LoadRequest("bare"))
        await engine.changes.unload(UnloadRequest("m"))
        assert states(engine) == {("bare", "1"): READY}
        assert engine.readiness.is_ready()


@pytest.mark.parametrize(
    ("config", "kind", "text"),
    [
        ('backend: "identity"\ninput { name: "X" dims: 1 }', LoadFailed, "'X' has no data_type"),
        ('backend: "identity"\noutput { name: "Y" dims: 1 }', LoadFailed, "'Y' has no data_type"),
        (identity(more="instance_group { kind: KIND_CPU gpus: 0 }"), LoadFailed, "lists gpus [0]"),
        (identity(more='instance_group { profile: "0" }'), LoadFailed, "has a profile"),
        (identity(more="instance_group { count: 2000 }"), NotLoadable, "asks for 2000 instances"),
        (
            identity(more='model_repository_agents { agents { name: "sign" } }'),
            NotLoadable,
            "there is no repository agent 'sign'",
        ),
        (
            identity(
                more='model_repository_agents { agents { name: "checksum" '
                'parameters { key: "MD5:config.pbtxt" value: "0" } } }'
            ),
            NotLoadable,
            "the MD5 of 'config.pbtxt' is",
        ),
    ],
)
@run
async def test_what_is_wrong_tells_whether_the_model_was_read(repository, config, kind, text):
    async with engine_on(repository(m=config)) as engine:
        with pytest.raises(InferdError) as caught:
            await engine.changes.load(LoadRequest("m"))
        start = {
            LoadFailed: "load failed for model 'm': ",
            NotLoadable: "failed to load 'm', failed to poll from model repository: ",
        }[kind]
        assert type(caught.value) is kind
        assert caught.value.message.startswith(start) and text in caught.value.message
        if kind is LoadFailed:  # as one that does not come up
            [(state, reason)] = states(engine).values()
            assert state is UNAVAILABLE and text in reason
        else:
            assert states(engine) == {}
        assert engine.readiness.is_ready() is (kind is NotLoadable)


@run
async def test_instances_that_cannot_run_there_are_not_added_to_what_serves(repository):
    root = repository(m=identity())
    async with engine_on(root) as engine:
        await engine.changes.load(LoadRequest("m"))
        write(
            root / "m" / "config.pbtxt", identity(more="instance_group { gpus: 0 kind: KIND_CPU }")
        )
        with pytest.raises(LoadFailed, match=r"KIND_CPU but lists gpus \[0\]"):
            await engine.changes.load(LoadRequest("m"))
        assert engine.readiness.is_ready()


@run
async def test_what_is_not_there_cannot_be_loaded(repository):
    async with engine_on(repository(m=identity())) as engine:
        with pytest.raises(NotLoadable) as caught:
            await engine.changes.load(LoadRequest("x"))
        assert caught.value.message == (
            "failed to load 'x', failed to poll from model repository: there is no such model in it"
        )
        assert engine.catalog.index() == []
        assert engine.readiness.is_ready()


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
    " ",
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
            call = (
                engine.changes.unload if isinstance(request, UnloadRequest) else engine.changes.load
            )
            with pytest.raises(InvalidRequest, match="is no name of a model"):
                await call(request)
        assert engine.catalog.index() == []


@pytest.mark.parametrize("name", ["%2e%2e", "%2Fetc", "m%2f1", "m ", "M", "C:", "~", "*", "$m"])
@run
async def test_a_name_that_is_no_models_is_not_there(repository, name):
    async with engine_on(repository(m=identity())) as engine:
        with pytest.raises(NotLoadable, match="there is no such model"):
            await engine.changes.load(LoadRequest(name))
        await engine.changes.unload(UnloadRequest(name))
        assert engine.catalog.index() == []


@run
async def test_links_out_of_the_repository_are_followed_by_the_operator_alone(repository, tmp_path):
    root = repository(m=identity())
    (root / "m").rename(tmp_path / "elsewhere")
    (root / "m").symlink_to(tmp_path / "elsewhere")
    async with engine_on(root) as engine:
        with pytest.raises(NotLoadable) as caught:
            await engine.changes.load(LoadRequest("m"))
        assert "'m' is a link that leads out of the repository" in caught.value.message
        assert str(tmp_path) not in caught.value.message
    async with engine_on(root, model_repository_links="any") as engine:
        await engine.changes.load(LoadRequest("m"))
        assert states(engine) == {("m", "1"): READY}
    for options in ({"mode": "none"}, {"mode": "poll"}, {"load_model": ("m",)}):
        async with engine_on(root, **options) as engine:
            assert states(engine) == {("m", "1"): READY}


@run
async def test_a_repository_that_is_away_loads_and_unloads_nothing(repository, ask):
    root = repository(m=identity())
    async with engine_on(root) as engine:
        await engine.changes.load(LoadRequest("m"))
        root.rename(root.with_name("away"))
        with pytest.raises(NotLoadable, match="a model repository cannot be read"):
            await engine.changes.load(LoadRequest("m"))
        with pytest.raises(NotLoadable, match="a model repository cannot be read"):
            await engine.control.index()
        await engine.infer(ask("m", INPUT0=[1]))


# --- unload ---


@run
async def test_an_unloaded_model_is_not_there_and_is_loaded_again(repository, ask):
    async with engine_on(repository(1, 2, m=identity(more=ALL_VERSIONS))) as engine:
        await engine.changes.load(LoadRequest("m"))
        await engine.changes.unload(UnloadRequest("m"))
        with pytest.raises(ModelNotFound):
            await engine.infer(ask("m", INPUT0=[1]))
        await until(lambda: states(engine) == {("m", "1"): UNLOADED, ("m", "2"): UNLOADED})
        assert engine.readiness.is_ready()
        await engine.changes.load(LoadRequest("m"))
        await engine.infer(ask("m", INPUT0=[1]))
        assert states(engine) == {("m", "1"): READY, ("m", "2"): READY}


@run
async def test_a_model_is_unloaded_while_its_repository_is_away(repository, ask):
    root = repository(m=identity())
    async with engine_on(root) as engine:
        await engine.changes.load(LoadRequest("m"))
        root.rename(root.with_name("away"))
        await engine.changes.unload(UnloadRequest("m"))
        with pytest.raises(ModelNotFound):
            await engine.infer(ask("m", INPUT0=[1]))
        root.with_name("away").rename(root)
        await until(lambda: states(engine) == {("m", "1"): UNLOADED})
        await engine.changes.load(LoadRequest("m"))
        assert states(engine) == {("m", "1"): READY}


@run
async def test_unloading_what_is_not_loaded_is_no_error(repository):
    async with engine_on(repository(m=identity())) as engine:
        for name in ("m", "x", "m"):
            await engine.changes.unload(UnloadRequest(name, unload_dependents=True))
        assert engine.catalog.index() == []


@run
async def test_a_model_is_loaded_while_its_predecessor_still_runs(theirs, repository, ask):
    async with engine_on(repository(m=IN_THREADS)) as engine:
        await engine.changes.load(LoadRequest("m"))
        theirs.may_execute.clear()
        running = asyncio.create_task(engine.infer(ask("m", A=[1])))
        await until(theirs.executing.is_set)
        await engine.changes.unload(UnloadRequest("m"))
        assert states(engine) == {("m", "1"): ModelState.UNLOADING}
        with pytest.raises(ModelNotFound, match="no available versions"):
            await engine.infer(ask("m", A=[1]))
        await engine.changes.load(LoadRequest("m"))
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
            await engine.changes.load(LoadRequest("m"))
            repository(2, m=identity(more=ALL_VERSIONS))
            await engine.changes.load(LoadRequest("m"))
            for _ in range(2):
                await engine.changes.unload(UnloadRequest("m"))
            write(root / "m" / "config.pbtxt", BROKEN)
            with pytest.raises(LoadFailed):
                await engine.changes.load(LoadRequest("m"))
    [first, second, third] = caplog.messages
    assert (first, second) == (
        "model 'm' now serves version 1, 2",
        "model 'm' now serves no version",
    )
    assert third.startswith("load failed for model 'm': version 2 is at UNAVAILABLE state: ")
