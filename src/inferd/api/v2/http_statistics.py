"""The URLs of the statistics extension."""

from inferd.engine.engine import Engine
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import Route
from inferd.wire.v2 import statistics as v2_statistics


class StatisticsRoutes:
    """Reports the statistics of each model version (Statistics extension)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes(self) -> list[Route]:
        """Return the routes; the first hides the metadata of a model named stats."""
        return [
            Route("GET", "/v2/models/stats", "statistics", self.statistics),
            Route("GET", "/v2/models/{model}/stats", "statistics", self.statistics),
            Route(
                "GET",
                "/v2/models/{model}/versions/{version}/stats",
                "statistics",
                self.statistics,
            ),
        ]

    async def statistics(
        self, _request: HttpRequest, model: str = "", version: str = ""
    ) -> HttpAnswer:
        """Return the statistics of all models, of one, or of one of its versions."""
        rows = self._engine.statistics(model, version)
        return HttpAnswer(200, [v2_statistics.encode_statistics(rows)])
