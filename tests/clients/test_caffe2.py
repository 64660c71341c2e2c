"""A Caffe2 model under Triton's clients."""

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

DATA = Path(__file__).parents[1] / "data" / "caffe2"
IMAGES, SCORES = np.load(DATA / "input.npy"), np.load(DATA / "output.npy")
CONFIG = """
platform: "caffe2_netdef"
max_batch_size: 8
input { name: "data" data_type: TYPE_FP32 dims: [ 3, 32, 32 ] }
output { name: "prob" data_type: TYPE_FP32 dims: [ 10 ] label_filename: "labels.txt" }
dynamic_batching { max_queue_delay_microseconds: 500 }
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory, start_for_module):
    """A server of one network, once with a configuration and once without."""
    root = tmp_path_factory.mktemp("caffe2")
    for name in ("cnn", "bare"):
        folder = root / name / "1"
        folder.mkdir(parents=True)
        for file in ("model.netdef", "init_model.netdef"):
            shutil.copy(DATA / file, folder)
    (root / "cnn" / "config.pbtxt").write_text(CONFIG)
    (root / "cnn" / "labels.txt").write_text("".join(f"label{n}\n" for n in range(10)))
    return start_for_module(models=root)


@pytest.fixture(params=[tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def client(request, place):
    """client.package, and client itself, over REST and gRPC."""
    package = request.param
    made = package.InferenceServerClient(place.http if package is tritonclient.http else place.grpc)
    made.package = package
    yield made
    made.close()


def scores(client, model, images, **options):
    given = client.package.InferInput("data", images.shape, "FP32")
    given.set_data_from_numpy(images)
    wanted = client.package.InferRequestedOutput("prob", **options)
    return client.infer(model, [given], outputs=[wanted]).as_numpy("prob")


@pytest.mark.parametrize("model", ["cnn", "bare"])
@pytest.mark.parametrize("count", [1, 2])
def test_answers_are_caffe2_s(client, model, count):
    found = scores(client, model, IMAGES[:count])
    np.testing.assert_allclose(found, SCORES[:count], atol=2e-5)


def test_eight_images_are_one_batch(client):
    found = scores(client, "cnn", np.repeat(IMAGES, 4, axis=0))
    np.testing.assert_allclose(found, np.repeat(SCORES, 4, axis=0), atol=2e-5)


def test_requests_that_share_a_batch_get_their_own_answers(place):
    answers = {}

    def ask(number):
        client = tritonclient.http.InferenceServerClient(place.http)
        client.package = tritonclient.http
        answers[number] = scores(client, "cnn", IMAGES[number % 2 :][:1])
        client.close()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number in range(8):
        np.testing.assert_allclose(answers[number], SCORES[number % 2 :][:1], atol=2e-5)


def test_classes_come_with_their_labels(client):
    [[best]] = scores(client, "cnn", IMAGES[:1], class_count=1)
    assert best.decode().endswith(f":label{SCORES[0].argmax()}")


def test_metadata_tell_the_protocol_s_name_and_what_the_file_tells(place):
    client = tritonclient.http.InferenceServerClient(place.http)
    metadata = client.get_model_metadata("bare")
    assert metadata["platform"] == "caffe2_netdef"
    assert metadata["inputs"] == [{"name": "data", "datatype": "FP32", "shape": [-1, 3, -1, -1]}]
    assert metadata["outputs"] == [{"name": "prob", "datatype": "FP32", "shape": [-1, 10]}]
    assert client.get_model_config("bare")["backend"] == "caffe2"
    client.close()
