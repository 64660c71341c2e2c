"""DLPack: tensors to and from other libraries without a copy, implemented by hand.

numpy's own implementation has no bfloat16, takes no bare capsules, and returns read-only arrays.
The layout is that of DLManagedTensor in dlpack.h, which never changes; the newer, versioned
struct is not requested.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np

from .datatype import NUMPY
from .error import TritonModelException

CPU = 1
PINNED = (3, 13)  # CUDA host and managed memory: the CPU can read both

_KINDS = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4
_NAMES = {
    (0, 8): "INT8", (0, 16): "INT16", (0, 32): "INT32", (0, 64): "INT64",
    (1, 8): "UINT8", (1, 16): "UINT16", (1, 32): "UINT32", (1, 64): "UINT64",
    (2, 16): "FP16", (2, 32): "FP32", (2, 64): "FP64", (4, 16): "BF16", (6, 8): "BOOL",
}  # fmt: skip


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))

_api = ctypes.pythonapi
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, _Destructor]
# With the capsule's address and not as py_object: the destructor gets an object that is being
# freed, and to count a reference to it would revive it.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_SetName", _api)
)

_FRESH, _USED = b"dltensor", b"used_dltensor"  # module-level: capsules keep the pointers
_given: dict[int, Any] = {}  # what capsules refer to, until their consumer deletes it


def _forget(managed: Any) -> None:
    _given.pop(ctypes.addressof(managed.contents), None)


def _drop(capsule: int) -> None:
    if _is_valid(capsule, _FRESH):  # nobody took it
        _given.pop(_pointer(capsule, _FRESH), None)


_deleter = _Deleter(_forget)
_destructor = _Destructor(_drop)


def to_capsule(array: Any, datatype: str) -> Any:
    """Return a DLPack capsule over the memory of `array`, C-contiguous and without strings."""
    managed = _Managed()
    shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
    tensor = managed.tensor
    tensor.data = array.ctypes.data
    tensor.device = _Device(CPU, 0)
    tensor.ndim = array.ndim
    code = _BFLOAT if datatype == "BF16" else _KINDS[array.dtype.kind]
    tensor.dtype = _Type(code, array.dtype.itemsize * 8, 1)
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _deleter
    address = ctypes.addressof(managed)
    # The struct has no place for Python's references; here they stay until the deleter is called.
    _given[address] = (managed, shape, array)
    return _new(address, _FRESH, _destructor)


def from_capsule(capsule: Any) -> tuple[str, Any]:
    """Return the datatype and an array over the memory of a DLPack capsule.

    Raises TritonModelException for device memory, other datatypes, and strides.
    """
    managed = ctypes.cast(_claim(capsule), ctypes.POINTER(_Managed))
    tensor = managed.contents.tensor
    try:
        name, shape = _checked(tensor)
    except TritonModelException:
        _delete(managed)
        raise
    size = int(np.prod(shape, dtype=np.int64)) * NUMPY[name].itemsize
    if not size:
        _delete(managed)
        return name, np.empty(shape, NUMPY[name])
    memory = (ctypes.c_char * size).from_address(tensor.data + tensor.byte_offset)
    # Not at exit: the library that made it may be gone by then.
    weakref.finalize(memory, _delete, managed).atexit = False
    return name, np.frombuffer(memory, NUMPY[name]).reshape(shape)


def _claim(capsule: Any) -> int:
    address = id(capsule)
    # types has no name for the type of capsules before Python 3.13.
    if type(capsule).__name__ != "PyCapsule" or not _is_valid(address, _FRESH):
        raise TritonModelException(
            f"from_dlpack takes a DLPack capsule nobody has used yet, or an object with "
            f"__dlpack__, got {type(capsule).__name__}"
        )
    pointer: int = _pointer(address, _FRESH)
    # The consumer renames it, so that nobody takes it twice (DLPack, Python Specification).
    _rename(address, _USED)
    return pointer


def _checked(tensor: Any) -> tuple[str, tuple[int, ...]]:
    if tensor.device.type != CPU and tensor.device.type not in PINNED:
        raise TritonModelException(
            "from_dlpack got memory of a device; move the tensor to the CPU first"
        )
    kind = tensor.dtype
    name = _NAMES.get((kind.code, kind.bits)) if kind.lanes == 1 else None
    if name is None:
        raise TritonModelException(
            f"from_dlpack got a datatype no tensor of the protocol has: code {kind.code}, "
            f"{kind.bits} bits, {kind.lanes} lanes"
        )
    shape = tuple(tensor.shape[: tensor.ndim])
    expected = 1
    # The strides of an empty tensor mean nothing: numpy's are 0.
    strides = tensor.strides[: tensor.ndim] if tensor.strides and 0 not in shape else None
    # The stride of a dim of 1 is never used, and libraries write what they like there.
    for dim, stride in zip(reversed(shape), reversed(strides or ())):
        if dim != 1 and stride != expected:
            raise TritonModelException(
                "from_dlpack takes tensors that are contiguous, in C order; make a copy first"
            )
        expected *= dim
    return name, shape


def _delete(managed: Any) -> None:
    # NULL is allowed: then nothing has to be freed (dlpack.h).
    if managed.contents.deleter:
        managed.contents.deleter(managed)
