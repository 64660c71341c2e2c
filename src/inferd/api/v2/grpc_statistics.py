"""The gRPC method of the statistics extension."""

from typing import Any

from inferd.engine.engine import Engine
from inferd.http.grpc.handler import Call, Method, Unary
from inferd.wire.v2 import statistics as v2_statistics


class StatisticsMethods:
    """Reports the statistics of each model version (Statistics extension)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def methods(self) -> dict[str, Method]:
        """Return the methods by name."""
        return {"ModelStatistics": Unary(self.model_statistics)}

    async def model_statistics(self, data: bytes, call: Call) -> list[Any]:
        """Return the statistics of all models, of one, or of one of its versions."""
        name, version = v2_statistics.decode_statistics_request(data)
        rows = self._engine.statistics(name, version)
        return [v2_statistics.encode_statistics_message(rows)]
