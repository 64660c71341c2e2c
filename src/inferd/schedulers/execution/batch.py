"""Batches: join several requests into one for the framework, and split its answer among them.

Joining copies each input once, into memory allocated for that batch; splitting returns views. The
memory is never written again: it goes back to the allocator when the last view of it is gone, which
may be long after the answer was handed to a slow client's socket.

The shapes of requests in a batch may differ only in the batch dim, unless an input allows ragged
batches: then its elements are concatenated in one dim, and `batch_input` tells the model where
each request's elements begin (Triton, Ragged Batching).
"""

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from itertools import accumulate, chain, pairwise
from math import prod
from typing import Any

import numpy as np

from inferd.config.model import BatchInput, ModelConfig
from inferd.config.parameter import is_on, takes_table
from inferd.config.parameter_names import FOUND_OUTPUTS
from inferd.core.interfaces import Answer, Instance
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.core.traits import traits_of
from inferd.errors import BackendFailed, InferdError
from inferd.schedulers.execution.job import failure
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import cut_strings
from inferd.tensor.tensor import Tensor

JOIN_BYTES = 256 * 1024
"""From this size on numpy joins the bytes: it releases the GIL while it copies."""

Shape = tuple[int, ...]


class BatchPlan:
    """How a model's configuration lets requests run together."""

    def __init__(self, config: ModelConfig) -> None:
        self.model = config.name
        self.max_batch_size = config.max_batch_size
        self.is_decoupled = config.decoupled
        self._has_batch_dim = config.max_batch_size > 0
        self._ragged = frozenset(i.name for i in config.input if i.allow_ragged_batch)
        self._batch_inputs = config.batch_input
        self._sources = {
            target: one.source_input[0] for one in config.batch_output for target in one.target_name
        }
        has_optional = any(i.optional for i in config.input)
        # Where all dims are fixed and nothing is optional, the check against the configuration has
        # found all requests alike.
        self._compared = frozenset(
            i.name
            for i in config.input
            if has_optional or (-1 in i.dims and not i.allow_ragged_batch)
        )
        self._is_table = takes_table(config)  # whose inputs have any names and datatypes
        self.has_kinds = self._is_table or bool(self._compared)
        """Whether some requests may not run together."""
        self._output_names = [output.name for output in config.output]
        self._ranks = _declared_ranks(config)
        self.reshapes = bool(self._ragged or self._batch_inputs or self._sources)
        """Whether even a request that runs alone must go through `join`."""

    def kind(self, request: InferRequest) -> Hashable:
        """Return the key that requests must share to run together.

        It holds the datatypes and shapes of inputs with variable dims and, where inputs are
        optional, which of them are present. All others have already been checked to be as the
        configuration says. Of tables it holds the names, datatypes and shapes of all columns, in
        their order, which is all that tells of columns whose names the model does not know.
        """
        if self._is_table:
            return tuple(
                # The batch dim is what is joined, so it may differ.
                [(tensor.name, tensor.datatype, tensor.shape[1:]) for tensor in request.inputs]
            )
        compared = self._compared
        if not compared:
            return None
        ragged = self._ragged
        return frozenset(
            # Ragged inputs are concatenated whatever their shapes.
            (tensor.name, tensor.datatype, None if tensor.name in ragged else tensor.shape[1:])
            for tensor in request.inputs
            if tensor.name in compared
        )

    def join(self, requests: Sequence[InferRequest]) -> InferRequest:
        """Return one request with the inputs of `requests`, all of one kind, in order.

        Inputs are copied. The result wants every output that any of them wants, in model order.
        """
        first = requests[0]
        inputs = []
        for index, tensor in enumerate(first.inputs):
            parts = _parts(requests, index, tensor.name)
            if tensor.name in self._ragged:
                # Elements in one dim (Triton, Ragged Batching).
                shape: Shape = (sum(prod(part.shape) for part in parts),)
            elif self._has_batch_dim:
                shape = (sum(part.shape[0] for part in parts), *tensor.shape[1:])
            else:
                shape = tensor.shape
            inputs.append(Tensor(tensor.name, tensor.datatype, shape, _join(parts)))
        for one in self._batch_inputs:
            inputs += _described(one, requests)
        return InferRequest(
            first.model,
            first.version,
            inputs=inputs,
            outputs=self._wanted(requests),
            # Of several requests, no one's parameters are those of the batch.
            parameters=first.parameters if len(requests) == 1 else {},
            batch_size=sum(request.batch_size for request in requests),
        )

    def split(
        self, requests: Sequence[InferRequest], response: InferResponse
    ) -> list[InferResponse]:
        """Return the answer to each of `requests`: views of the outputs of the joined `response`.

        Raises BackendFailed when an output's batch dim is not the sum of their batch sizes.
        """
        answers = [
            InferResponse(response.model, response.version, parameters=dict(response.parameters))
            for _ in requests
        ]
        sizes = [request.batch_size for request in requests]
        for tensor in response.outputs:
            source = self._sources.get(tensor.name)
            if source is not None:
                parts = self._scattered(tensor, [_shape_of(r, source) for r in requests])
            elif self._has_batch_dim:
                parts = self._rows(tensor, sizes)
            else:
                parts = [tensor]
            for answer, part in zip(answers, parts, strict=True):
                answer.outputs.append(part)
        return answers

    def _wanted(self, requests: Sequence[InferRequest]) -> list[WantedOutput]:
        # One that names none wants all.
        if not all(request.outputs for request in requests):
            return []
        wanted = {one.name for request in requests for one in request.outputs}
        if len(wanted) == len(self._output_names):
            return []
        return [WantedOutput(name) for name in self._output_names if name in wanted]

    def _rows(self, tensor: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """Cut `tensor` along its batch dim."""
        rows, inner = sum(sizes), tensor.shape[1:]
        # Checked before cutting: a wrong cut would give a client what belongs to another.
        if tensor.shape[:1] != (rows,):
            raise self._misfit(tensor, f"the batch has {rows} rows")
        rank = self._ranks.get(tensor.name)
        if rank is not None and rank != len(tensor.shape):  # who knows what its dim 0 is
            raise self._misfit(tensor, f"the model's file declares {rank} dims")
        return _cut(tensor, [(size, *inner) for size in sizes])

    def _scattered(self, tensor: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        """Cut `tensor` into consecutive runs of elements, one per shape in `shapes`."""
        elements = sum(map(prod, shapes))
        if prod(tensor.shape) != elements:
            source = self._sources[tensor.name]
            raise self._misfit(tensor, f"input '{source}' has {elements} elements in this batch")
        return _cut(tensor, shapes)

    def _misfit(self, tensor: Tensor, expected: str) -> InferdError:
        return BackendFailed(
            f"model '{self.model}' produced output '{tensor.name}' with shape "
            f"{list(tensor.shape)}, but {expected}"
        )


class JoinedInstance:
    """An instance that runs all requests of an execution as one.

    When that fails, each runs by itself: one client's bad data should not fail the others, and
    a model whose outputs have no batch dim still answers, if slowly. With `keeps_rows` there is no
    such fallback: the model may identify a request by its row.
    """

    def __init__(self, instance: Instance, plan: BatchPlan, *, keeps_rows: bool = False) -> None:
        self._instance = instance
        self._plan = plan
        self._keeps_rows = keeps_rows
        self.traits = traits_of(instance)

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[Answer]:
        """See Instance.execute."""
        if len(requests) > 1:
            if self._keeps_rows:
                return self._together(requests)
            # What went wrong is of no use here: the same request fails by itself, and then tells
            # its own client.
            with suppress(Exception):
                return self._together(requests)
            for request in requests:
                request.ran_again = True
        return [self._alone(request) for request in requests]

    def close(self) -> None:
        """See Instance.close."""
        self._instance.close()

    def _together(self, requests: Sequence[InferRequest]) -> Sequence[Answer]:
        plan = self._plan
        joined = plan.join(requests)
        [answer] = self._instance.execute((joined,))
        if isinstance(answer, InferdError):
            try:
                raise answer
            finally:
                del answer  # its traceback holds this frame, which holds the requests
        # Times are read from the first request of an execution, and the backend saw only the joined
        # one.
        requests[0].computing_ns, requests[0].computed_ns = joined.computing_ns, joined.computed_ns
        return plan.split(requests, answer)

    def _alone(self, request: InferRequest) -> Answer:
        try:
            if self._plan.reshapes:
                return self._together((request,))[0]
            return self._instance.execute((request,))[0]
        except Exception as error:  # noqa: BLE001  a model may raise anything
            return failure(self._plan.model, error)


def _declared_ranks(config: ModelConfig) -> dict[str, int]:
    """Return the number of dims of those outputs that the model's file alone declares."""
    # There even the number of dims is a guess.
    if is_on(config, FOUND_OUTPUTS):
        return {}
    return {one.name: 1 + len(one.dims) for one in config.output if one.is_declared}


def _parts(requests: Sequence[InferRequest], index: int, name: str) -> list[Tensor]:
    """Return the input `name` of each request; it is most likely at `index`."""
    parts = []
    for request in requests:
        tensor = request.inputs[index]
        if tensor.name != name:
            # Inputs may come in any order; clients of one program send them in the same one.
            tensor = next(one for one in request.inputs if one.name == name)
        parts.append(tensor)
    return parts


def _shape_of(request: InferRequest, name: str) -> Shape:
    """Return the shape of input `name`, (0,) if the request leaves it out."""
    return next((one.shape for one in request.inputs if one.name == name), (0,))


def _join(parts: Sequence[Tensor]) -> Any:
    """Return one buffer with the data of all `parts`, copied unless there is only one."""
    if len(parts) == 1:
        return parts[0].data
    if sum(part.size_bytes for part in parts) < JOIN_BYTES:
        # Some microseconds less than numpy for small pieces, of which most batches are made.
        return b"".join([part.data for part in parts])
    return np.concatenate([np.frombuffer(part.data, np.uint8) for part in parts])


def _cut(tensor: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
    """Return consecutive views of `tensor` with `shapes`, which cover all its elements."""
    counts = [prod(shape) for shape in shapes]
    view, datatype = tensor.view(), tensor.datatype
    if datatype is DataType.BYTES:
        # Strings have no fixed size, so where one ends is known only from those before it.
        pieces = cut_strings(view, counts, tensor.name)
    else:
        ends = accumulate(datatype.size_bytes * count for count in counts)
        pieces = [view[start:end] for start, end in pairwise((0, *ends))]
    return [
        Tensor(tensor.name, datatype, shape, piece)
        for shape, piece in zip(shapes, pieces, strict=True)
    ]


def _described(one: BatchInput, requests: Sequence[InferRequest]) -> list[Tensor]:
    """Return the model inputs that `one` derives from the shapes of `requests`."""
    shapes = [_shape_of(request, one.source_input[0]) for request in requests]
    datatype = one.datatype or DataType.INT32
    array = np.asarray(_DESCRIPTIONS[one.kind](shapes), datatype.numpy)
    return [Tensor(name, datatype, array.shape, array) for name in one.target_name]


def _counts(shapes: Sequence[Shape]) -> list[int]:
    return [prod(shape) for shape in shapes]


def _item_shapes(shapes: Sequence[Shape]) -> list[Shape]:
    """Return the shape of each item, without the batch dim."""
    return [shape[1:] for shape in shapes for _ in range(shape[0])]


_DESCRIPTIONS: dict[str, Callable[[Sequence[Shape]], Any]] = {
    "BATCH_ELEMENT_COUNT": _counts,
    "BATCH_ACCUMULATED_ELEMENT_COUNT": lambda shapes: list(accumulate(_counts(shapes))),
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": lambda shapes: [0, *accumulate(_counts(shapes))],
    # The shape is what is told (Triton: MAX_ELEMENT_COUNT_AS_SHAPE); what is in it does not matter.
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": lambda shapes: np.zeros(max(_counts(shapes))),
    "BATCH_ITEM_SHAPE": _item_shapes,
    "BATCH_ITEM_SHAPE_FLATTEN": lambda shapes: list(chain.from_iterable(_item_shapes(shapes))),
}
"""How each kind of batch_input is computed from the shapes of its source input."""
