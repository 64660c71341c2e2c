"""The worker program for MXNet models that are not converted: it runs MXNet's own library.

The library is called through its C predict API, so that neither MXNet's Python package nor the
numpy version it needs is imported. It never runs in the server: a crash ends only a worker.
"""

import ctypes
import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

CACHED = 4
"""How many input shapes keep a predictor, each with a copy of the weights."""

_CPU = 1
_DTYPES = ["<f4", "<f8", "<f2", "u1", "<i4", "i1", "<i8"]  # by MXNet's numbers


class Library:
    """MXNet's C predict API. Calls raise TritonModelException with MXNet's error text."""

    def __init__(self, path: str) -> None:
        # CDLL releases the interpreter's lock during calls, PyDLL would not.
        self._library = ctypes.CDLL(path)
        self._library.MXGetLastError.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        """Call one function."""
        if getattr(self._library, name)(*arguments):
            text = self._library.MXGetLastError().decode("utf-8", "replace") or name
            raise pb_utils.TritonModelException(f"MXNet: {_first_line(text)}")


class Predictor:
    """The network, for one set of input shapes and types."""

    def __init__(
        self, library: Library, symbol: bytes, params: bytes, feed: dict[str, Any]
    ) -> None:
        self._library = library
        self.handle = ctypes.c_void_p()
        names = (ctypes.c_char_p * len(feed))(*(name.encode() for name in feed))
        dims = [dim for array in feed.values() for dim in array.shape]
        ends = np.cumsum([0, *(array.ndim for array in feed.values())]).tolist()
        kinds = [_DTYPES.index(array.dtype.str.replace("|", "")) for array in feed.values()]
        library.call(
            "MXPredCreateEx",
            *(symbol, params, len(params), _CPU, 0, len(feed), names),
            (ctypes.c_uint32 * len(ends))(*ends),
            (ctypes.c_uint32 * max(len(dims), 1))(*dims),
            *(len(feed), names, (ctypes.c_int * len(kinds))(*kinds)),
            ctypes.byref(self.handle),
        )

    def run(self, feed: dict[str, Any], outputs: list[int]) -> list[Any]:
        """Return the outputs with the numbers in `outputs`."""
        for name, array in feed.items():
            array = np.ascontiguousarray(array)
            pointer = array.ctypes.data_as(ctypes.c_void_p)
            size = ctypes.c_uint32(array.size)
            self._library.call("MXPredSetInput", self.handle, name.encode(), pointer, size)
        self._library.call("MXPredForward", self.handle)
        return [self._output(index) for index in outputs]

    def free(self) -> None:
        """Free its memory."""
        self._library.call("MXPredFree", self.handle)

    def _output(self, index: int) -> object:
        dims, count, kind = ctypes.POINTER(ctypes.c_uint32)(), ctypes.c_uint32(), ctypes.c_int()
        number = ctypes.c_uint32(index)
        places = (ctypes.byref(dims), ctypes.byref(count))
        self._library.call("MXPredGetOutputShape", self.handle, number, *places)
        self._library.call("MXPredGetOutputType", self.handle, number, ctypes.byref(kind))
        array = np.empty([dims[place] for place in range(count.value)], _DTYPES[kind.value])
        pointer, size = array.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint32(array.size)
        self._library.call("MXPredGetOutput", self.handle, number, pointer, size)
        return array


class TritonPythonModel:
    """The model; requests of the same shape are run as one batch if it supports batches."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the files and load the library."""
        settings = json.loads(args["mxnet"])
        self._symbol = Path(settings["symbol"]).read_bytes()
        self._params = Path(settings["params"]).read_bytes()
        self._outputs: dict[str, int] = settings["outputs"]
        self._inputs: list[str] = settings["inputs"]
        self._library = Library(settings["library"])
        self._joins = json.loads(args["model_config"]).get("max_batch_size", 0) > 0
        self._predictors: OrderedDict[Any, Predictor] = OrderedDict()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request."""
        feeds = [
            {
                name: pb_utils.get_input_tensor_by_name(request, name).as_numpy()
                for name in self._inputs
            }
            for request in requests
        ]
        if not self._joins or not _fit(feeds):
            return [self._answer(self._run(feed)) for feed in feeds]
        joined = {name: np.concatenate([feed[name] for feed in feeds]) for name in self._inputs}
        ends = np.cumsum([len(feed[self._inputs[0]]) for feed in feeds])[:-1]
        parts = [np.split(array, ends) for array in self._run(joined)]
        return [self._answer(arrays) for arrays in zip(*parts)]  # noqa: B905  strict needs 3.10

    def _run(self, feed: dict[str, Any]) -> list[Any]:
        key = tuple((array.shape, array.dtype.str) for array in feed.values())
        # MXNet takes a dim of 0 for one that is to be inferred.
        if any(array.size == 0 for array in feed.values()):
            raise pb_utils.TritonModelException("MXNet takes no arrays without elements")
        # Taken out and put back at the end, so that the first is the one not used for longest.
        predictor = self._predictors.pop(key, None)
        if predictor is None:
            predictor = Predictor(self._library, self._symbol, self._params, feed)
        self._predictors[key] = predictor
        if len(self._predictors) > CACHED:
            self._predictors.popitem(last=False)[1].free()
        return predictor.run(feed, list(self._outputs.values()))

    def _answer(self, arrays: Any) -> Any:
        named = zip(self._outputs, arrays)  # noqa: B905  strict needs Python 3.10
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, one) for name, one in named])


def _first_line(text: str) -> str:
    """Return MXNet's error text in one line, without its stack and source files."""
    lines = text.partition("Stack trace")[0].splitlines()
    return " ".join(line.partition(": Check failed: ")[2] or line for line in lines).strip()[:500]


def _fit(feeds: list[dict[str, Any]]) -> bool:
    shapes = [[array.shape[1:] for array in feed.values()] for feed in feeds]
    return all(shape == shapes[0] for shape in shapes[1:])
