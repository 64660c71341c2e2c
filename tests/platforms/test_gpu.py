"""Models on a real GPU: collected where there is one, and a framework that can use it."""

import json
import urllib.request
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
import tritonclient.grpc

ON_GPU = "instance_group {{ kind: KIND_GPU count: {} gpus: [0] }}\n"
PLACE = 'parameters {{ key: "inferd_process" value: {{ string_value: "{}" }} }}\n'
TOLERANCE = 1e-3
"""GPUs multiply float32 with fewer bits, unless they are told otherwise."""


def ask(server, model, images):
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        image = tritonclient.grpc.InferInput("image", images.shape, "FP32")
        image.set_data_from_numpy(images)
        return client.infer(model, [image]).as_numpy("probability")


def check(server, model, digits):
    for batch_size in (1, 8, 3):
        images = digits.images()[:batch_size]
        expected = digits.classify(images)["probability"]
        np.testing.assert_allclose(ask(server, model, images), expected, atol=TOLERANCE)


if find_spec("torch") is not None and import_module("torch").version.cuda is not None:

    @pytest.mark.parametrize("place", ["worker", "server"])
    def test_pytorch_s_models_run_on_the_gpu(tmp_path, serve, example, digits, place):
        exporter = example("to_pytorch")
        exporter.export(tmp_path)
        for file in tmp_path.glob("*/config.pbtxt"):
            file.write_text(file.read_text() + ON_GPU.format(2) + PLACE.format(place))
        with serve(tmp_path) as server:
            for model in exporter.MODELS:
                check(server, model, digits)


if find_spec("tensorrt") is not None:

    @pytest.fixture
    def plan(example):
        """The classifier as a plan for the GPU that is here."""
        import tensorrt

        logger = tensorrt.Logger(tensorrt.Logger.ERROR)
        builder = tensorrt.Builder(logger)
        network = builder.create_network(0)
        parser = tensorrt.OnnxParser(network, logger)
        assert parser.parse(example("to_onnx").FILE.read_bytes()), parser.get_error(0)
        settings, profile = builder.create_builder_config(), builder.create_optimization_profile()
        profile.set_shape("image", (1, 8, 8), (8, 8, 8), (16, 8, 8))
        settings.add_optimization_profile(profile)
        return bytes(builder.build_serialized_network(network, settings))

    @pytest.mark.parametrize("count", [1, 2])
    def test_a_plan_runs_on_the_gpu(tmp_path, serve, digits, plan, count):
        folder = tmp_path / "digits" / "1"
        folder.mkdir(parents=True)
        (folder / "model.plan").write_bytes(plan)
        text = 'platform: "tensorrt_plan"\ndynamic_batching {}\n' + ON_GPU.format(count)
        (tmp_path / "digits" / "config.pbtxt").write_text(text)
        with serve(tmp_path) as server:
            check(server, "digits", digits)
            url = f"http://127.0.0.1:{server.http_port}/v2/models/digits/config"
            with urllib.request.urlopen(url) as answer:
                assert json.load(answer)["max_batch_size"] == 16
