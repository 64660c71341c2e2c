"""BinaryReader: reads numbers, arrays and texts from a binary file in order, never past its end."""

import struct
from typing import Any

import numpy as np

from inferd.tensor.array import Array


class BinaryReader:
    """Reads little-endian `content` from its start. Raises ValueError if it is cut off."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def number(self, kind: str) -> Any:
        """Return a number in the `struct` format `kind`."""
        return struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))[0]

    def array(self, dtype: Any, count: int | None = None) -> Array:
        """Return `count` elements; by default an 8-byte count precedes them."""
        dtype = np.dtype(dtype)
        length = self.number("Q") if count is None else count
        return np.frombuffer(self.take(length * dtype.itemsize), dtype)

    def text(self) -> str:
        """Return a text preceded by its 8-byte length. Raises ValueError if it is not UTF-8."""
        return self.take(self.number("Q")).decode()

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        # Also below 0: lengths in the file are signed in some formats, and would step backwards.
        if not 0 <= size <= len(self.content) - self.at:
            msg = f"at byte {self.at}: {size} bytes expected, it has {len(self.content)} in all"
            raise ValueError(msg)
        self.at += size
        return self.content[self.at - size : self.at]
