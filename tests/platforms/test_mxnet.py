"""MXNet's own library, where it is installed, beside the conversion to ONNX."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import InferdError
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd_convert.mxnet.backend import MxnetBackend

DATA = Path(__file__).parents[1] / "data" / "mxnet"
NATIVE = {"inferd_mxnet_native": "true"}
IMAGE = ModelInput("data", DataType.FP32, (3, 16, 16))
SCORES = ModelOutput("softmax", DataType.FP32, (10,))
OUTPUTS = """
output { name: "digit" data_type: TYPE_INT64 dims: [1] }
output { name: "probability" data_type: TYPE_FP32 dims: [10] }
parameters { key: "inferd_mxnet_native" value { string_value: "true" } }
"""
CNN = ModelConfig("m", max_batch_size=8, input=(IMAGE,), output=(SCORES,), parameters=NATIVE)


@pytest.fixture
def opened(tmp_path):
    """opened(name, configuration, symbol changed by this) is an instance."""
    made = []

    def make(name, config, change=lambda text: text):
        folder = tmp_path / str(len(made)) / "1"
        folder.mkdir(parents=True)
        for ending in ("-symbol.json", "-0000.params"):
            shutil.copy(DATA / f"{name}{ending}", folder / f"model{ending}")
        file = folder / "model-symbol.json"
        file.write_text(change(file.read_text()))
        files = ModelFiles(folder.parent, 1, folder, file)
        backend = MxnetBackend()
        made.append(backend.open(files, backend.complete(files, config), Placement("m_0")))
        return made[-1]

    yield make
    for instance in made:
        instance.close()


def request(**arrays):
    kinds = {"float32": DataType.FP32, "int32": DataType.INT32}
    tensors = [Tensor.from_numpy(name, a, kinds[str(a.dtype)]) for name, a in arrays.items()]
    return InferRequest("m", inputs=tensors)


def test_answers_are_mxnet_s(opened):
    [answer] = opened("cnn", CNN).execute([request(data=np.load(DATA / "input.npy"))])
    expected = np.load(DATA / "output.npy")  # made on another CPU, which rounds otherwise
    np.testing.assert_allclose(answer.outputs[0].numpy(), expected, rtol=0, atol=1e-6)


def test_requests_of_one_execution_share_a_batch(opened):
    images, scores = np.load(DATA / "input.npy"), np.load(DATA / "output.npy")
    requests = [request(data=images[:1]), request(data=images), request(data=images[1:])]
    answers = [one.outputs[0].numpy() for one in opened("cnn", CNN).execute(requests)]
    for answer, wanted in zip(answers, (scores[:1], scores, scores[1:]), strict=True):
        np.testing.assert_allclose(answer, wanted, atol=1e-6)


def test_shapes_may_change_more_often_than_predictors_are_kept(opened):
    vector = [ModelInput(f"INPUT{n}", DataType.FP32, (-1,)) for n in (0, 1)]
    sums = ModelOutput("OUTPUT1", DataType.FP32, (-1,))
    instance = opened(
        "addsub", ModelConfig("m", input=tuple(vector), output=(sums,), parameters=NATIVE)
    )
    for size in (1, 2, 3, 4, 5, 6, 1, 2):
        a, b = np.arange(size, dtype=np.float32), np.ones(size, np.float32)
        [answer] = instance.execute([request(INPUT0=a, INPUT1=b)])
        assert np.array_equal(answer.outputs[0].numpy(), a - b)


def test_integers_stay_exact(opened):
    number = ModelInput("d", DataType.INT32, (-1,))
    same = ModelOutput("_plusscalar0_output", DataType.INT32, (-1,))
    instance = opened("int32", ModelConfig("m", input=(number,), output=(same,), parameters=NATIVE))
    given = np.int32([2**30 + 1, -(2**31)])
    [answer] = instance.execute([request(d=given)])
    assert np.array_equal(answer.outputs[0].numpy(), given)


def test_an_operator_that_cannot_be_converted_is_run_by_the_library(opened):
    def smooth(text):
        return text.replace('"op": "Activation"', '"op": "smooth_l1"').replace(
            '{"act_type": "relu"}', '{"scalar": "1.0"}'
        )

    images = np.load(DATA / "input.npy")
    [answer] = opened("cnn", replace(CNN, parameters={}), smooth).execute([request(data=images)])
    found = answer.outputs[0].numpy()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    assert np.abs(found - np.load(DATA / "output.npy")).max() > 1e-3


def test_types_that_onnx_has_no_operator_for_are_run_by_the_library(opened):
    def rounded(text):
        return text.replace('"_plus_scalar"', '"rint"').replace('"scalar": "0"', '"unused": "0"')

    number = ModelInput("d", DataType.INT32, (-1,))
    same = ModelOutput("_plusscalar0", DataType.INT32, (-1,))
    instance = opened("int32", ModelConfig("m", input=(number,), output=(same,)), rounded)
    given = np.int32([7, -3])
    [answer] = instance.execute([request(d=given)])
    assert np.array_equal(answer.outputs[0].numpy(), given)


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_clients_get_the_same_digits_from_the_library(tmp_path, serve, example, digits, module):
    example("to_mxnet").export(tmp_path)
    file = tmp_path / "digits_mxnet" / "config.pbtxt"
    file.write_text(file.read_text() + OUTPUTS)
    with serve(tmp_path) as server:
        port = server.http_port if module is tritonclient.http else server.grpc_port
        with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
            for batch_size in (1, 8):
                images = digits.images()[:batch_size]
                image = module.InferInput("image", images.shape, "FP32")
                image.set_data_from_numpy(images)
                answer, expected = client.infer("digits_mxnet", [image]), digits.classify(images)
                assert answer.as_numpy("digit").tolist() == expected["digit"].tolist()
                found = answer.as_numpy("probability")
                np.testing.assert_allclose(found, expected["probability"], atol=2e-6)


def test_what_mxnet_says_is_told_without_its_stack(opened):
    wrong = replace(CNN, input=(replace(IMAGE, dims=(4, 16, 16)),))
    instance = opened("cnn", wrong)
    [error] = instance.execute([request(data=np.zeros((1, 4, 16, 16), np.float32))])
    assert isinstance(error, InferdError)
    assert "MXNet: " in error.message
    assert "Stack" not in error.message
    assert ".cc" not in error.message
