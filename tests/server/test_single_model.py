"""A server of one model, whose folder or file is given by itself, as KServe mounts it."""

import json
import shutil
import time
from pathlib import Path

import lightgbm
import numpy as np
import pytest
from onnx import TensorProto, helper, save
from patience import wait_until
from server_thread import server_in_thread
from tritonclient.grpc import InferenceServerClient

from inferd.cli.command_line.flags import read_command_line
from inferd.config.sources import read_settings

ROOT = Path(__file__).parents[2]
PORTS = ["--http_port=0", "--grpc_port=0", "--metrics-port=0"]


@pytest.fixture
def served():
    """served(arguments...) starts a server with these arguments of `inferd serve`."""

    def start(*arguments):
        line = read_command_line([*map(str, arguments), *PORTS])
        return server_in_thread(read_settings(line.flags, {}).config)

    return start


def write_scale(file, factor):
    """Write a model with the input x, FP32 [-1, 1], and the output y, which is x times `factor`."""
    rows = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1]) for name in ("x", "y")]
    weight = helper.make_tensor("factor", TensorProto.FLOAT, [1], [factor])
    node = helper.make_node("Mul", ["x", "factor"], ["y"])
    graph = helper.make_graph([node], "scale", rows[:1], rows[1:], [weight])
    file.parent.mkdir(parents=True, exist_ok=True)
    opsets = [helper.make_opsetid("", 21)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=10), str(file))


