"""Instances of functions that return one answer, or yield any number of them."""

import logging
from collections.abc import Callable, Iterator, Sequence
from threading import Thread
from typing import Any

from inferd.backends.function.signature import FunctionSignature
from inferd.core.request import InferRequest, InferResponse
from inferd.core.rows import INDEPENDENT, Verdict
from inferd.core.traits import InstanceTraits
from inferd.errors import BackendFailed, InferdError
from inferd.tensor.tensor import Tensor

log = logging.getLogger("inferd.backends")

_CLOSE_S = 1.0
"""How long to wait for an object to close; beyond that it goes on in its own thread."""


class FunctionCall:
    """A function, and how to call it with a request. `close` closes the object it belongs to."""

    def __init__(
        self,
        function: Callable[..., object],
        signature: FunctionSignature,
        model: str,
        version: int,
        close: Callable[[], object] | None = None,
    ) -> None:
        self.model = model
        self._function = function
        self._signature = signature
        self._version = str(version)
        self._is_batched = any(port.is_batched for port in signature.outputs.values())
        self._close = close

    def begin(self, request: InferRequest) -> Any:
        """Call the function and return its result. Raises InvalidRequest, or what it raises."""
        arguments, named = self._signature.arguments(request)
        return self._function(*arguments, **named)

    def answer(self, request: InferRequest, value: object, *, final: bool = True) -> InferResponse:
        """Return `value` as an answer. Raises BackendFailed."""
        tensors = self._signature.tensors(value, self.model)
        if self._is_batched:
            self._check_rows(tensors, request.batch_size)
        return InferResponse(request.model, self._version, request.id, tensors, final=final)

    def one_of(self, answers: Sequence[InferResponse]) -> InferResponse:
        """Return the only one of `answers`, marked as final. Raises BackendFailed."""
        if len(answers) != 1:
            msg = f"model '{self.model}' gave {len(answers)} answers, expected one"
            raise BackendFailed(msg)
        # It was made as one of a stream, whose end is told apart.
        answers[0].final = True
        return answers[0]

    def close(self) -> None:
        """Close the object; one that hangs is left behind."""
        if self._close is not None:
            thread = Thread(target=self._close_object, name=f"inferd-{self.model}", daemon=True)
            # In a thread of its own, as nothing bounds what a user's close() does.
            thread.start()
            thread.join(_CLOSE_S)

    def _close_object(self) -> None:
        try:
            assert self._close is not None
            self._close()
        except Exception:  # whatever it raises, the server goes on
            log.exception("model '%s' does not close", self.model)

    def _check_rows(self, tensors: Sequence[Tensor], rows: int) -> None:
        for tensor in tensors:
            if tensor.shape[0] != rows:
                msg = (
                    f"model '{self.model}': output '{tensor.name}' has {tensor.shape[0]} rows, "
                    f"the batch has {rows}"
                )
                raise BackendFailed(msg)


class FunctionInstance:
    """A function that returns one answer. Each request is one call: batches arrive joined."""

    traits = InstanceTraits(
        verdict=Verdict(INDEPENDENT, "its author says that it takes batches"),
    )

    def __init__(self, call: FunctionCall) -> None:
        self._call = call

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute."""
        call = self._call
        return [call.answer(request, call.begin(request)) for request in requests]

    def close(self) -> None:
        """See Instance.close."""
        self._call.close()


class StreamInstance(FunctionInstance):
    """A generator function: each request is answered with all values that it yields."""

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute; any number of answers other than one needs `stream`."""
        return [self._call.one_of(list(self.stream(request))) for request in requests]

    def stream(self, request: InferRequest) -> Iterator[InferResponse]:
        """See DecoupledInstance.stream."""
        values = self._call.begin(request)
        try:
            for value in values:
                yield self._call.answer(request, value, final=False)
        finally:
            if hasattr(values, "close"):  # now, rather than at garbage collection
                values.close()
