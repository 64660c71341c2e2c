"""GuardedInstance: an ONNX model whose requests are checked before they run."""

from collections.abc import Sequence
from typing import Any

from inferd.backends.onnx.doors.check import Check
from inferd.backends.onnx.instance import OnnxInstance
from inferd.backends.onnx.limited import TimedInstance
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError, InvalidRequest


class GuardedInstance:
    """An instance in front of another: it answers what its checks refuse, and passes on the rest.

    Only models that have checks get one, so that the others pay nothing.
    """

    def __init__(
        self, instance: OnnxInstance | TimedInstance, checks: Sequence[Check], model: str
    ) -> None:
        self.traits = instance.traits
        self._instance = instance
        self._checks = tuple(checks)
        self._names = frozenset(name for check in checks for name in check.inputs)
        self._model = model

    def __getattr__(self, name: str) -> Any:
        """Return what the instance behind says of itself."""
        return getattr(self._instance, name)

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute. Raises nothing: InvalidRequest is the answer of a bad request."""
        refusals = [self._refusal(request) for request in requests]
        if not any(refusals):
            return self._instance.execute(requests)
        # The others of a batch are not to blame: they run, and answers keep the order of requests.
        good = [one for one, no in zip(requests, refusals, strict=True) if no is None]
        answers = iter(self._instance.execute(good) if good else ())
        return [next(answers) if no is None else no for no in refusals]

    def close(self) -> None:
        """See Instance.close."""
        self._instance.close()

    def _refusal(self, request: InferRequest) -> InvalidRequest | None:
        names = self._names
        try:
            arrays = {
                tensor.name: self._instance.array(tensor)
                for tensor in request.inputs
                if tensor.name in names
            }
        except InferdError:  # the instance answers that, in its words
            return None
        for check in self._checks:
            # Optional inputs may be missing; whether that is an error has been decided before.
            if all(name in arrays for name in check.inputs):
                complaint = check.complaint(arrays)
                if complaint:
                    return InvalidRequest(f"model '{self._model}': {complaint}")
        return None
