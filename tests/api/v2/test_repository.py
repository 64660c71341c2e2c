"""The calls of V2's repository: HTTP over a real socket, gRPC by bytes alone."""

import asyncio
import base64
import json
from contextlib import asynccontextmanager

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.api.call import V2_SERVICE, grpc_handlers
from inferd.api.v2.repository import CALLS
from inferd.core.metadata import ModelState
from inferd.engine.engine import Engine
from inferd.engine.loading.load import LoadOptions
from inferd.errors import InvalidRequest, ModelNotFound, NotLoadable, Unavailable, Unsupported

INDEX = "/v2/repository/index"
CONFIG = json.dumps(
    {
        "backend": "identity",
        "input": [{"name": "T", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "T", "data_type": "TYPE_FP32", "dims": [-1]}],
    }
)


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: there\r\n\r\n".encode()


# --- index ---


@pytest.mark.parametrize("path", [INDEX, f"{INDEX}/", "/v2/repository/any/index"])
async def test_the_index_has_a_row_for_each_version(serving, post, path):
    async with serving(loaded=False) as site:
        site.is_loaded(broken=True)
        answer = await site.ask(post(path))
        assert answer.status == 200
        rows = {(row["name"], row["version"]): row for row in answer.json}
        assert rows["id", "1"] == {"name": "id", "version": "1", "state": "READY", "reason": ""}
        assert ("id", "3") in rows
        assert rows["broken", "1"] == {
            "name": "broken",
            "version": "1",
            "state": "UNAVAILABLE",
            "reason": "no good file",
        }


async def test_the_index_may_be_of_ready_models_only(serving, post):
    async with serving(loaded=False) as site:
        site.is_loaded(broken=True)
        everything = (await site.ask(post(INDEX, b'{"ready": false}'))).json
        ready = (await site.ask(post(INDEX, b'{"ready": true}'))).json
        assert [row for row in everything if row["state"] == "READY"] == ready
        assert len(everything) == len(ready) + 1


@pytest.mark.parametrize("body", [b'{"ready": 1}', b"[]", b"{", b" " * 70_000])
async def test_an_index_request_of_another_shape_is_refused(serving, post, body):
    async with serving() as site:
        answer = await site.ask(post(INDEX, body))
        assert answer.status == 400
        assert answer.error


@pytest.mark.parametrize("path", [INDEX, "/v2/repository/models/m/load"])
async def test_the_calls_are_posted(serving, path):
    async with serving() as site:
        answer = await site.ask(get(path))
        assert (answer.status, answer.headers["allow"]) == (405, "POST")


# --- load and unload ---


