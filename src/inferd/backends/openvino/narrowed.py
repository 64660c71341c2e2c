"""Narrowed: numbers of requests that OpenVINO would take for others.

On the CPU it computes all integers with 32 bits and FP64 as FP32. Larger numbers wrap around or
are cut to the largest, and nothing tells of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inferd.errors import InvalidRequest
from inferd.tensor.array import Array

_INT32 = np.iinfo(np.int32)
_FP32 = float(np.finfo(np.float32).max)
_WHOLE = {"i64": "INT64", "u64": "UINT64", "u32": "UINT32"}
_REAL = frozenset(("f16", "bf16", "f32", "f64"))

Limits = tuple[str, float, float]
"""A datatype, and the least and the greatest number of it that stay what they are."""


class Narrowed:
    """Checks the inputs of `model`, called `names` in its order."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        found = {name: _limits(port) for name, port in zip(names, model.inputs, strict=True)}
        self._limits = {name: limits for name, limits in found.items() if limits is not None}

    def check(self, feed: Mapping[str, Array]) -> None:
        """Raise InvalidRequest if a number is beyond what is computed."""
        for name, (datatype, least, greatest) in self._limits.items():
            array = feed[name]
            if not array.size:
                continue
            # Unlike min and max, these two overlook NaN.
            ends = np.fmin.reduce(array, axis=None), np.fmax.reduce(array, axis=None)
            if ends[0] < least or ends[1] > greatest:
                wrong = array[(array < least) | (array > greatest)][0]
                raise InvalidRequest(
                    f"input '{name}' has {wrong}, and OpenVINO computes {datatype} with 32 "
                    f"bits: expected {least} to {greatest}"
                )


def _limits(port: Any) -> Limits | None:
    """Return the limits of an input, None if each of its numbers stays what it is."""
    kind = port.get_element_type().get_type_name()
    if kind == "f64":
        users = [one for one in _users(port) if one.get_type_name() != "Result"]
        return ("FP64", -_FP32, _FP32) if users else None
    if kind not in _WHOLE or all(map(_is_exact, _users(port))):
        return None
    return _WHOLE[kind], int(_INT32.min), int(_INT32.max)


def _users(port: Any) -> list[Any]:
    return [one.get_node() for one in port.get_target_inputs()]


def _is_exact(node: Any) -> bool:
    """Return whether an operation sees all bits of an integer that it is given as an input."""
    if node.get_type_name() == "Convert":
        return node.get_output_element_type(0).get_type_name() in _REAL
    return bool(node.get_type_name() == "Result")
