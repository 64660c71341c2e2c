"""Caffe2 and MXNet models under Triton's clients."""

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

DATA = Path(__file__).parents[1] / "data"


@dataclass
class Format:
    """A format's network as its framework wrote it: images to scores."""

    platform: str
    backend: str
    size: int
    output: str
    files: dict[str, str]

    @property
    def data(self):
        """The folder of what the framework wrote."""
        return DATA / self.backend

    @property
    def images(self):
        """Two images."""
        return np.load(self.data / "input.npy")

    @property
    def scores(self):
        """What the framework made of them."""
        return np.load(self.data / "output.npy")

    def config(self):
        """A configuration that says everything."""
        return f"""
            platform: "{self.platform}"
            max_batch_size: 8
            input {{ name: "data" data_type: TYPE_FP32 dims: [ 3, {self.size}, {self.size} ] }}
            output {{
              name: "{self.output}" data_type: TYPE_FP32 dims: [ 10 ] label_filename: "labels.txt"
            }}
            dynamic_batching {{ max_queue_delay_microseconds: 500 }}
        """


CAFFE2 = Format(
    *("caffe2_netdef", "caffe2", 32, "prob"),
    files={"model.netdef": "model.netdef", "init_model.netdef": "init_model.netdef"},
)
MXNET = Format(
    *("mxnet_mxnet", "mxnet", 16, "softmax"),
    files={"cnn-symbol.json": "model-symbol.json", "cnn-0000.params": "model-0000.params"},
)
FORMATS = pytest.mark.parametrize("form", [CAFFE2, MXNET], ids=["caffe2", "mxnet"])
COUNT = 8


@pytest.fixture(scope="module")
def place(tmp_path_factory, start_for_module):
    """A server of each format's network, once with a configuration and once without."""
    root = tmp_path_factory.mktemp("converted")
    for form in (CAFFE2, MXNET):
        for name in (form.backend, f"{form.backend}_bare"):
            (root / name / "1").mkdir(parents=True)
            for source, target in form.files.items():
                shutil.copy(form.data / source, root / name / "1" / target)
        (root / form.backend / "config.pbtxt").write_text(form.config())
        labels = "".join(f"label{number}\n" for number in range(10))
        (root / form.backend / "labels.txt").write_text(labels)
    return start_for_module(models=root)


@pytest.fixture(params=[tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def client(request, place):
    """A client over REST or gRPC; client.package is the package it is from."""
    package = request.param
    made = package.InferenceServerClient(place.http if package is tritonclient.http else place.grpc)
    made.package = package
    yield made
    made.close()


def scores(client, form, images, model=None, **options):
    given = client.package.InferInput("data", images.shape, "FP32")
    given.set_data_from_numpy(images)
    wanted = client.package.InferRequestedOutput(form.output, **options)
    answer = client.infer(model or form.backend, [given], outputs=[wanted])
    return answer.as_numpy(form.output)


@FORMATS
@pytest.mark.parametrize("ending", ["", "_bare"])
@pytest.mark.parametrize("count", [1, 2])
def test_answers_are_the_framework_s(client, form, ending, count):
    found = scores(client, form, form.images[:count], form.backend + ending)
    np.testing.assert_allclose(found, form.scores[:count], atol=2e-6)


@FORMATS
def test_eight_images_are_one_batch(client, form):
    found = scores(client, form, np.repeat(form.images, COUNT // 2, axis=0))
    np.testing.assert_allclose(found, np.repeat(form.scores, COUNT // 2, axis=0), atol=2e-6)


@FORMATS
def test_requests_that_share_a_batch_get_their_own_answers(place, form):
    answers = {}
    images = form.images  # read once: np.load parses Python, which threads of 3.11 do not like

    def ask(number):
        client = tritonclient.http.InferenceServerClient(place.http)
        client.package = tritonclient.http
        answers[number] = scores(client, form, images[number % 2 :][:1])
        client.close()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(COUNT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number in range(COUNT):
        wanted = form.scores[number % 2 :][:1]
        np.testing.assert_allclose(answers[number], wanted, atol=2e-6)


@FORMATS
def test_classes_come_with_their_labels(client, form):
    [[best]] = scores(client, form, form.images[:1], class_count=1)
    assert best.decode().endswith(f":label{form.scores[0].argmax()}")


@FORMATS
def test_metadata_tell_the_protocol_s_name_and_what_the_files_tell(place, form):
    client = tritonclient.http.InferenceServerClient(place.http)
    metadata = client.get_model_metadata(f"{form.backend}_bare")
    assert metadata["platform"] == form.platform
    assert metadata["inputs"] == [{"name": "data", "datatype": "FP32", "shape": [-1, 3, -1, -1]}]
    assert metadata["outputs"] == [{"name": form.output, "datatype": "FP32", "shape": [-1, 10]}]
    assert client.get_model_config(f"{form.backend}_bare")["backend"] == form.backend
    client.close()