def product(ask, port, name):
    """Return the model's answer to 2.0."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [2.0]}
    body = json.dumps({"inputs": [tensor]}).encode()
    status, answer = ask(port, f"/v2/models/{name}/infer", body)
    return answer["outputs"][0]["data"][0] if status == 200 else status


@pytest.mark.parametrize("file", ["net.onnx", "model.onnx", "1/model.onnx", "1/net.onnx"])
def test_the_flags_of_kserves_servers_serve_what_it_mounts(served, ask, tmp_path, file):
    write_scale(tmp_path / "models" / file, 3)
    with served("--model_name=scale", f"--model_dir={tmp_path / 'models'}") as server:
        port = server.http_port
        assert ask(port, "/v2/health/ready")[0] == 200
        assert ask(port, "/v2/models/scale/ready")[0] == 200
        assert ask(port, "/v2/models/scale")[1]["versions"] == ["1"]
        assert product(ask, port, "scale") == 6
        with InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            assert client.is_model_ready("scale")


def test_a_model_and_a_repository_side_by_side(served, ask, tmp_path):
    write_scale(tmp_path / "net" / "net.onnx", 3)
    write_scale(tmp_path / "repo" / "other" / "1" / "model.onnx", 5)
    with served(tmp_path / "net", tmp_path / "repo", "--model-name", "mine") as server:
        assert product(ask, server.http_port, "mine") == 6
        assert product(ask, server.http_port, "other") == 10


def test_clients_load_and_unload_it_by_the_given_name(served, ask, tmp_path):
    write_scale(tmp_path / "net.onnx", 3)
    mode = "--model-control-mode=explicit"
    with served(tmp_path, "--model-name=scale", mode) as server:
        port, path = server.http_port, "/v2/repository/models/scale"
        assert ask(port, "/v2/repository/index", b"") == (200, [{"name": "scale"}])
        assert ask(port, f"{path}/load", b"")[0] == 200
        assert product(ask, port, "scale") == 6
        write_scale(tmp_path / "net.onnx", 4)
        assert ask(port, f"{path}/load", b"")[0] == 200
        assert product(ask, port, "scale") == 8
        sent = {"parameters": {"config": '{"max_batch_size": 2}'}}
        assert ask(port, f"{path}/load", json.dumps(sent).encode())[0] == 200
        assert ask(port, "/v2/models/scale/config")[1]["max_batch_size"] == 2
        assert ask(port, f"{path}/unload", b"")[0] == 200
        gone = {"name": "scale", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
        wait_until(lambda: ask(port, "/v2/repository/index", b"") == (200, [gone]))
        status, answer = ask(port, f"/v2/repository/models/{tmp_path.name}/load", b"")
        assert (status, "there is no such model" in answer["error"]) == (500, True)


def test_polling_follows_a_mount_that_kubernetes_exchanges(served, ask, tmp_path):
    """As for a ConfigMap: files are links into a folder, which is exchanged as a whole."""
    for number, factor in ((1, 3), (2, 4)):
        write_scale(tmp_path / f"..{number}" / "net.onnx", factor)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "net.onnx").symlink_to("..data/net.onnx")
    polls = ["--model-control-mode=poll", "--repository-poll-secs=0.01"]
    with served(tmp_path, "--model-name=scale", *polls) as server:
        assert product(ask, server.http_port, "scale") == 6
        (tmp_path / "..new").symlink_to("..2")
        (tmp_path / "..new").rename(tmp_path / "..data")
        shutil.rmtree(tmp_path / "..1")
        while product(ask, server.http_port, "scale") != 8:
            time.sleep(0.001)
        assert ask(server.http_port, "/v2/health/ready")[0] == 200


def test_polling_notices_what_lies_beside_the_file(served, ask, tmp_path):
    write_scale(tmp_path / "net.onnx", 3)
    polls = ["--model-control-mode=poll", "--repository-poll-secs=0.01"]
    with served(tmp_path, "--model-name=scale", *polls) as server:
        (tmp_path / "config.pbtxt").write_text("max_batch_size: 7")
        while ask(server.http_port, "/v2/models/scale/config")[1]["max_batch_size"] != 7:
            time.sleep(0.001)
        assert product(ask, server.http_port, "scale") == 6


@pytest.mark.parametrize("file", ["net.onnx", "1/model.onnx"])
def test_a_folder_is_called_like_the_service_of_kserve(served, ask, tmp_path, monkeypatch, file):
    monkeypatch.setenv("INFERENCE_SERVICE_NAME", "iris")
    write_scale(tmp_path / "models" / file, 3)
    with served(tmp_path / "models") as server:
        assert product(ask, server.http_port, "iris") == 6
        assert ask(server.http_port, "/v2/models/models")[0] == 404
    (tmp_path / "models/config.pbtxt").write_text('name: "mine"')
    with served(tmp_path / "models") as server:
        assert product(ask, server.http_port, "mine") == 6
    with served(tmp_path / "models", "--model-name=given") as server:
        assert product(ask, server.http_port, "given") == 6


def test_the_name_of_a_service_is_not_for_repositories_or_several_models(
    served, ask, tmp_path, monkeypatch
):
    monkeypatch.setenv("INFERENCE_SERVICE_NAME", "iris")
    write_scale(tmp_path / "repo/scale/1/model.onnx", 3)
    with served(tmp_path / "repo") as server:
        assert product(ask, server.http_port, "scale") == 6
    for name in ("one", "two"):
        write_scale(tmp_path / name / "net.onnx", 3)
    with served(tmp_path / "one", tmp_path / "two") as server:
        assert product(ask, server.http_port, "one") == product(ask, server.http_port, "two") == 6


def test_a_service_whose_name_is_none_of_a_model_names_nothing(served, ask, tmp_path, monkeypatch):
    monkeypatch.setenv("INFERENCE_SERVICE_NAME", "../iris")
    write_scale(tmp_path / "scale/net.onnx", 3)
    with served(tmp_path / "scale") as server:
        assert product(ask, server.http_port, "scale") == 6


def test_the_digits_of_the_examples_by_their_file(served, ask):
    examples = ROOT / "examples/digits"
    with served(examples / "models/digits/1/model.onnx", "--model-name=mine") as server:
        body = (examples / "digit.json").read_bytes()
        assert ask(server.http_port, "/v2/models/mine/infer", body)[0] == 200


def test_a_table_in_a_folder_by_itself_may_be_called_what_the_client_likes(served, ask, tmp_path):
    data = lightgbm.Dataset(np.array([[1.0], [2.0]] * 20), [3.0, 5.0] * 20)
    exact = {"verbosity": -1, "min_data_in_leaf": 1, "learning_rate": 1.0}
    lightgbm.train(exact, data, 2).save_model(tmp_path / "model.txt")
    with served(tmp_path, "--model-name=scale") as server:
        for name in ("x", "input-0"):
            tensor = {"name": name, "datatype": "FP32", "shape": [1, 1], "data": [2.0]}
            body = json.dumps({"inputs": [tensor]}).encode()
            status, answer = ask(server.http_port, "/v2/models/scale/infer", body)
            assert (status, answer["outputs"][0]["data"]) == (200, [5.0])
    said = 'input { name: "rows" data_type: TYPE_FP32 dims: 1 }'
    (tmp_path / "config.pbtxt").write_text(said)
    with served(tmp_path, "--model-name=scale") as server:
        assert product(ask, server.http_port, "scale") == 400
