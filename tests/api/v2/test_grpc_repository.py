"""The repository's gRPC methods: bytes in, bytes or an error out."""

import asyncio
import json

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.api.v2.grpc_repository import RepositoryMethods
from inferd.core.metadata import ModelState
from inferd.engine.engine import Engine
from inferd.engine.loading.load import LoadOptions
from inferd.errors import InvalidRequest, ModelNotFound, NotLoadable, Unavailable, Unsupported


@pytest.fixture
def engine(models):
    engine, _ = models()
    engine.set_state("broken", 1, ModelState.UNAVAILABLE, "no good file")
    return engine


def called(engine, rpc, request):
    method = RepositoryMethods(engine).methods()[rpc]
    data = request if isinstance(request, bytes) else request.SerializeToString()
    return b"".join(asyncio.run(method.handler(data, None)))


def index(engine, **fields):
    answer = called(engine, "RepositoryIndex", pb.RepositoryIndexRequest(**fields))
    return {
        (m.name, m.version): (m.state, m.reason)
        for m in pb.RepositoryIndexResponse.FromString(answer).models
    }


def test_the_index_has_a_row_for_each_version(engine):
    rows = index(engine)
    assert rows["id", "1"] == rows["id", "3"] == ("READY", "")
    assert rows["broken", "1"] == ("UNAVAILABLE", "no good file")


def test_the_index_may_be_of_ready_models_only(engine):
    assert index(engine, ready=True).items() == index(engine).items() - {
        (("broken", "1"), ("UNAVAILABLE", "no good file"))
    }


def test_a_named_repository_is_not_offered(engine):
    with pytest.raises(Unsupported, match="repository_name"):
        index(engine, repository_name="models")


@pytest.mark.parametrize("version", ["", "1"])
def test_a_model_tells_its_configuration(engine, version):
    request = pb.ModelConfigRequest(name="id", version=version)
    config = pb.ModelConfigResponse.FromString(called(engine, "ModelConfig", request)).config
    assert config.name == "id"
    assert [(i.name, list(i.dims)) for i in config.input] == [("T", [-1])]


@pytest.mark.parametrize(("name", "version"), [("nobody", ""), ("id", "2"), ("id", "x")])
def test_the_configuration_of_what_is_not_there_is_not_found(engine, name, version):
    with pytest.raises(ModelNotFound):
        called(engine, "ModelConfig", pb.ModelConfigRequest(name=name, version=version))


@pytest.mark.parametrize("rpc", ["RepositoryIndex", "ModelConfig"])
def test_bytes_that_are_no_message_are_refused(engine, rpc):
    with pytest.raises(InvalidRequest):
        called(engine, rpc, b"\xff\xff")


# --- load and unload ---

CONFIG = {
    "backend": "identity",
    "input": [{"name": "T", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "T", "data_type": "TYPE_FP32", "dims": [-1]}],
}


@pytest.fixture
def explicit(tmp_path):
    """explicit(test) runs a test with a function that calls methods of an explicit server."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text('backend: "repeat"')

    def run(test):
        async def go():
            engine = Engine(load_options=LoadOptions(model_control_mode="explicit"))
            await engine.load_all([tmp_path])
            methods = RepositoryMethods(engine).methods()

            async def call(rpc, request):
                buffers = await methods[rpc].handler(request.SerializeToString(), None)
                return b"".join(buffers)

            try:
                await test(call)
            finally:
                await engine.close(10.0)

        asyncio.run(go())

    return run


def rows(data):
    models = pb.RepositoryIndexResponse.FromString(data).models
    return [(model.name, model.version, model.state) for model in models]


@pytest.mark.parametrize("field", ["model_name", "repository_name"])  # Triton's, KServe's
def test_a_model_is_loaded_and_unloaded(explicit, field):
    async def test(call):
        everything = pb.RepositoryIndexRequest()
        assert rows(await call("RepositoryIndex", everything)) == [("m", "", "")]
        answer = await call("RepositoryModelLoad", pb.RepositoryModelLoadRequest(**{field: "m"}))
        assert answer == b"\x0a\x01m\x10\x01"
        assert rows(await call("RepositoryIndex", everything)) == [("m", "1", "READY")]
        unload = pb.RepositoryModelUnloadRequest(**{field: "m"})
        assert await call("RepositoryModelUnload", unload) == b"\x0a\x01m\x10\x01"
        [(_, _, state)] = rows(await call("RepositoryIndex", everything))
        assert state in ("UNLOADING", "UNAVAILABLE")

    explicit(test)


def test_a_model_may_be_sent(explicit):
    async def test(call):
        load = pb.RepositoryModelLoadRequest(model_name="n")
        load.parameters["config"].string_param = json.dumps(CONFIG)
        load.parameters["file:7/large"].bytes_param = b"x" * 1_000_000
        load.parameters["file:7/small"].bytes_param = b"x"
        await call("RepositoryModelLoad", load)
        ready = pb.RepositoryIndexRequest(ready=True)
        assert rows(await call("RepositoryIndex", ready)) == [("n", "7", "READY")]

    explicit(test)


@pytest.mark.parametrize("name", ["", "..", "../m", "/etc/passwd", "m/1", "..\\m"])
def test_a_path_in_place_of_a_name_is_refused(explicit, name):
    async def test(call):
        for verb in ("Load", "Unload"):
            request = getattr(pb, f"RepositoryModel{verb}Request")(model_name=name)
            with pytest.raises(InvalidRequest, match="is no name of a model"):
                await call(f"RepositoryModel{verb}", request)

    explicit(test)


def test_what_is_not_there_is_not_loaded(explicit):
    async def test(call):
        with pytest.raises(NotLoadable):
            await call("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="nobody"))

    explicit(test)


@pytest.mark.parametrize("verb", ["Load", "Unload"])
def test_a_repository_has_no_name_here(explicit, verb):
    async def test(call):
        kind = getattr(pb, f"RepositoryModel{verb}Request")
        with pytest.raises(Unsupported):
            await call(f"RepositoryModel{verb}", kind(repository_name="r", model_name="m"))

    explicit(test)


@pytest.mark.parametrize("verb", ["Load", "Unload"])
def test_where_clients_do_not_control_models_they_are_told_so(engine, verb):
    with pytest.raises(Unavailable, match="model-control-mode=explicit"):
        called(engine, f"RepositoryModel{verb}", b"this is not read")
