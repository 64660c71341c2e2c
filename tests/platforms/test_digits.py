"""One classifier on every installed platform: the answers are the same."""

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from inferd.config.platform import PLATFORMS

TOLERANCE = 2e-6

CLIENTS = {"rest": tritonclient.http, "grpc": tritonclient.grpc}


@pytest.fixture(params=CLIENTS)
def client(request, digits_server):
    """An unmodified client of each protocol, and its module."""
    port = digits_server.http_port if request.param == "rest" else digits_server.grpc_port
    module = CLIENTS[request.param]
    with module.InferenceServerClient(f"127.0.0.1:{port}") as made:
        yield made, module


def ask(client, model, images, outputs=("digit", "probability")):
    client, module = client
    image = module.InferInput("image", images.shape, "FP32")
    image.set_data_from_numpy(images)
    wanted = [module.InferRequestedOutput(name) for name in outputs]
    answer = client.infer(model, [image], outputs=wanted)
    return {name: answer.as_numpy(name) for name in outputs}


@pytest.mark.parametrize("batch_size", [1, 8])
def test_every_platform_sees_the_same_digits(client, digits_model, digits, batch_size):
    images = digits.images()[:batch_size]
    got, expected = ask(client, digits_model, images), digits.classify(images)
    assert got["digit"].tolist() == expected["digit"].tolist()
    assert got["probability"].dtype == np.float32
    np.testing.assert_allclose(got["probability"], expected["probability"], atol=TOLERANCE)


def test_one_output_may_be_asked_for(client, digits_model, digits):
    images = digits.images()[:2]
    got = ask(client, digits_model, images, ("digit",))
    assert got["digit"].tolist() == digits.classify(images)["digit"].tolist()


def test_metadata_name_a_platform_and_the_tensors(digits_server, digits_model):
    url = f"http://127.0.0.1:{digits_server.http_port}/v2/models/{digits_model}"
    with urllib.request.urlopen(url) as answer:
        metadata = json.load(answer)
    assert metadata["platform"] in {platform.reported for platform in PLATFORMS}
    tensors = [*metadata["inputs"], *metadata["outputs"]]
    assert [(t["name"], t["datatype"], t["shape"]) for t in tensors] == [
        ("image", "FP32", [-1, 8, 8]),
        ("digit", "INT64", [-1, 1]),
        ("probability", "FP32", [-1, 10]),
    ]


@pytest.mark.slow
def test_requests_at_once_share_a_batch(digits_server, digits_model, digits):
    images = digits.images()
    url = f"127.0.0.1:{digits_server.http_port}"

    def one(number):
        with tritonclient.http.InferenceServerClient(url) as client:
            return ask((client, tritonclient.http), digits_model, images[number : number + 1])

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(16)))
    got = np.concatenate([answer["probability"] for answer in answers])
    np.testing.assert_allclose(got, digits.classify(images)["probability"], atol=TOLERANCE)
    with tritonclient.http.InferenceServerClient(url) as client:
        [stats] = client.get_inference_statistics(digits_model)["model_stats"]
    assert any(one["batch_size"] > 1 for one in stats["batch_stats"])


@pytest.mark.parametrize(
    ("shape", "datatype", "name"),
    [((1, 8, 9), "FP32", "image"), ((1, 8, 8), "FP64", "image"), ((1, 8, 8), "FP32", "picture")],
)
def test_what_does_not_fit_never_gets_to_the_framework(
    client, digits_model, digits, shape, datatype, name
):
    made, module = client
    image = module.InferInput(name, shape, datatype)
    image.set_data_from_numpy(np.zeros(shape, "f4" if datatype == "FP32" else "f8"))
    with pytest.raises(Exception, match=f"{name}|{datatype}") as caught:
        made.infer(digits_model, [image])
    assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    images = digits.images()[:1]
    assert ask(client, digits_model, images)["digit"] == digits.classify(images)["digit"]
