"""PyTorch itself: its late import, tensors to arrays and back, its threads, its errors."""

import threading
import warnings
from types import ModuleType
from typing import Any

import numpy as np

from inferd.config.model import ModelConfig
from inferd.config.parameter import whole_number
from inferd.core.interfaces import Placement
from inferd.errors import BackendFailed, InvalidConfig, foreign_text
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType

DATATYPES = {
    "bfloat16": DataType.BF16,
    **{one.numpy.name: one for one in DataType if one not in (DataType.BF16, DataType.BYTES)},
}
"""PyTorch's dtype name -> datatype."""

PASSING = (
    "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "type_as", "float",
    "double", "half", "einsum", "pixel_shuffle", "pixel_unshuffle",
)  # fmt: skip
"""Operators that may return an argument itself or a view of it, which their schema does not say."""


def pytorch() -> ModuleType:
    """Return torch, imported on first use. Raises ModuleNotFoundError without it."""
    import torch  # heavy, so only when a model needs it

    # TorchScript warns at every call that it is deprecated.
    for kind in (DeprecationWarning, FutureWarning):  # the latter since torch 2.15
        warnings.filterwarnings("ignore", message=r"`?torch\.jit", category=kind)
    with warnings.catch_warnings():  # warns once per process that an array is read-only
        warnings.simplefilter("ignore")
        # Spends that one warning here, where it is ignored: the arrays of requests are read-only,
        # and tensors over them are never written to (Script.writes).
        torch.from_numpy(np.ndarray((1,), np.uint8, b"\0"))
    module: ModuleType = torch
    return module


class Context(threading.local):
    """Sets up each thread before it runs a model: how many threads one operation may use.

    (PyTorch keeps that setting per calling thread. The default is one thread, as requests already
    run in parallel.)
    """

    def __init__(self, torch: ModuleType, config: ModelConfig) -> None:
        """Use INTRA_OP_THREAD_COUNT, by default 1. Raises InvalidConfig, in the first thread."""
        torch.set_num_threads(whole_number(config, "INTRA_OP_THREAD_COUNT", 1, 1, 1024))


def device_of(torch: ModuleType, config: ModelConfig, placement: Placement) -> Any:
    """Return torch.device for `placement`. Raises InvalidConfig if PyTorch has no such GPU."""
    if not placement.gpu:
        return torch.device("cpu")
    if not torch.cuda.is_available() or placement.device_id >= torch.cuda.device_count():
        raise InvalidConfig(
            f"model '{config.name}': instance '{placement.name}' is for GPU {placement.device_id}, "
            f"the installed PyTorch ({torch.__version__}) can use no such device"
        )
    return torch.device("cuda", placement.device_id)


def to_tensor(torch: ModuleType, array: Array, datatype: DataType) -> Any:
    """Return a tensor over the memory of `array`, without a copy. BF16 comes as uint16."""
    if datatype is DataType.BF16:
        # By way of int16, because from_numpy takes uint16 only in recent releases.
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_array(torch: ModuleType, tensor: Any) -> Array:
    """Return the elements of `tensor`, over the same memory if that is the CPU's."""
    if tensor.dtype is torch.bfloat16:
        # numpy() refuses BF16, of which NumPy has no dtype.
        bits: Array = tensor.detach().contiguous().view(torch.int16).numpy(force=True)
        return bits.view(np.uint16)
    array: Array = tensor.numpy(force=True)
    return array


def failure(config: ModelConfig, doing: str, error: BaseException) -> BackendFailed:
    """Return PyTorch's `error` for the client: its last line if it holds a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # TorchScript's interpreter puts the traceback of its own code into the
    # text, and what was raised at its end.
    is_traced = len(lines) > 1 and "Traceback" in str(error)
    text = lines[-1] if is_traced else " ".join(lines)
    is_plain = type(error) in (RuntimeError, ValueError, IndexError, TypeError)
    shown = foreign_text((type(error) if is_plain else RuntimeError)(text))
    failed = BackendFailed(f"model '{config.name}': PyTorch cannot {doing}: {shown}")
    failed.__cause__ = error  # for the log; compiled, `raise ... from` would not set it
    return failed
