"""Spec: what a type cannot say of an input or output: its datatype, shape, and name on the wire."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spec:
    """Stands in an annotation: `Annotated[np.ndarray, Spec("FP32", [-1, 4])]`.

    `datatype` is a name of the protocol (FP32, INT64, BYTES, ...). `shape` is that of the array the
    function gets or gives, -1 for a dim that varies; of a batched model its first dim is the batch,
    -1. `name` is what clients call the tensor. What is left out is told by the type beside it.
    """

    datatype: str = ""
    shape: Sequence[int] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        """Make it hashable, as annotations in `... | None` must be."""
        if isinstance(self.shape, list):
            object.__setattr__(self, "shape", tuple(self.shape))
