"""Comparison of a converted model's answers with those of its library."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from inferd.backends.estimator.instance import array_of
from inferd.backends.estimator.model import PREDICT, PROBABILITY, LoadedModel
from inferd.errors import BackendFailed
from inferd.tensor.array import Array

TOLERANCE = 1e-4
"""How much a number may differ, as a share of it or, below 1, as it is, unless somebody says."""

Arrays = Mapping[str, Array]
"""Name of an output -> what it is, shape [rows, ...]."""


class Difference(NamedTuple):
    """The greatest difference in one output.

    `largest` is |got - want| / max(1, |want|); of labels, 1 if one differs and 0 if none does. The
    `row` has it; `differing` is how many rows differ by more than is tolerated.
    """

    output: str
    largest: float
    row: int
    got: Any
    want: Any
    differing: int

    def __str__(self) -> str:
        """Return the difference in words."""
        if not self.largest:
            return "all equal"
        return f"largest difference {self.largest:.1e} (row {self.row}: {self.got} for {self.want})"


def expected(model: LoadedModel, rows: Any, row_count: int, names: list[str]) -> Arrays:
    """Return what the library computes for `rows`, as `LoadedModel.rows` or `table` made them.

    Raises BackendFailed if it refuses them.
    """
    try:
        return {name: array_of(model.outputs[name].call(rows), name, row_count) for name in names}
    except model.faults as error:
        msg = f"the library does not take the rows that the models are compared on: {error}"
        raise BackendFailed(msg) from error


def differences(got: Arrays, want: Arrays, tolerance: float) -> list[Difference]:
    """Return the greatest difference in each output of `got`.

    Labels may differ where the two likeliest classes are as likely, within `tolerance`.
    """
    ties = _ties(want.get(PROBABILITY), tolerance)
    return [_difference(name, array, want[name], tolerance, ties) for name, array in got.items()]


def _ties(shares: Array | None, tolerance: float) -> Array | None:
    """Return for each row whether its two greatest shares are the same, None without shares."""
    if shares is None or shares.dtype.kind != "f" or shares.ndim != 2 or shares.shape[1] < 2:
        return None
    two = np.sort(shares, axis=1)[:, -2:]
    ties: Array = two[:, 1] - two[:, 0] <= tolerance
    return ties


def _difference(
    name: str, got: Array, want: Array, tolerance: float, ties: Array | None
) -> Difference:
    if got.size != want.size or len(got) != len(want):
        return Difference(name, np.inf, 0, f"shape {got.shape}", f"shape {want.shape}", len(want))
    # Converters add or leave out a last dim of 1.
    got = got.reshape(want.shape)
    if want.dtype.kind == "f" and got.dtype.kind == "f":
        apart = _apart(got.astype(np.float64), want.astype(np.float64))
    else:
        # Of labels that are numbers, a converter may have made other ones: 1 for True.
        apart = np.array(_plain(got) != _plain(want), float)
        # Of two classes with the same probability, either is the likeliest: rounding decides.
        if name == PREDICT and ties is not None:
            apart[ties] = 0.0
    if not apart.size:
        return Difference(name, 0.0, 0, None, None, 0)
    at = int(np.argmax(apart))
    row = at // max(1, apart.size // len(apart))
    differing = int((apart.reshape(len(apart), -1) > tolerance).any(axis=1).sum())
    return Difference(
        name, float(apart.flat[at]), row, _plain(got).flat[at], _plain(want).flat[at], differing
    )


def _apart(got: Array, want: Array) -> Array:
    with np.errstate(all="ignore"):
        apart = np.abs(got - want) / np.maximum(1.0, np.abs(want))
    # Equal infinities have a difference of NaN, and so have equal NaN.
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    apart = np.where(same, 0.0, apart)
    # Only one side is NaN: no tolerance covers that.
    return np.where(np.isnan(apart), np.inf, apart)


def _plain(array: Array) -> Array:
    if array.dtype.kind not in "OSU":
        return array
    # ONNX gives text as str, labels of libraries may be bytes.
    texts = [one.decode() if isinstance(one, bytes) else str(one) for one in array.ravel().tolist()]
    return np.array(texts, object).reshape(array.shape)
