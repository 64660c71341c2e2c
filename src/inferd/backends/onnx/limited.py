"""TimedInstance: an ONNX model whose runs are stopped if they take too long."""

import threading
from collections.abc import Sequence
from typing import Any

from inferd.backends.onnx.instance import OnnxInstance
from inferd.config.model import ModelConfig
from inferd.config.parameter import number
from inferd.config.parameter_names import EXECUTION_TIMEOUT
from inferd.core.request import InferRequest, InferResponse
from inferd.core.traits import InstanceTraits
from inferd.errors import BackendFailed, InferdError

# Far beyond what such models take; it is there for a Loop that never ends (decision 0030).
USUAL_LIMIT_S = 300.0
"""How long an execution may take in seconds if the model does not say."""


def limit_s(config: ModelConfig) -> float:
    """Return how long an execution may take in seconds, 0 for no limit. Raises InvalidConfig."""
    return number(config, EXECUTION_TIMEOUT, default=USUAL_LIMIT_S)


class TimedInstance:
    """An instance in front of another, whose executions it stops after `limit_s` seconds.

    ONNX Runtime looks before each operator, and in each round of a loop, whether it should stop.
    Only models whose runs a request can make last for ever get one, so that others pay nothing.
    """

    def __init__(self, instance: OnnxInstance, limit_s: float, model: str) -> None:
        self.traits = InstanceTraits(is_bounded=False, verdict=instance.traits.verdict)
        self._instance = instance
        self._options = instance.run_options
        self._limit_s = limit_s
        self._model = model
        # Between the timer of one execution and the start of the next: it must not stop that one.
        self._lock = threading.Lock()
        self._running = 0  # counts executions, so that a late timer stops none but its own

    def __getattr__(self, name: str) -> Any:
        """Return what the instance behind says of itself."""
        return getattr(self._instance, name)

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

    def close(self) -> None:
        """See Instance.close."""
        self._instance.close()

    def _stop(self, number: int) -> None:
        with self._lock:
            if number == self._running:
                self._options.terminate = True
