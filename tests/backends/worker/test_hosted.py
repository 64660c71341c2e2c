"""Any backend's model in a process of its own."""

from pathlib import Path

import numpy as np
import pytest

from inferd.backends.worker.hosted import open_hosted
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import InferdError
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

TARGET = "inferd.backends.identity:IdentityBackend"
FILES = ModelFiles(Path("/"), 3, Path("/"), Path("/"))


def config(*outputs):
    return ModelConfig(
        "hosted",
        backend="identity",
        input=(ModelInput("INPUT0", DataType.FP32, (-1,)),),
        output=tuple(ModelOutput(name, DataType.FP32, (-1,)) for name in outputs),
    )


def request(array):
    return InferRequest("hosted", inputs=[Tensor("INPUT0", DataType.FP32, array.shape, array)])


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 5, 1_000_000])
def test_a_backend_answers_from_another_process(size):
    instance = open_hosted(TARGET, FILES, config("OUTPUT0"), Placement("p"))
    array = np.arange(size, dtype=np.float32)
    try:
        first, second = instance.execute([request(array), request(array + 1)])
    finally:
        instance.close()
    assert np.array_equal(first.outputs[0].numpy(), array)
    assert np.array_equal(second.outputs[0].numpy(), array + 1)
    assert first.version == "3"


@pytest.mark.slow
def test_what_the_backend_refuses_is_told():
    with pytest.raises(InferdError, match="as many outputs as inputs"):
        open_hosted(TARGET, FILES, config("OUTPUT0", "OUTPUT1"), Placement("p"))
