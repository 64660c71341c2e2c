"""LinearBackend: models y = x @ weights + bias, whose file has one row of numbers per input.

The last row is the bias. The file tells the shapes, so that no configuration needs to.
"""

from collections.abc import Sequence

import numpy as np

from inferd.config.model import ModelConfig
from inferd.core.arrays import Array, ArrayInstance
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.rows import INDEPENDENT, Verdict
from inferd.core.signature import Declared, Signature, check_config, complete_config
from inferd.core.traits import Traits
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType

MAX_BATCH_SIZE = 64
"""The max_batch_size of a model whose configuration leaves it out."""

ROWS = Verdict(INDEPENDENT, "a product with a matrix keeps rows apart")


class LinearBackend:
    """Runs linear models; all instances of one share nothing and need nothing to be closed."""

    traits = Traits(is_bounded=True, is_concurrent=True, joins=True)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """Return `config` with input x, output y and their dims. Raises InvalidConfig."""
        signature = _signature(_read(files))
        completed = complete_config(config, signature, MAX_BATCH_SIZE)
        check_config(completed, signature)
        return completed

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> ArrayInstance:
        """Return one copy of the model, on the CPU wherever it is placed. Raises InvalidConfig."""
        del placement
        *weights, bias = _read(files)
        matrix = np.array(weights)

        def run(inputs: dict[str, Array], names: Sequence[str]) -> Sequence[Array]:
            return [inputs["x"] @ matrix + bias for _ in names]

        return ArrayInstance(config, files.version, run, verdict=ROWS)


def _read(files: ModelFiles) -> Array:
    try:
        numbers = np.loadtxt(files.file, np.float32, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        msg = f"model '{files.folder.name}': '{files.file.name}' is no table of numbers: {error}"
        raise InvalidConfig(msg) from error
    if len(numbers) < 2:
        msg = f"model '{files.folder.name}': '{files.file.name}' has fewer than two rows"
        raise InvalidConfig(msg)
    return numbers


def _signature(numbers: Array) -> Signature:
    rows, columns = numbers.shape
    x = Declared("x", "float32", (-1, rows - 1), DataType.FP32)
    y = Declared("y", "float32", (-1, columns), DataType.FP32)
    return Signature({"x": x}, {}, {"y": y})
