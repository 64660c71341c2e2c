"""The same models in the server and in worker processes of their own: the same answers."""

import json
import os
import signal
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
import tritonclient.grpc

PLACE = 'parameters {{ key: "inferd_process" value: {{ string_value: "{}" }} }}\n'


@pytest.fixture(scope="module")
def repository_in(tmp_path_factory, example, hosted):
    """repository_in(place) is a repository whose models run there."""

    def make(place):
        repository = tmp_path_factory.mktemp(place)
        for name in hosted:
            example(name).export(repository)
        for file in repository.glob("*/config.pbtxt"):
            text = file.read_text() + "instance_group { count: 1 }\n"
            file.write_text(text + PLACE.format(place))
        return repository

    return make


@pytest.fixture(scope="module")
def server(serve, repository_in):
    """A server with each model in a worker."""
    with serve(repository_in("worker")) as server:
        yield server


@pytest.fixture(scope="module")
def one_process(serve, repository_in):
    """A server with each model in its own process."""
    with serve(repository_in("server")) as server:
        yield server


@pytest.fixture
def client(server):
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as made:
        yield made


def ask(client, model, images):
    image = tritonclient.grpc.InferInput("image", images.shape, "FP32")
    image.set_data_from_numpy(images)
    answer = client.infer(model, [image])
    return {name: answer.as_numpy(name) for name in ("digit", "probability")}


@pytest.mark.parametrize("batch_size", [1, 8])
def test_a_worker_sees_the_same_digits(client, worker_model, digits, batch_size):
    images = digits.images()[:batch_size]
    got, expected = ask(client, worker_model, images), digits.classify(images)
    assert got["digit"].tolist() == expected["digit"].tolist()
    np.testing.assert_allclose(got["probability"], expected["probability"], atol=2e-6)


@pytest.mark.parametrize("batch_size", [1, 8])
def test_the_answers_in_the_server_are_the_very_same(
    client, one_process, worker_model, digits, batch_size
):
    images = digits.images()[:batch_size]
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{one_process.grpc_port}") as other:
        there, here = ask(client, worker_model, images), ask(other, worker_model, images)
    assert all(np.array_equal(there[name], here[name]) for name in there)


def test_requests_at_once_are_joined_in_the_worker(server, client, worker_model, digits):
    images = digits.images()

    def one(number):
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as own:
            return ask(own, worker_model, images[number : number + 1])["probability"]

    with ThreadPoolExecutor(8) as pool:
        got = np.concatenate(list(pool.map(one, range(16))))
    np.testing.assert_allclose(got, digits.classify(images)["probability"], atol=2e-6)
    [stats] = client.get_inference_statistics(worker_model).model_stats
    assert any(one.batch_size > 1 for one in stats.batch_stats)


def children():
    """Return the processes this one has started, by their number."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == os.getpid():
                found.append(int(entry))
    return found


def test_a_worker_that_is_killed_takes_nobody_with_it(server, client, worker_model, digits):
    images = digits.images()[:1]
    expected = digits.classify(images)["digit"].tolist()
    assert ask(client, worker_model, images)["digit"].tolist() == expected
    for pid in children():
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    got = None
    while got is None and time.monotonic() < deadline:
        with suppress(tritonclient.grpc.InferenceServerException):  # it was in the old process
            got = ask(client, worker_model, images)
    assert got is not None
    assert got["digit"].tolist() == expected
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/v2/health/live") as live:
        assert live.status == 200


BROKEN = {
    "to_onnx": ("model.onnx", "ONNX Runtime cannot load it"),
    "to_pytorch": ("model.pt", "not a zip archive"),
    "to_tensorflow": ("model.graphdef", "not what TensorFlow"),
    "to_openvino": ("model.xml", "OpenVINO cannot read it"),
    "to_litert": ("model.tflite", "is no TensorFlow Lite file"),
}


def test_a_model_that_cannot_be_opened_is_told(tmp_path, serve, hosted_framework):
    kind, reason = BROKEN[hosted_framework]
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / kind).write_bytes(b"not a model")
    (tmp_path / "broken" / "config.pbtxt").write_text(PLACE.format("worker"))
    with serve(tmp_path) as server:
        url = f"http://127.0.0.1:{server.http_port}/v2/repository/index"
        with urllib.request.urlopen(urllib.request.Request(url, b"")) as answer:
            [index] = json.load(answer)
    assert index["state"] == "UNAVAILABLE"
    assert reason in index["reason"]
    assert index["reason"].count("'broken'") == 1
    assert str(tmp_path) not in index["reason"]
