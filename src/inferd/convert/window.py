"""Windows that slide over the spatial dims of a tensor: what all formats share."""

from dataclasses import dataclass
from typing import Any

from inferd.convert.graph import Graph, Value


@dataclass(slots=True)
class Window:
    """A window over the spatial dims; `pads` are those before each dim, then those after."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]

    @property
    def rank(self) -> int:
        """The number of dims of the tensor it slides over, including batch and channels."""
        return len(self.kernel) + 2

    def convolve(
        self, graph: Graph, op: str, operands: tuple[Value, Value, Value | None], **more: Any
    ) -> Value:
        """Return the output of `op`, Conv or ConvTranspose, for x, weight and an optional bias.

        Channels come first. `more` adds attributes to the window's own, or overrides them.
        """
        own = {
            "kernel_shape": self.kernel,
            "strides": self.strides,
            "dilations": self.dilations,
            "pads": self.pads,
        }
        return graph.add(op, *operands, rank=self.rank, **(own | more))


def channels_first(graph: Graph, value: Value, rank: int) -> Value:
    """Return `value`, which has `rank` dims, with its last dim, the channels, moved to second."""
    return graph.transpose(value, (0, rank - 1, *range(1, rank - 1)))


def channels_last(graph: Graph, value: Value, rank: int) -> Value:
    """Return `value`, which has `rank` dims, with its second dim, the channels, moved to last."""
    return graph.transpose(value, (0, *range(2, rank), 1))
