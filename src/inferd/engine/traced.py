"""TracedEngine: the engine as a traced request of a client sees it."""

from collections.abc import Coroutine

from inferd.core.request import InferRequest, InferResponse
from inferd.engine.engine import Engine
from inferd.engine.traced_models import TracedModels
from inferd.errors import InferdError
from inferd.observe.tracing.trace import Trace


class TracedEngine(TracedModels):
    """See TracedModels; other calls of a transport go to `engine`."""

    def __init__(self, engine: Engine, trace: Trace) -> None:
        super().__init__(engine, trace)
        self._engine = engine

    # A traced request always takes the way through a coroutine: its trace ends with it.
    def begin(self, request: InferRequest) -> Coroutine[object, None, InferResponse]:
        """See Engine.begin."""
        return self.infer(request)

    def check_model(self, name: str, version: str) -> None:
        """See Engine.check_model."""
        self._engine.check_model(name, version)

    def is_decoupled(self, name: str, version: str) -> bool:
        """See Engine.is_decoupled; of a model that cannot be asked, False.

        So it is asked, which fails, too, and is noted.
        """
        try:
            return self._engine.is_decoupled(name, version)
        except InferdError:
            return False
