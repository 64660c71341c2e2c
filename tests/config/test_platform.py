"""The table of platforms."""

import pytest

from inferd.config.model import ModelConfig
from inferd.config.platform import (
    PLATFORMS,
    filename_of,
    filled_platform,
    platform_named,
    platform_of_file,
    platforms_of,
    reported_platform,
)

NAMES = {
    "tensorrt_plan": ("tensorrt", "model.plan"),
    "tensorflow_graphdef": ("tensorflow", "model.graphdef"),
    "tensorflow_savedmodel": ("tensorflow", "model.savedmodel"),
    "onnxruntime_onnx": ("onnxruntime", "model.onnx"),
    "pytorch_libtorch": ("pytorch", "model.pt"),
    "mxnet_mxnet": ("mxnet", "model-symbol.json"),
    "caffe2_netdef": ("caffe2", "model.netdef"),
}


@pytest.mark.parametrize(("name", "runs"), NAMES.items())
def test_every_platform_has_a_backend_a_file_and_a_name_that_is_reported(name, runs):
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
    config = ModelConfig("m", platform="onnx_onnxv1", backend="onnxruntime")
    assert reported_platform(config) == filled_platform(config) == "onnx_onnxv1"


@pytest.mark.parametrize(
    ("backend", "filename", "platform"),
    [
        ("onnxruntime", "", "onnxruntime_onnx"),
        ("onnxruntime", "of.mine", "onnxruntime_onnx"),
        ("tensorrt", "model.plan", "tensorrt_plan"),
        ("tensorflow", "", "tensorflow_savedmodel"),
        ("tensorflow", "old.graphdef", "tensorflow_graphdef"),
        ("pytorch", "", "pytorch_libtorch"),
        ("pytorch", "model.pt2", "torch_aoti"),
        ("pytorch", "of.mine.pt2", "torch_aoti"),
    ],
)
def test_where_a_backend_is_named_alone_the_platform_is_tritons(backend, filename, platform):
    config = ModelConfig("m", backend=backend, default_model_filename=filename)
    assert reported_platform(config) == filled_platform(config) == platform


@pytest.mark.parametrize(
    ("backend", "reported"),
    [
        ("python", "python"),
        ("identity", "identity"),
        ("openvino", "openvino"),
        ("fil", "fil"),
        ("mine", "mine"),
        ("sklearn", "sklearn_skops"),  # Triton has no such backend
    ],
)
def test_where_triton_has_no_name_the_backends_is_reported(backend, reported):
    config = ModelConfig("m", backend=backend)
    assert (reported_platform(config), filled_platform(config)) == (reported, "")


def test_a_runtime_in_python_does_not_change_the_platform():
    config = ModelConfig("m", backend="pytorch", runtime="model.py")
    assert reported_platform(config) == filled_platform(config) == "pytorch_libtorch"


@pytest.mark.parametrize(
    ("filename", "reported"),
    [
        ("resnet.onnx", "onnxruntime_onnx"),
        ("a.pt", "pytorch_libtorch"),
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
    assert [p.reported for p in platforms_of("pytorch")] == ["pytorch_libtorch", "torch_aoti"]
    assert platforms_of("mine") == ()
