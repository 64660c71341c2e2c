"""Libraries of operators: missing ones, files that are none, and one the test compiles."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from inferd.backends.onnx.backend import OnnxBackend
from inferd.config.model import ModelConfig
from inferd.core.interfaces import Placement
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InvalidConfig, Unsupported
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

CPU = Placement("m_0")
ALLOWED = {"inferd_allow_native_code": "true"}
CONFIG = ModelConfig("m", model_operations=("ops/lib.so",), parameters=ALLOWED)
# What ONNX Runtime looks for in such a library; null means that it went well.
SOURCE = "void *RegisterCustomOps(void *options, const void *api) { return 0; }"


@pytest.fixture
def library(add_sub):
    """The place where the model's library is to be."""
    file = add_sub.folder / "ops" / "lib.so"
    file.parent.mkdir()
    return file


@pytest.fixture
def compile_to(c_compiler):
    """compile_to(file) makes a library."""

    def make(file):
        command = [c_compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", file]
        subprocess.run(command, input=SOURCE.encode(), check=True)

    return make


def is_mapped(file):
    return str(file) in Path("/proc/self/maps").read_text()


def test_a_library_that_is_not_there_is_named(add_sub):
    for config in (CONFIG, replace(CONFIG, parameters={})):
        with pytest.raises(InvalidConfig) as caught:
            OnnxBackend().complete(add_sub, config)
        assert caught.value.message == (
            "model 'm': there is no file 'ops/lib.so' in the model's folder, which "
            "model_operations names as a library of operators"
        )


def test_a_library_is_loaded_only_if_the_configuration_allows_it(add_sub, library):
    library.touch()
    with pytest.raises(Unsupported) as caught:
        OnnxBackend().complete(add_sub, replace(CONFIG, parameters={}))
    assert caught.value.message == (
        "model 'm': the library of operators 'ops/lib.so' is compiled code, which is run only if "
        "parameter inferd_allow_native_code is true"
    )


def test_a_file_that_is_no_library_is_refused_by_name(add_sub, library):
    library.write_text("no library")
    with pytest.raises(BackendFailed) as caught:
        OnnxBackend().complete(add_sub, CONFIG)
    text = caught.value.message
    assert text.startswith(
        "model 'm': ONNX Runtime cannot load the library of operators 'ops/lib.so': "
    )
    assert str(add_sub.folder) not in text


def test_a_library_is_loaded_before_the_model(add_sub, library, compile_to):
    compile_to(library)
    backend = OnnxBackend()
    instance = backend.open(add_sub, backend.complete(add_sub, CONFIG), CPU)
    assert is_mapped(library)
    rows = [Tensor(name, DataType.FP32, (1, 4), bytes(16)) for name in ("A", "B")]
    [answer] = instance.execute([InferRequest("m", inputs=rows)])
    assert [one.name for one in answer.outputs] == ["SUM", "DIFF"]
    instance.close()


def test_a_library_replaced_on_disk_means_another_session(add_sub, library, compile_to):
    compile_to(library)
    backend = OnnxBackend()
    first = backend.open(add_sub, backend.complete(add_sub, CONFIG), CPU)
    library.unlink()
    compile_to(library)
    second = backend.open(add_sub, backend.complete(add_sub, CONFIG), CPU)
    assert first._loaded is not second._loaded
