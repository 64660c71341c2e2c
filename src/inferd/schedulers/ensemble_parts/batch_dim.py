"""BatchDim: a tensor goes from a model that batches to one that does not, or the other way.

Triton's rules (core, ensemble scheduler): two ends of a tensor fit if their dims agree without
their batch dims, or if their full shapes do. In the first case a tensor gets a batch dim of 1, or
loses it; in the second it passes as it is. Which case it is shows the tensor itself, since its
number of dims may be another than the configurations say. A batch of several items is never cut:
a model without a batch dim that takes one item refuses it, by its shape.
"""

Shape = tuple[int, ...]


class BatchDim:
    """What happens to the shape of a tensor on its way to a reader with `dims`, batch dim apart.

    `adds` says that the reader batches and the writer does not; otherwise it is the other way.
    """

    __slots__ = ("adds", "dims")

    def __init__(self, dims: Shape, *, adds: bool) -> None:
        self.dims = dims
        self.adds = adds

    def of(self, shape: Shape) -> Shape:
        """Return `shape` as the reader takes it, or as it is if that cannot be."""
        # Ambiguous shapes are taken as items: the dims without batch dim are what the configuration
        # says.
        is_item = agree(self.dims, shape)
        if self.adds:
            return (1, *shape) if is_item else shape
        # Only a batch of one can lose its dim; others are refused by the reader, by shape.
        return shape[1:] if not is_item and shape[:1] == (1,) else shape


def agree(one: Shape, other: Shape) -> bool:
    """Return whether a tensor can have both shapes; -1 is any size."""
    return len(one) == len(other) and all(
        a == b or -1 in (a, b) for a, b in zip(one, other, strict=True)
    )
