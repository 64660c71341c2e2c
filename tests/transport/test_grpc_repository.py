"""The repository's gRPC methods: bytes in, bytes or an error out."""

import asyncio

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.core.metadata import ModelState
from inferd.errors import InvalidRequest, ModelNotFound, Unsupported
from inferd.transport.grpc_repository import RepositoryMethods


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