@pytest.fixture
def repository(serving, tmp_path):
    """`async with repository() as site` serves an explicit repository with the model m."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(
        'backend: "identity" input { name: "T" data_type: TYPE_FP32 dims: -1 } '
        'output { name: "T" data_type: TYPE_FP32 dims: -1 }'
    )

    @asynccontextmanager
    async def serve(**changes):
        engine = Engine(load_options=LoadOptions(model_control_mode="explicit"))
        await engine.load_all([tmp_path])
        async with serving(engine=engine, **changes) as site:
            yield site
        await engine.close(10.0)

    return serve


def path(model, verb):
    return f"/v2/repository/models/{model}/{verb}"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"parameters": {}}', b'{"unknown": 1}'])
async def test_a_model_is_loaded_answers_and_is_unloaded(repository, post, infer, body):
    async with repository() as site:
        assert (await site.ask(post(INDEX))).json == [{"name": "m"}]
        answer = await site.ask(post(path("m", "load"), body))
        assert (answer.status, answer.json) == (200, {"name": "m", "load": True})
        assert (await site.ask(infer(model="m"))).status == 200
        answer = await site.ask(post(path("m", "unload"), body))
        assert (answer.status, answer.json) == (200, {"name": "m", "unload": True})
        assert (await site.ask(infer(model="m"))).status == 404


async def test_a_model_may_be_sent(repository, post, infer):
    parameters = {"config": CONFIG, "file:1/weights": base64.b64encode(b"x" * 10**6).decode()}
    async with repository() as site:
        body = json.dumps({"parameters": parameters}).encode()
        assert (await site.ask(post(path("n%20%C3%BC", "load"), body))).status == 200
        answer = await site.ask(infer(model="n%20%C3%BC"))
        assert answer.json["model_name"] == "n ü"


@pytest.mark.parametrize(
    "name",
    ["..%2F..%2Fetc%2Fpasswd", "%2e%2e", "%2Fetc", "m%2F1", "%5C%5Chost%5Cm", ".", "m%00", "%0a"],
)
async def test_a_path_in_place_of_a_name_is_refused(repository, post, name):
    """The path traversal published for a server that makes a path of the name."""
    async with repository() as site:
        for verb in ("load", "unload"):
            answer = await site.ask(post(path(name, verb)))
            assert answer.status == 400
            assert "is no name of a model" in answer.error


@pytest.mark.parametrize("name", ["..", "../..", "m/../m", "/etc", "%252e%252e", "nobody"])
async def test_what_is_no_model_is_not_loaded(repository, post, name):
    async with repository() as site:
        assert (await site.ask(post(path(name, "load")))).status in (400, 404, 500, 501)
        assert (await site.ask(post(INDEX))).json == [{"name": "m"}]


async def test_what_is_not_there_is_tritons_500_to_load_and_200_to_unload(repository, post):
    async with repository() as site:
        answer = await site.ask(post(path("nobody", "load")))
        assert answer.status == 500
        assert answer.error.endswith(
            "failed to poll from model repository: there is no such model in it"
        )
        assert (await site.ask(post(path("nobody", "unload")))).status == 200


BAD = {
    b"[]": 400,
    b"{": 400,
    b'{"parameters": {"config": 7}}': 400,
    b'{"parameters": {"config": "{"}}': 400,
    b'{"parameters": {"config": "{\\"max_batch_size\\": \\"x\\"}"}}': 400,
    b'{"parameters": {"zz": ""}}': 400,
    b'{"parameters": {"file:1/x": ""}}': 400,
    b'{"parameters": {"config": "{}", "file:1/x": "*"}}': 400,
    b'{"parameters": {"config": "{}", "file:../x": ""}}': 400,
}


@pytest.mark.parametrize(("body", "status"), BAD.items())
async def test_a_load_that_is_none_is_refused(repository, post, body, status):
    async with repository() as site:
        answer = await site.ask(post(path("m", "load"), body))
        assert answer.status == status
        assert answer.error
        assert (await site.ask(post(path("m", "load")))).status == 200


async def test_a_load_longer_than_json_may_be_is_refused(repository, post):
    async with repository(max_input_bytes=1000) as site:
        answer = await site.ask(post(path("m", "load"), b" " * 1001))
        assert answer.status == 400
        assert "the limit is 1000" in answer.error


async def test_ten_gigabytes_are_refused_before_they_are_sent(repository, post):
    async with repository() as site:
        answer = await site.ask(post(path("m", "load"), length=10 * 10**9))
        assert answer.status == 413


async def test_an_unload_that_is_none_is_refused(repository, post):
    async with repository() as site:
        body = b'{"parameters": {"unload_dependents": 1}}'
        assert (await site.ask(post(path("m", "unload"), body))).status == 400


@pytest.mark.parametrize("verb", ["load", "unload"])
async def test_a_repository_has_no_name_here(repository, post, verb):
    async with repository() as site:
        answer = await site.ask(post(f"/v2/repository/models/models/m/{verb}"))
        assert answer.status == 501
        assert "repository_name" in answer.error


@pytest.mark.parametrize("verb", ["load", "unload"])
async def test_where_clients_do_not_control_models_they_get_503(serving, post, verb):
    async with serving() as site:
        for body in (b"", b"this is not read"):
            answer = await site.ask(post(path("id", verb), body))
            assert answer.status == 503
            assert "--model-control-mode=explicit" in answer.error


# --- configuration ---


@pytest.mark.parametrize(
    "url",
    ["/v2/models/id/config", "/v2/models/id/versions/1/config", "/v2/models/a%2Fb%20c/config"],
)
async def test_a_model_tells_its_configuration(serving, url):
    async with serving() as site:
        answer = await site.ask(get(url))
        assert answer.status == 200
        assert answer.json["name"] in ("id", "a/b c")
        [tensor] = answer.json["input"]
        assert (tensor["name"], tensor["data_type"], tensor["dims"]) == ("T", "TYPE_FP32", [-1])
        assert answer.json["max_batch_size"] == 0


@pytest.mark.parametrize(
    "url", ["/v2/models/nobody/config", "/v2/models/id/versions/2/config", "/v2/models/ID/config"]
)
async def test_the_configuration_of_what_is_not_there_is_404(serving, url):
    async with serving() as site:
        answer = await site.ask(get(url))
        assert answer.status == 404
        assert answer.error


# --- over gRPC ---


@pytest.fixture
def engine(models):
    engine, _ = models()
    engine.catalog.set_state("broken", 1, ModelState.UNAVAILABLE, "no good file")
    return engine


def called(engine, rpc, request):
    method = grpc_handlers(CALLS, engine, {})[f"/{V2_SERVICE}/{rpc}"]
    data = request if isinstance(request, bytes) else request.SerializeToString()
    return b"".join(asyncio.run(method.handler(data, None)))


def index(engine, **fields):
    answer = called(engine, "RepositoryIndex", pb.RepositoryIndexRequest(**fields))
    return {
        (m.name, m.version): (m.state, m.reason)
        for m in pb.RepositoryIndexResponse.FromString(answer).models
    }


def test_the_index_has_a_row_for_each_version_over_grpc(engine):
    rows = index(engine)
    assert rows["id", "1"] == rows["id", "3"] == ("READY", "")
    assert rows["broken", "1"] == ("UNAVAILABLE", "no good file")


def test_the_index_may_be_of_ready_models_only_over_grpc(engine):
    assert index(engine, ready=True).items() == index(engine).items() - {
        (("broken", "1"), ("UNAVAILABLE", "no good file"))
    }


def test_a_named_repository_is_not_offered(engine):
    with pytest.raises(Unsupported, match="repository_name"):
        index(engine, repository_name="models")


@pytest.mark.parametrize("version", ["", "1"])
def test_a_model_tells_its_configuration_over_grpc(engine, version):
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


@pytest.fixture
def explicit(tmp_path):
    """explicit(test) runs a test with a function that calls methods of an explicit server."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text('backend: "repeat"')

    def run(test):
        async def go():
            engine = Engine(load_options=LoadOptions(model_control_mode="explicit"))
            await engine.load_all([tmp_path])
            methods = grpc_handlers(CALLS, engine, {})

            async def call(rpc, request):
                buffers = await methods[f"/{V2_SERVICE}/{rpc}"].handler(
                    request.SerializeToString(), None
                )
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


