"""Spec: datatype, shape and wire name of an input or output, beyond what a type can express."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spec:
    """Part of an annotation: `Annotated[np.ndarray, Spec("FP32", [-1, 4])]`.

    `datatype` is a name of the protocol (FP32, INT64, BYTES, ...). `shape` is the shape of the
    array that the function takes or returns, -1 for a variable dim; in a batched model the first
    dim is the batch, -1. `name` is the tensor's name for clients. Anything left out comes from the
    annotated type.
    """

    datatype: str = ""
    shape: Sequence[int] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        """Make the Spec hashable, as annotations in `... | None` must be."""
        if isinstance(self.shape, list):
            object.__setattr__(self, "shape", tuple(self.shape))
