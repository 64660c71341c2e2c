"""The table of platforms."""

import pytest

from inferd.config.model import ModelConfig
from inferd.config.platform import (
    PLATFORMS,
    filename_of,
    platform_named,
    platform_of_file,
    platforms_of,
    reported_platform,
)

PROTOCOL = {
    "tensorrt_plan": ("tensorrt", "model.plan"),
    "tensorflow_graphdef": ("tensorflow", "model.graphdef"),
    "tensorflow_savedmodel": ("tensorflow", "model.savedmodel"),
    "onnx_onnxv1": ("onnxruntime", "model.onnx"),
    "pytorch_torchscript": ("pytorch", "model.pt"),
    "mxnet_mxnet": ("mxnet", "model-symbol.json"),
    "caffe2_netdef": ("caffe2", "model.netdef"),
}


@pytest.mark.parametrize(("name", "runs"), PROTOCOL.items())
def test_every_platform_of_the_protocol_has_a_backend_and_a_file(name, runs):
    platform = platform_named(name)
    assert (platform.backend, platform.filename) == runs
    assert platform.reported == name
    assert reported_platform(ModelConfig("m", backend=runs[0], default_model_filename=runs[1])) == (
        name
    )


@pytest.mark.parametrize(
    ("triton", "protocol"),
    [("onnxruntime_onnx", "onnx_onnxv1"), ("pytorch_libtorch", "pytorch_torchscript")],
)
def test_tritons_names_mean_the_same_platforms(triton, protocol):
    assert platform_named(triton) is platform_named(protocol)


def test_no_name_means_two_platforms():
    names = [name for platform in PLATFORMS for name in platform.names]
    assert len(names) == len(set(names))
    assert platform_named("") is None
    assert platform_named("foo") is None


def test_a_platform_the_configuration_names_is_echoed():
    config = ModelConfig("m", platform="onnxruntime_onnx", backend="onnxruntime")
    assert reported_platform(config) == "onnxruntime_onnx"


@pytest.mark.parametrize(
    ("backend", "reported"),
    [
        ("onnxruntime", "onnx_onnxv1"),
        ("python", "inferd_python"),
        ("identity", "inferd_identity"),
        ("mine", "inferd_mine"),
    ],
)
def test_a_backend_alone_is_reported_by_project_and_format(backend, reported):
    config = ModelConfig("m", backend=backend, default_model_filename="of.mine")
    assert reported_platform(config) == reported


def test_the_file_tells_apart_what_one_backend_runs():
    config = ModelConfig("m", backend="pytorch", default_model_filename="model.pt2")
    assert reported_platform(config) == "torch_aoti"


@pytest.mark.parametrize(
    ("filename", "reported"),
    [
        ("resnet.onnx", "onnx_onnxv1"),
        ("a.pt", "pytorch_torchscript"),
        ("a.pt2", "torch_aoti"),
        ("net-symbol.json", "mxnet_mxnet"),
        ("model.savedmodel", "tensorflow_savedmodel"),
    ],
)
def test_a_file_tells_its_platform_by_its_ending(filename, reported):
    assert platform_of_file(filename).reported == reported


@pytest.mark.parametrize("filename", ["", "model", "a.txt", "onnx", "net.json"])
def test_other_files_tell_nothing(filename):
    assert platform_of_file(filename) is None


@pytest.mark.parametrize(
    ("platform", "backend", "filename"),
    [
        ("tensorflow_graphdef", "tensorflow", "model.graphdef"),
        ("", "tensorflow", "model.savedmodel"),
        ("", "python", "model.py"),
        ("", "identity", ""),
        ("", "mine", ""),
        ("ensemble", "", ""),
    ],
)
def test_the_usual_file_goes_by_platform_then_backend(platform, backend, filename):
    assert filename_of(platform, backend) == filename


def test_a_backend_may_run_several_platforms():
    assert [p.reported for p in platforms_of("pytorch")] == ["pytorch_torchscript", "torch_aoti"]
    assert platforms_of("mine") == ()
