"""SageMaker's multi-model endpoints: models that the platform loads and unloads, over sockets."""

import http.client
import json

import pytest
from server_thread import server_in_thread

from inferd.config.server import ServerConfig

TARGET = {"X-Amzn-SageMaker-Target-Model": "shoes-v2.tar.gz"}


@pytest.fixture
def models(tmp_path):
    """What SageMaker unpacks models into."""
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def unpacked(models, echo):
    """unpacked(hash, config) puts a model where SageMaker does, and returns its url."""

    def put(name, config=None, inside="shoes"):
        folder = models / name / "model"
        (folder / inside / "1").mkdir(parents=True)
        (folder / inside / "config.pbtxt").write_text(config or 'name: "shoes"\n' + echo())
        return str(folder)

    return put


@pytest.fixture
def server(models):
    """A server in multi-model mode."""
    config = ServerConfig(
        model_repository=(str(models),),
        model_control_mode="explicit",
        allow_sagemaker=True,
        sagemaker_multi_model=True,
        sagemaker_port=0,
        http_port=0,
        allow_grpc=False,
        allow_metrics=False,
    )
    with server_in_thread(config) as running:
        yield running


@pytest.fixture
def port(server):
    """The port for SageMaker."""
    return server.cloud_ports["SageMaker"]


def send(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        given = json.dumps(body) if isinstance(body, dict) else body
        connection.request(method, path, given, headers or {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


def load(port, name, url):
    return send(port, "POST", "/models", {"model_name": name, "url": url}, TARGET)


def test_a_model_is_loaded_called_listed_and_unloaded(port, unpacked, body):
    assert send(port, "GET", "/ping")[0] == 200
    assert send(port, "GET", "/models") == (200, {"models": []})
    url = unpacked("a1b2")
    reported = {"modelName": "a1b2", "modelUrl": url}
    assert load(port, "a1b2", url) == (200, reported)
    assert send(port, "GET", "/models") == (200, {"models": [reported]})
    assert send(port, "GET", "/models/a1b2") == (200, reported)
    status, answer = send(port, "POST", "/models/a1b2/invoke", body, TARGET)
    assert (status, answer["model_name"], answer["outputs"][0]["data"]) == (200, "a1b2", [7.0])
    assert send(port, "DELETE", "/models/a1b2") == (200, {})
    assert send(port, "GET", "/models") == (200, {"models": []})
    assert load(port, "a1b2", url)[0] == 200


def test_a_model_that_another_port_unloads_is_not_loaded(server, port, unpacked):
    url = unpacked("a1b2")
    assert load(port, "a1b2", url)[0] == 200
    assert send(server.http_port, "POST", "/v2/repository/models/a1b2/unload")[0] == 200
    assert send(port, "GET", "/models") == (200, {"models": []})
    assert load(port, "a1b2", url)[0] == 200


def test_two_archives_may_hold_models_of_one_name(port, unpacked, body):
    for name in ("a1", "b2"):
        assert load(port, name, unpacked(name))[0] == 200
    for name in ("a1", "b2"):
        assert send(port, "POST", f"/models/{name}/invoke", body)[1]["model_name"] == name


def test_a_folder_that_is_the_model_itself_loads_too(port, models, echo, body):
    (models / "c3" / "model" / "1").mkdir(parents=True)
    (models / "c3" / "model" / "config.pbtxt").write_text(echo())
    assert load(port, "c3", str(models / "c3" / "model"))[0] == 200
    assert send(port, "POST", "/models/c3/invoke", body)[0] == 200


def test_a_model_that_is_loaded_is_a_conflict(port, unpacked):
    url = unpacked("a1b2")
    assert load(port, "a1b2", url)[0] == 200
    status, answer = load(port, "a1b2", url)
    assert status == 409 and "'a1b2' is loaded already" in answer["error"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/models/x"), ("DELETE", "/models/x"), ("POST", "/models/x/invoke")],
)
def test_a_model_that_is_not_loaded_is_not_found(port, unpacked, method, path):
    unpacked("x")
    status, answer = send(port, method, path)
    assert (status, answer["error"]) == (404, "model 'x' is not loaded")


def test_a_folder_outside_of_the_repository_is_refused(port, models, tmp_path, echo):
    outside = tmp_path / "outside" / "shoes"
    (outside / "1").mkdir(parents=True)
    (outside / "config.pbtxt").write_text(echo())
    (models / "link").symlink_to(outside)
    for url in (str(outside), str(models / ".." / "outside"), str(models / "link"), "/nowhere"):
        status, answer = load(port, "m", url)
        assert status == 500 and "is no folder in a model repository" in answer["error"]
    assert send(port, "GET", "/models") == (200, {"models": []})


def test_a_link_that_leads_out_of_the_repository_is_refused(port, unpacked, tmp_path, models):
    unpacked("a1")
    secret = tmp_path / "secret"
    secret.write_text("x")
    (models / "a1" / "model" / "shoes" / "1" / "file").symlink_to(secret)
    status, answer = load(port, "a1", str(models / "a1" / "model"))
    assert status == 500 and "is a link that leads out" in answer["error"]


def test_several_models_in_one_archive_are_refused(port, unpacked):
    unpacked("a1")
    status, answer = load(port, "a1", unpacked("a1", inside="hats"))
    assert status == 500 and "there are 2 models in the folder 'model'" in answer["error"]


def test_a_model_that_does_not_load_may_be_loaded_again(port, unpacked, broken, models, echo):
    url = unpacked("a1", broken)
    status, answer = load(port, "a1", url)
    assert status == 400 and "load failed for model 'a1'" in answer["error"]
    assert send(port, "GET", "/models") == (200, {"models": []})
    assert send(port, "GET", "/ping")[0] == 200
    (models / "a1" / "model" / "shoes" / "config.pbtxt").write_text(echo())
    assert load(port, "a1", url)[0] == 200


def test_a_model_there_is_no_memory_for_is_reported_by_a_status_of_its_own(port, models):
    folder = models / "a1" / "model" / "big" / "1"
    folder.mkdir(parents=True)
    (folder.parent / "config.pbtxt").write_text(
        'backend: "python"\n'
        'input { name: "IN" data_type: TYPE_INT32 dims: 1 }\n'
        'output { name: "OUT" data_type: TYPE_INT32 dims: 1 }\n'
        'parameters { key: "inferd_process" value: { string_value: "server" } }\n'
    )
    (folder / "model.py").write_text(
        "class TritonPythonModel:\n"
        "    def initialize(self, args):\n"
        "        raise MemoryError('1 TB')\n"
        "    def execute(self, requests):\n"
        "        return []\n"
    )
    assert load(port, "a1", str(models / "a1" / "model"))[0] == 507


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"model_name": "m"}', b'{"model_name": "", "url":"/"}']
)
def test_a_load_that_cannot_be_read_is_bad_request(port, body):
    status, answer = send(port, "POST", "/models", body)
    assert status == 400 and answer["error"]


def test_without_multi_model_mode_there_are_no_such_urls(models):
    config = ServerConfig(
        model_repository=(str(models),),
        model_control_mode="explicit",
        allow_sagemaker=True,
        sagemaker_port=0,
        allow_http=False,
        allow_grpc=False,
        allow_metrics=False,
    )
    with server_in_thread(config) as server:
        assert send(server.cloud_ports["SageMaker"], "GET", "/models")[0] == 404
