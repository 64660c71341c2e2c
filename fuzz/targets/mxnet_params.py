"""MXNet's params files: lists of arrays."""

import struct

from corpus import files

from inferd.errors import InferdError
from inferd_convert.mxnet.params import read_params

_ARRAY = struct.pack("<Iiiqqiiiff", 0xF993FAC9, 0, 2, 1, 2, 1, 0, 0, 1.5, 0.0)

SEEDS = [
    *files("tests/data/mxnet/*.params"),
    struct.pack("<QQQ", 0x112, 0, 1) + _ARRAY + struct.pack("<QQ", 1, 5) + b"arg:w",
]


def target(data: bytes) -> bool:
    """Read; return whether it is such a list."""
    try:
        arrays = read_params(data, "m-0000.params")
    except InferdError:
        return False
    assert sum(array.nbytes for array in arrays.values()) <= len(data)
    return True
