"""Samples: rows of the user's own, from an .npz file."""

from pathlib import Path

import numpy as np

from inferd.backends.estimator.model import Columns
from inferd.errors import InvalidConfig
from inferd.tensor.array import Array


def read_sample(file: Path, what: str) -> Columns:
    """Return one array of shape [rows, columns], or an array [rows] for each column, by name.

    Texts are object arrays of `str`. Raises InvalidConfig, which calls the file `what`.
    """
    try:
        # A sample is only data: a pickled array in it could run code.
        with np.load(file, allow_pickle=False) as opened:
            arrays = {name: opened[name] for name in opened.files}
    except (OSError, ValueError, AttributeError) as error:
        msg = f"{what}: {getattr(error, 'strerror', None) or error}"
        raise InvalidConfig(msg) from error
    lengths = {array.shape[:1] for array in arrays.values()}
    if len(lengths) != 1 or lengths == {()} or lengths == {(0,)}:
        msg = f"{what}: expected arrays of the same number of rows, at least one row"
        raise InvalidConfig(msg)
    most = 2 if len(arrays) == 1 else 1
    for name, array in arrays.items():
        if array.ndim > most:
            msg = (
                f"{what}: '{name}' has shape {list(array.shape)}, expected [rows] for each column, "
                f"or a single array [rows, columns]"
            )
            raise InvalidConfig(msg)
    return {name: _texts(array) for name, array in arrays.items()}


def _texts(array: Array) -> Array:
    return array.astype(str).astype(object) if array.dtype.kind in "SU" else array
