"""Windows that slide over the spatial dims of a tensor: what every format has of them."""

from dataclasses import dataclass
from typing import Any

from inferd.convert.graph import Graph, Value


@dataclass(slots=True)
class Window:
    """Size and steps of a window along the spatial dims; `pads` are the heads, then the tails."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]

    @property
    def rank(self) -> int:
        """The number of dims of what it slides over, batch and channels among them."""
        return len(self.kernel) + 2

    def convolve(
        self, graph: Graph, op: str, operands: tuple[Value, Value, Value | None], **more: Any
    ) -> Value:
        """Return what `op`, Conv or ConvTranspose, makes of x, weight and perhaps a bias.

        Channels come first. `more` are attributes beside its own, or in their place.
        """
        own = {
            "kernel_shape": self.kernel,
            "strides": self.strides,
            "dilations": self.dilations,
            "pads": self.pads,
        }
        return graph.add(op, *operands, rank=self.rank, **(own | more))


def channels_first(graph: Graph, value: Value, rank: int) -> Value:
    """Return `value`, of `rank` dims with the channels last, with the channels second."""
    return graph.transpose(value, (0, rank - 1, *range(1, rank - 1)))


def channels_last(graph: Graph, value: Value, rank: int) -> Value:
    """Return `value`, of `rank` dims with the channels second, with the channels last."""
    return graph.transpose(value, (0, *range(2, rank), 1))