def test_a_model_may_be_sent_over_grpc(explicit):
    async def test(call):
        load = pb.RepositoryModelLoadRequest(model_name="n")
        load.parameters["config"].string_param = CONFIG
        load.parameters["file:7/large"].bytes_param = b"x" * 1_000_000
        load.parameters["file:7/small"].bytes_param = b"x"
        await call("RepositoryModelLoad", load)
        ready = pb.RepositoryIndexRequest(ready=True)
        assert rows(await call("RepositoryIndex", ready)) == [("n", "7", "READY")]

    explicit(test)


@pytest.mark.parametrize("name", ["", "..", "../m", "/etc/passwd", "m/1", "..\\m"])
def test_a_path_in_place_of_a_name_is_refused_over_grpc(explicit, name):
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
def test_a_repository_has_no_name_here_over_grpc(explicit, verb):
    async def test(call):
        kind = getattr(pb, f"RepositoryModel{verb}Request")
        with pytest.raises(Unsupported):
            await call(f"RepositoryModel{verb}", kind(repository_name="r", model_name="m"))

    explicit(test)


@pytest.mark.parametrize("verb", ["Load", "Unload"])
def test_where_clients_do_not_control_models_they_are_told_so(engine, verb):
    with pytest.raises(Unavailable, match="model-control-mode=explicit"):
        called(engine, f"RepositoryModel{verb}", b"this is not read")
