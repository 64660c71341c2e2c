"""Models of hubs and links, wherever a path may be given."""

import io
import json
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from running_fleet import running_fleet
from server_process import ON_FREE_PORTS, Process
from small_hub import SmallHub, tar_of

import inferd
from inferd.cli import config, tune
from inferd.errors import InferdError
from inferd.repository.repositories import Repositories, fetched_path, place_of

ECHO = b"""backend: "identity"
input { name: "x" data_type: TYPE_FP32 dims: 2 } output { name: "x" data_type: TYPE_FP32 dims: 2 }
"""


def graph(addend):
    """Return an ONNX model y = x + addend, FP32 [2]."""
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    constant = helper.make_tensor("c", TensorProto.FLOAT, [1], [addend])
    node = helper.make_node("Add", ["x", "c"], ["y"])
    made = helper.make_graph([node], "g", tensors[:1], tensors[1:], [constant])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    target = io.BytesIO()
    onnx.save_model(model, target)
    return target.getvalue()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    site = SmallHub()
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_ENDPOINT", site.url)
    monkeypatch.setenv("INFERD_FETCH_DIRECTORY", str(tmp_path / "stored"))
    for name in ("HF_TOKEN", "HF_HOME", "HF_TOKEN_PATH", "INFERD_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    yield site
    site.close()


def models_of(*paths):
    repositories = Repositories([place_of(str(path)) for path in paths])
    return {model.name: (model.error, model.versions) for model in repositories.find_all()}


def test_what_is_at_urls_is_a_model_a_repository_or_a_folder_around_them(hub, tmp_path):
    (tmp_path / "here/a/1").mkdir(parents=True)
    (tmp_path / "here/a/1/model.onnx").write_text("")
    hub.put_hub_model("org/b", {"onnx/model.onnx": b"", "README.md": b""})
    archive = {
        ".DS_Store": b"",
        "top/c/1/model.onnx": b"",
        "top/d/config.pbtxt": ECHO,
        "top/d/1/x": b"",
    }
    repository = hub.put("/many.tar.gz", tar_of(archive))
    one = hub.put("/v2/e.zip.tar", tar_of({"e-main/1/model.onnx": b""}))
    file = hub.put("/f/model.onnx", b"")
    found = models_of(tmp_path / "here", "hf://org/b", repository, one, file)
    wanted = {"a": (1,), "b": (1,), "c": (1,), "d": (1,), "e-main": (1,), "f": (1,)}
    assert found == {name: (None, versions) for name, versions in wanted.items()}


def infer(url, model, values):
    tensor = {"name": "x", "datatype": "FP32", "shape": [2], "data": values}
    body = json.dumps({"inputs": [tensor]}).encode()
    with urllib.request.urlopen(f"{url}/v2/models/{model}/infer", body, timeout=30) as answer:
        return json.loads(answer.read())["outputs"][0]["data"]


@pytest.mark.slow
def test_a_server_serves_a_model_of_a_hub_and_offline_again(hub):
    hub.put_hub_model("org/adder", {"onnx/model.onnx": graph(1.0)})
    with inferd.Server(model_repository="hf://org/adder") as server:
        assert infer(server.http_url, "adder", [1, 2]) == [2, 3]
    hub.close()
    with inferd.Server(model_repository="hf://org/adder", offline=True) as server:
        assert infer(server.http_url, "adder", [1, 2]) == [2, 3]


@pytest.mark.slow
def test_all_workers_serve_what_the_first_one_found(hub):
    fetched = hub.put_hub_model("org/adder", {"model.onnx": graph(1.0)})
    listing = "/api/models/org/adder/revision/main"

    def move(request):
        first = hub.files[listing]
        del hub.answers[listing]
        hub.put_hub_model("org/adder", {"model.onnx": graph(5.0)})
        request.answer(200, first)

    hub.answers[listing] = move
    with running_fleet("hf://org/adder") as (_, port):
        answers = [infer(f"http://127.0.0.1:{port}", "adder", [1, 2]) for _ in range(20)]
    assert answers == [[2, 3]] * 20
    assert hub.paths.count(f"{listing}?blobs=true") == 1
    assert hub.paths.count(f"/org/adder/resolve/{fetched}/model.onnx") == 1


def run(*words):
    command = [sys.executable, "-m", "inferd", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_a_command_says_what_is_not_there(hub):
    done = run("check", "hf://org/nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("inferd check: '") and "is not there" in done.stderr


def put_adder(hub, scheme):
    """Put a model called adder where a URL of that scheme leads to; return the URL."""
    config = b'input { name: "x" data_type: TYPE_FP32 dims: 2 }'
    files = {"config.pbtxt": config, "1/model.onnx": graph(1.0)}
    if scheme == "hf":
        hub.put_hub_model("org/adder", {"model.onnx": graph(1.0)})
        return "hf://org/adder"
    if scheme == "oci":
        hub.put_image("adder", "v1", [tar_of({f"models/{name}": files[name] for name in files})])
        return f"oci://127.0.0.1:{hub.server_port}/adder:v1"
    if scheme == "models":
        hub.put_registered("adder", "3", files)
        return "models:/adder/3"
    return hub.put("/adder.tar.gz", tar_of({f"adder/{name}": files[name] for name in files}))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["hf", "oci", "models", "http"])
def test_each_command_that_reads_a_model_takes_each_url(hub, monkeypatch, scheme):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", hub.url)
    monkeypatch.delenv("MLFLOW_REGISTRY_URI", raising=False)
    url = put_adder(hub, scheme)
    done = run("check", "--strict", url)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    done = run("config", url, "--format=json")
    assert json.loads(done.stdout)["name"] == "adder", done.stderr
    done = run("infer", url, "--input", "x=[1, 2]", "--json")
    assert json.loads(done.stdout)["outputs"]["y"]["data"] == [2, 3], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["hf", "http"])
def test_what_a_url_leads_to_is_tuned_a_file_or_a_folder(hub, scheme):
    words = ["--seconds=0.1", "--trials=1", "--cores=1", "--json"]
    done = run("tune", put_adder(hub, scheme), *words)
    found = json.loads(done.stdout)
    assert found["model"] == "adder", done.stderr
    assert found["candidates"] > 0
    # A machine that does other things, too, is no reason that the model could not be loaded.
    assert all("load generator" in failure for failure in found["failures"])


@pytest.mark.parametrize("verb", [config, tune])
def test_what_was_fetched_is_not_written_to(hub, tmp_path, capsys, verb):
    link = hub.put("/adder.tar", tar_of({"adder/1/model.onnx": graph(1.0)}))
    for url in ("hf://org/adder", link):
        assert verb.run([url, "--write"]) != 0
        assert f"nothing is written to '{url.partition('#')[0]}'" in capsys.readouterr().err
    assert not hub.requests


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_that_fetches_is_live_and_ends_at_once(hub, tmp_path, workers):
    content = graph(1.0) + bytes(500_000)
    link = hub.put("/adder.onnx", content)
    begun, released = threading.Event(), threading.Event()

    def stall(request):
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content[:400_000])
        request.wfile.flush()
        begun.set()
        released.wait(60)

    hub.answers["/adder.onnx"] = stall
    server = Process(link, *ON_FREE_PORTS, f"--workers={workers}")
    try:
        port = server.wait_live()
        assert begun.wait(60)
        if workers == 1:  # with several, connections wait for the first that is ready
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/live", timeout=30):
                pass
        while not any(part.stat().st_size for part in tmp_path.rglob("*.inferd-part")):
            pass
        server.process.send_signal(signal.SIGINT)
        server.end()
    finally:
        released.set()
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()
    assert "fetching" in server.said
    hub.answers.clear()
    hub.requests.clear()
    assert models_of(link)["adder"][0] is None
    assert hub.requests[0][1].get("Range", "").startswith("bytes=")


@pytest.mark.slow
def test_a_server_ends_with_what_is_wrong_and_without_secrets(hub):
    link = f"{hub.url}/m.onnx?X-Signature=hidden#sha256={'0' * 64}"
    done = run("serve", link, "--http-port=0", "--grpc-port=0", "--metrics-port=0")
    assert done.returncode == 1
    assert "/m.onnx' is not there" in done.stderr
    assert "hidden" not in done.stdout + done.stderr


def test_a_cloud_is_no_path_for_commands_that_read_one_model():
    with pytest.raises(InferdError, match="s3://b/m is not on this machine; copy it"):
        fetched_path("s3://b/m")
    assert fetched_path("models") == Path("models")
