"""Bound memory: small requests that are alike run without creating values for each.

For every run ONNX Runtime converts a dictionary of arrays to its values, and its values back to
arrays: half the cost of a tiny model. A binding keeps values over memory of ours, into which a
request's inputs are copied and out of which its outputs are copied. Requests of one likeness have
the same shapes, so the memory fits, unless output shapes depend on computed values: then ONNX
Runtime refuses to write there, the request runs unbound, and its likeness is never bound again.
The same goes for a likeness whose first bound run gives other results than the run before.

A binding serves one run at a time: a request takes it and gives it back, or else runs unbound.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inferd.config.model import ModelConfig
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

MOST_BYTES = 4096
"""Of inputs and outputs together; beyond this, copying costs more than creating a value."""

FIRST_RUNS = 4
"""How many requests of a likeness run before it is bound."""

MOST_LIKENESSES = 64

_NEVER = -1
_CPU = ["CPUExecutionProvider"]


def run_bound(session: object, binding: object, options: object) -> None:
    """Run `session` with an IOBinding and RunOptions, in the cheapest way."""
    call, bound = _bound_call(session, binding)
    call(bound, options)


def _bound_call(session: Any, binding: Any) -> tuple[Callable[[Any, Any], None], Any]:
    """Return the method that runs `session` bound, and its argument for `binding`.

    The public method costs twenty times as much as the private one that it calls; it is the
    fallback should that disappear.
    """
    run = getattr(getattr(session, "_sess", None), "run_with_iobinding", None)
    if run is None:
        return session.run_with_iobinding, binding
    return run, binding._iobinding


class Bound:
    """One binding: `names` are its outputs."""

    def __init__(
        self, session: Any, feed: dict[str, Array], names: list[str], arrays: Sequence[Array]
    ) -> None:
        self.names = names
        # Of the run before: whether the outputs of an equal likeness
        # always have them shows in the runs.
        self.shapes = [array.shape for array in arrays]
        binding = session.io_binding()
        self._inputs: list[memoryview] = []
        for name, given in feed.items():
            array = np.empty_like(given)
            binding.bind_cpu_input(name, array)
            self._inputs.append(memoryview(array.data).cast("B"))
        self._outputs: list[memoryview] = []
        for name, like in zip(names, arrays, strict=True):
            array = np.empty_like(like)
            # A fixed address: with a larger output, ONNX Runtime fails
            # rather than allocate another.
            memory = (array.dtype, array.shape, array.__array_interface__["data"][0])
            binding.bind_output(name, "cpu", 0, *memory)
            self._outputs.append(memoryview(array.data).cast("B"))
        self._run, self._binding = _bound_call(session, binding)

    def run(self, tensors: list[Tensor], options: Any) -> list[bytes]:
        """Run the model on `tensors`, in the order they were bound; return its outputs' bytes.

        Raises ValueError for tensors that do not fit, and whatever the session raises.
        """
        inputs = self._inputs
        if len(tensors) != len(inputs):
            raise ValueError(f"{len(inputs)} inputs are bound, there are {len(tensors)}")
        for index, tensor in enumerate(tensors):
            # Assigning to a slice of a memoryview raises ValueError for another
            # length, and copies nothing then: a request can neither overrun the memory
            # nor leave a remainder of the one before.
            inputs[index][:] = tensor.data
        self._run(self._binding, options)
        # Copied at once: the next run of this likeness writes to the same memory.
        return [output.tobytes() for output in self._outputs]


class Bindings:
    """The bindings of one session, by the likeness of requests."""

    def __init__(self, session: Any, config: ModelConfig) -> None:
        self._session = session
        datatypes = [t.datatype for t in config.input] + [t.datatype for t in config.output]
        # Text has no memory to bind; BF16 and GPUs take other paths.
        is_usual = DataType.BYTES not in datatypes and DataType.BF16 not in datatypes
        self._may_bind = is_usual and session.get_providers() == _CPU
        self._free: dict[object, Bound] = {}
        self._runs: dict[object, int] = {}  # unbound runs by likeness, or _NEVER

    def take(self, batch_key: object) -> Bound | None:
        """Take the binding for a request of that likeness; return None if there is none."""
        # pop() is atomic under the interpreter's lock: of two threads, one gets it, the other
        # runs unbound, and no lock is needed.
        return self._free.pop(batch_key, None)

    def give_back(self, batch_key: object, bound: Bound) -> None:
        """Make `bound` available to the next request."""
        self._free[batch_key] = bound

    def forbid(self, batch_key: object) -> None:
        """Never bind this likeness again."""
        self._runs[batch_key] = _NEVER

    def note_run(
        self,
        batch_key: object,
        tensors: list[Tensor],
        names: list[str],
        arrays: Sequence[Array],
        options: object,
    ) -> None:
        """Note that a request ran unbound, with these outputs; the next one may be bound."""
        count = self._runs.get(batch_key, 0)
        if count == _NEVER or not self._may_bind:
            return
        # Clients choose shapes, hence likenesses. Forgetting all now and then is bounded, too,
        # and needs no record of which was used last.
        if len(self._runs) >= MOST_LIKENESSES and not count:
            self._runs.clear()
            self._free.clear()
        self._runs[batch_key] = count = count + 1
        if count != FIRST_RUNS:
            return
        # Before the trial, and for good if it fails: a likeness is bound once or never.
        self._runs[batch_key] = _NEVER
        feed = {tensor.name: tensor.numpy() for tensor in tensors}
        if not _is_small([*feed.values(), *arrays]):
            return
        try:
            bound = Bound(self._session, feed, names, arrays)
            again = bound.run(tensors, options)
        except Exception:  # noqa: BLE001  only a trial: the request already has its answer
            return
        # Random operators, and outputs that alias an input, differ
        # here: only the unbound run is right.
        if all(a.tobytes() == b for a, b in zip(arrays, again, strict=True)):
            self.give_back(batch_key, bound)


def _is_small(arrays: Sequence[Array]) -> bool:
    # An empty array has no memory whose address could be bound.
    return 0 not in [a.nbytes for a in arrays] and sum(a.nbytes for a in arrays) <= MOST_BYTES
