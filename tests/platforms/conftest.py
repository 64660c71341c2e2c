"""Tests with real frameworks: `make test-platforms` runs them where each is installed.

A file here is collected only where what it needs is there, so `make test` passes over them, but for
the platforms that the core runs by itself.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from server_thread import server_in_thread

from inferd.config.server import ServerConfig

sys.path.append(str(Path(__file__).parent))  # for asking.py

EXAMPLES = Path(__file__).parents[2] / "examples" / "platforms"

NEEDS = {
    "test_pytorch.py": ("torch",),
    "test_pytorch_arguments.py": ("torch",),
    "test_pytorch_modules.py": ("torch",),
    "test_pytorch_rows.py": ("torch",),
    "test_pytorch_scheduled.py": ("torch",),
    "test_tensorflow.py": ("tensorflow",),
    "test_tensorflow_openvino.py": ("tensorflow", "openvino"),
    "test_openvino.py": ("openvino",),
    "test_litert.py": ("ai_edge_litert",),
    "test_litert_files.py": ("ai_edge_litert", "flatbuffers"),
    "test_sklearn.py": ("sklearn", "skops"),
    "test_estimators.py": ("sklearn", "skops", "xgboost", "lightgbm"),
    "test_boosters.py": ("sklearn", "xgboost", "lightgbm"),
    "test_catboost.py": ("catboost",),
    "test_columns.py": ("sklearn", "xgboost", "lightgbm", "catboost", "pandas"),
    "test_frames.py": ("sklearn", "xgboost", "lightgbm", "pandas"),
    "test_all_estimators.py": ("sklearn", "skops"),
    "test_translated.py": ("sklearn", "skops", "xgboost", "lightgbm", "skl2onnx"),
    "test_transformers.py": ("torch", "transformers"),
    "test_trees.py": ("xgboost", "lightgbm"),
    "test_mxnet.py": ("mxnet",),
    "test_kserve_tables.py": ("sklearn", "skops", "xgboost", "lightgbm", "catboost"),
    "test_kserve_tensorflow.py": ("tensorflow",),
}
"""Test file -> the packages it needs."""

HOSTED = ("to_onnx", "to_pytorch", "to_tensorflow", "to_openvino", "to_litert")
"""Those whose models run in worker processes, too."""

collect_ignore = [name for name, needed in NEEDS.items() if None in map(find_spec, needed)]
if not any(map(find_spec, ("torch", "tensorflow", "openvino", "ai_edge_litert"))):
    collect_ignore.append("test_process.py")
if not Path("/proc/driver/nvidia/gpus").is_dir() or not any(map(find_spec, ("torch", "tensorrt"))):
    collect_ignore.append("test_gpu.py")


def load(name):
    """Return a module of examples/platforms."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return import_module(name)


_present = load("digits").exporters()
_hosted = [name for name in _present if name in HOSTED]


def pytest_generate_tests(metafunc):
    if "digits_model" in metafunc.fixturenames:
        names = [model for name in _present for model in load(name).MODELS]
        metafunc.parametrize("digits_model", names)
    if "worker_model" in metafunc.fixturenames:
        metafunc.parametrize("worker_model", [one for name in _hosted for one in load(name).MODELS])
    if "hosted_framework" in metafunc.fixturenames:
        metafunc.parametrize("hosted_framework", _hosted)


@pytest.fixture(scope="session")
def digits():
    """The classifier as numpy computes it."""
    return load("digits")


@pytest.fixture(scope="session")
def example():
    """example(name) is a module of examples/platforms."""
    return load


@pytest.fixture(scope="session")
def exporters():
    """The modules of examples/platforms that can export here."""
    return _present


@pytest.fixture(scope="session")
def hosted():
    """The modules of examples/platforms whose models run in worker processes, too."""
    return _hosted


@pytest.fixture(scope="session", name="serve")
def serving():
    """serve(repository) is a context with a server of its models."""
    return serve


@pytest.fixture(scope="module")
def digits_server(tmp_path_factory):
    """A server with the classifier on every platform whose framework is installed.

    Each runs where it does by default: those of PyTorch and TensorFlow in workers.
    """
    repository = tmp_path_factory.mktemp("digits")
    for name in _present:
        load(name).export(repository)
    for file in repository.glob("*/config.pbtxt"):  # TensorFlow would have two of each
        file.write_text(file.read_text() + "instance_group { count: 1 }\n")
    with serve(repository) as server:
        yield server


def serve(repository):
    """Return a context with a server of the models in `repository`, broken ones among them."""
    return server_in_thread(
        ServerConfig(
            model_repository=(str(repository),),
            http_port=0,
            grpc_port=0,
            allow_metrics=False,
            strict_readiness=False,
            exit_on_error=False,
        )
    )
