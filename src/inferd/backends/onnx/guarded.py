"""Instances in front of an ONNX model's: one checks requests before they run, one limits the time.

Only models that need them get them, so that the others pay nothing.
"""

import threading
from collections.abc import Sequence
from typing import Any

from inferd.backends.onnx.doors.check import Check
from inferd.backends.onnx.instance import OnnxInstance
from inferd.config.model import ModelConfig
from inferd.config.parameter import number
from inferd.config.parameter_names import EXECUTION_TIMEOUT
from inferd.core.request import InferRequest, InferResponse
from inferd.core.traits import InstanceTraits
from inferd.errors import BackendFailed, InferdError, InvalidRequest

# Far beyond what such models take; it is there for a Loop that never ends (decision 0030).
USUAL_LIMIT_S = 300.0
"""How long an execution may take in seconds if the model does not say."""


def limit_s(config: ModelConfig) -> float:
    """Return how long an execution may take in seconds, 0 for no limit. Raises InvalidConfig."""
    return number(config, EXECUTION_TIMEOUT, default=USUAL_LIMIT_S)


class _Front:
    """An instance in front of another."""

    def __init__(self, instance: "OnnxInstance | TimedInstance", traits: InstanceTraits) -> None:
        self.traits = traits
        self._instance = instance

    def __getattr__(self, name: str) -> Any:
        """Return what the instance behind says of itself."""
        return getattr(self._instance, name)

    def close(self) -> None:
        """See Instance.close."""
        self._instance.close()


class TimedInstance(_Front):
    """An instance in front of another, whose executions it stops after `limit_s` seconds.

    ONNX Runtime looks before each operator, and in each round of a loop, whether it should stop.
    Only models whose runs a request can make last for ever get one, so that others pay nothing.
    """

    def __init__(self, instance: OnnxInstance, limit_s: float, model: str) -> None:
        traits = InstanceTraits(is_bounded=False, verdict=instance.traits.verdict)
        super().__init__(instance, traits)
        self._options = instance.run_options
        self._limit_s = limit_s
        self._model = model
        # Between the timer of one execution and the start of the next: it must not stop that one.
        self._lock = threading.Lock()
        self._running = 0  # counts executions, so that a late timer stops none but its own

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute. An execution that is stopped fails with BackendFailed."""
        with self._lock:
            self._running += 1
            # ONNX Runtime never resets it, and every later run with
            # these options would stop at once.
            self._options.terminate = False
        timer = threading.Timer(self._limit_s, self._stop, [self._running])
        # The server must not wait 300 s for it when it exits in the middle of a run.
        timer.daemon = True
        timer.start()
        try:
            answers = self._instance.execute(requests)
        finally:
            timer.cancel()
            with self._lock:
                self._running += 1
        if not self._options.terminate:
            return answers
        msg = f"model '{self._model}': an execution took longer than {self._limit_s:g} s"
        # What was answered before the time was up stays answered.
        return [BackendFailed(msg) if isinstance(one, InferdError) else one for one in answers]

    def _stop(self, number: int) -> None:
        with self._lock:
            if number == self._running:
                self._options.terminate = True


class GuardedInstance(_Front):
    """An instance in front of another: it answers what its checks refuse, and passes on the rest.

    Only models that have checks get one, so that the others pay nothing.
    """

    def __init__(
        self, instance: OnnxInstance | TimedInstance, checks: Sequence[Check], model: str
    ) -> None:
        super().__init__(instance, instance.traits)
        self._checks = tuple(checks)
        self._names = frozenset(name for check in checks for name in check.inputs)
        self._model = model

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute. Raises nothing: InvalidRequest is the answer of a bad request."""
        refusals = [self._refusal(request) for request in requests]
        if not any(refusals):
            return self._instance.execute(requests)
        # The others of a batch are not to blame: they run, and answers keep the order of requests.
        good = [one for one, no in zip(requests, refusals, strict=True) if no is None]
        answers = iter(self._instance.execute(good) if good else ())
        return [next(answers) if no is None else no for no in refusals]

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
