"""An inference as the arguments of a call say it becomes an InferRequest."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from inferd.client.regions import SharedRegion, span_in
from inferd.client.result import InferResult
from inferd.client.settings import Headers
from inferd.client.tensors import to_tensors
from inferd.core.metadata import ModelMetadata
from inferd.core.request import InferRequest, WantedOutput
from inferd.core.request import Sequence as RequestSequence
from inferd.errors import InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Parameters, Tensor
from inferd.wire.shared_memory import span_parameters


class InferOptions(TypedDict, total=False):
    """What may be said of an inference beside its model and its inputs.

    outputs: the names of those wanted, by default all; or arrays in shared memory by name, into
        which they are written.
    version: of the model; by default the server's choice.
    id: a text that the answer repeats.
    parameters: custom ones, for the model.
    timeout_s: how long the call may take; by default as the client says.
    queue_timeout_s: how long the request may wait in the model's queue (schedule policy).
    priority: in that queue; 1 comes first.
    sequence_id, sequence_start, sequence_end: the sequence the request belongs to.
    classification: how many of the best classes to return of each output, in place of its values.
    headers: of this call alone.
    """

    outputs: Sequence[str] | Mapping[str, Array]
    version: str
    id: str
    parameters: Parameters
    timeout_s: float
    queue_timeout_s: float
    priority: int
    sequence_id: int | str
    sequence_start: bool
    sequence_end: bool
    classification: int
    headers: Headers


def make_request(
    model: str,
    inputs: Mapping[str, object],
    known: ModelMetadata | None,
    options: InferOptions,
    regions: list[SharedRegion],
) -> InferRequest:
    """Return the request; `known` as `to_tensors` wants it. Raises InvalidRequest.

    Arrays that lie in one of `regions` are not sent, but named.
    """
    if not model:
        raise InvalidRequest("the name of the model is empty")
    request = InferRequest(model, inputs=to_tensors(inputs, known))
    if regions:
        _refer(request.inputs, regions)
    for name, value in options.items():
        if name == "outputs":
            _want(request, options["outputs"], regions)
        # `_others` puts all of them at once; it may be called twice, with the same outcome.
        elif name in _OTHERS:
            _others(request, known, options)
        elif name not in _ELSEWHERE:
            # The words of Python for its own functions: options are keyword arguments to callers.
            raise TypeError(f"infer() got an unexpected keyword argument '{name}': {value!r}")
    return request


def _want(
    request: InferRequest,
    outputs: Sequence[str] | Mapping[str, Array] | None,
    regions: list[SharedRegion],
) -> None:
    if outputs is None:  # by programs whose types are not checked
        return
    if isinstance(outputs, str):
        msg = f"outputs is the text '{outputs}', not a list of names: say ['{outputs}']"
        raise InvalidRequest(msg)
    if not request.outputs:
        request.outputs = [WantedOutput(one) for one in outputs]
    if isinstance(outputs, Mapping):
        _place(request, outputs, regions)


_ELSEWHERE = frozenset(("timeout_s", "headers"))
# The TypedDict is the one list of options.
_OTHERS = InferOptions.__annotations__.keys() - _ELSEWHERE - {"outputs"}


def _others(request: InferRequest, known: ModelMetadata | None, options: InferOptions) -> None:
    """Put the options that few requests have where they belong."""
    # None is what it is in Python: not said.
    given: dict[str, Any] = {
        name: _plain(value) for name, value in options.items() if value is not None
    }
    request.version = str(given.get("version", ""))
    request.id = given.get("id", "")
    parameters = dict(given.get("parameters", {}))
    request.parameters = {name: _plain(value) for name, value in parameters.items()}
    request.priority = given.get("priority", 0)
    request.timeout_us = _timeout_us(given.get("queue_timeout_s", 0))
    if "sequence_id" in given:
        start, end = given.get("sequence_start", False), given.get("sequence_end", False)
        number = given["sequence_id"]
        # gRPC has signed numbers only, and servers take -1 for 2^64 - 1.
        if isinstance(number, int) and number < 0:
            raise InvalidRequest(f"sequence_id is {number}, expected at least 0")
        request.sequence = RequestSequence(number, start, end)
    if top_k := given.get("classification", 0):
        names = options.get("outputs")
        if names is None:
            names = [one.name for one in known.outputs] if known is not None else []
        request.outputs = [WantedOutput(name, top_k=top_k) for name in names]


_LONGEST_TIMEOUT_US = 1 << 63


def _timeout_us(seconds: float) -> int:
    """Return a time limit as requests have it: 0 is none."""
    if not seconds >= 0:  # NaN, too
        raise InvalidRequest(f"queue_timeout_s is {seconds}, expected a number of at least 0")
    if seconds * 1e6 >= _LONGEST_TIMEOUT_US:
        return 0
    # Rounded up: a very short one is not none.
    return math.ceil(seconds * 1e6)


def _plain(value: Any) -> Any:
    """Return `value`, a scalar of numpy as that of Python: JSON and protobuf know no others."""
    return value.item() if isinstance(value, np.generic) else value


def _refer(tensors: list[Tensor], regions: list[SharedRegion]) -> None:
    """Let tensors whose arrays are in shared memory say so."""
    for tensor in tensors:
        if isinstance(tensor.data, np.ndarray) and (span := span_in(regions, tensor.data)):
            tensor.parameters = (tensor.parameters or {}) | span_parameters(span)


def _place(request: InferRequest, places: Mapping[str, Array], regions: list[SharedRegion]) -> None:
    for wanted in request.outputs:
        array = places[wanted.name]
        wanted.place = span_in(regions, array) if isinstance(array, np.ndarray) else None
        if wanted.place is None:
            msg = f"the array for output '{wanted.name}' is not in shared memory of this client"
            raise InvalidRequest(msg)
        if not array.dtype.isnative or not array.flags.writeable:
            what = "read-only" if array.dtype.isnative else "not little-endian"
            raise InvalidRequest(f"the array for output '{wanted.name}' is {what}")


def check_places(request: InferRequest, places: Any, result: InferResult) -> None:
    """Raise InvalidRequest if an output of `result` is of another datatype than its array.

    The bytes in it are right then, and what it takes them for is not; uint8 is bytes of any kind.
    """
    for wanted in request.outputs:
        if wanted.place is None or wanted.name not in result:
            continue
        dtype, datatype = places[wanted.name].dtype, result.tensor(wanted.name).datatype
        is_bf16 = datatype is DataType.BF16 and dtype.name == "bfloat16"  # of ml_dtypes
        if dtype not in (datatype.numpy, np.uint8) and not is_bf16:
            msg = f"output '{wanted.name}' is {datatype.value}, the array for it is of {dtype}"
            raise InvalidRequest(msg)
