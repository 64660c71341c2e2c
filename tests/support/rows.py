"""RowsBackend: models that keep the rows of a batch apart, or do not, and say nothing of it."""

import time
from collections.abc import Sequence

import numpy as np

from inferd.backends.worker.hosting import HostedBackend
from inferd.config.model import ModelConfig
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest, InferResponse
from inferd.core.traits import Traits
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor


class RowsBackend:
    """Runs models from X, FP32 [n, 1], to Y, which is -X, as their parameter `rows` says.

    apart: each row by itself. mixed: the first row's in place of the last. random: any numbers.
    """

    traits = Traits(joins=True)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete."""
        del files
        return config

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> "RowsInstance":
        """See Backend.open."""
        del files, placement
        return RowsInstance(config.parameters["rows"])


class HostedRowsBackend(HostedBackend):
    """The same in worker processes."""

    def __init__(self) -> None:
        super().__init__("rows:RowsBackend", [])


class RowsInstance:
    """One such model."""

    def __init__(self, how: str) -> None:
        self._how = how
        self._random = np.random.default_rng()

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse]:
        """See Instance.execute."""
        [request] = requests
        time.sleep(0.001)  # so that requests pile up meanwhile
        given = request.inputs[0].numpy()
        result = -given
        if self._how == "mixed":
            result[-1] = result[0]
        elif self._how == "random":
            result = self._random.random(given.shape, np.float32)
        tensor = Tensor.from_numpy("Y", result.astype(np.float32), DataType.FP32)
        return [InferResponse(request.model, "1", request.id, [tensor])]

    def close(self) -> None:
        """See Instance.close."""
