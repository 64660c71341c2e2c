"""Places: outputs that ONNX Runtime writes straight into a client's shared memory."""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from inferd.backends.onnx.bound import run_bound
from inferd.config.model import ModelConfig, ModelOutput
from inferd.core.request import InferRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType


class Places:
    """Finds the outputs of a request that `session` may write directly to their places.

    Those are outputs whose shape is known before the model runs. Dims that only the file declares
    count once an answer has had them. The engine copies the others to their places afterwards.
    What `session` raises for wrong inputs is `invalid`.
    """

    def __init__(self, session: Any, config: ModelConfig, invalid: type[Exception]) -> None:
        self._session = session
        self._invalid = invalid
        self._is_batched = config.max_batch_size > 0
        datatypes = [t.datatype for t in config.input] + [t.datatype for t in config.output]
        self._known: dict[str, ModelOutput] = {}
        self._declared: dict[str, ModelOutput] = {}  # not seen yet
        # Text has no memory to write to, and BF16 takes another path.
        if DataType.BYTES not in datatypes and DataType.BF16 not in datatypes:
            fixed = [output for output in config.output if -1 not in output.dims]
            self._known = {output.name: output for output in fixed if not output.is_declared}
            self._declared = {output.name: output for output in fixed if output.is_declared}

    def runner(self, request: InferRequest) -> Any:
        """Return a Run (see instance.py) for `request`; None if no output can be placed."""
        arrays: dict[str, Array] = {}
        for wanted in request.outputs:
            declared = self._known.get(wanted.name)
            if wanted.place is None or declared is None:
                continue
            shape = declared.dims
            # Every input of a model that batches has the batch dim
            # first (RequestCheck compares them).
            if self._is_batched:
                shape = request.inputs[0].shape[:1] + shape
            view, dtype = wanted.place.view, declared.datatype.numpy
            # What does not fit runs into memory of its own; the engine
            # then says how much is needed.
            if 0 < prod(shape) * dtype.itemsize <= len(view):
                array: Array = np.ndarray(shape, dtype, view)
                # A client may choose any offset. Unaligned inputs were tried and work; kernels that
                # write whole vectors to an unaligned place were not.
                if array.flags.aligned:
                    arrays[wanted.name] = array
        # Without arrays, too, while dims are unseen: only a run through here can learn them.
        return partial(self._run, arrays) if arrays or self._declared else None

    def _run(
        self, arrays: dict[str, Array], names: list[str], feed: dict[str, Array], options: Any
    ) -> Sequence[Array]:
        """Run into `arrays`, and note which outputs have the dims that the file declares."""
        try:
            found = _run_into(self._session, arrays, names, feed, options)
        # The inputs were wrong, so the run says nothing about the outputs' dims.
        except self._invalid:
            raise
        except Exception:
            # An output may have had other dims than before: no more is foretold of any.
            self._known = {name: one for name, one in self._known.items() if not one.is_declared}
            raise
        for name, array in zip(names, found, strict=True):
            output = self._declared.pop(name, None)
            if output is not None and array.shape[1 if self._is_batched else 0 :] == output.dims:
                self._known[name] = output
        return found


def _run_into(
    session: Any, arrays: dict[str, Array], names: list[str], feed: dict[str, Array], options: Any
) -> Sequence[Array]:
    """Run, writing the outputs in `arrays` there; the others are new arrays."""
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    for name in names:
        if name in arrays:
            array = arrays[name]
            memory = (array.dtype, array.shape, array.__array_interface__["data"][0])
            binding.bind_output(name, "cpu", 0, *memory)
        else:
            binding.bind_output(name)
    run_bound(session, binding, options)
    return [
        arrays[name] if name in arrays else value.numpy()
        for name, value in zip(names, binding.get_outputs(), strict=True)
    ]
