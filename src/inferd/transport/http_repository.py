"""The URLs of the model repository and model configuration extensions."""

from inferd.engine.engine import Engine
from inferd.transport.http_message import HttpAnswer, HttpRequest
from inferd.transport.http_router import Route
from inferd.transport.lane import Lane
from inferd.wire import v2_repository

_MODEL = "/v2/models/{model}"
_VERSION = "/v2/models/{model}/versions/{version}"


class RepositoryRoutes:
    """Tells which models there are and how they are configured."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._encoding = Lane("inferd-config")

    def routes(self) -> list[Route]:
        """Return the lines of the URL table."""
        return [
            Route("POST", "/v2/repository/index", "model-repository", self.index),
            Route("POST", "/v2/repository/{repository}/index", "model-repository", self.index),
            Route("GET", f"{_MODEL}/config", "model-config", self.config),
            Route("GET", f"{_VERSION}/config", "model-config", self.config),
        ]

    async def index(self, request: HttpRequest, _repository: str = "") -> HttpAnswer:
        """Model Repository extension, Index; a repository's name is passed over, as in Triton."""
        ready = v2_repository.decode_index_request(request.body)
        return HttpAnswer(200, [v2_repository.encode_index(self._engine.index(ready=ready))])

    async def config(self, _request: HttpRequest, model: str, version: str = "") -> HttpAnswer:
        """Model Configuration extension."""
        config = self._engine.model_config(model, version)
        return HttpAnswer(200, [await self._encoding.run(v2_repository.encode_config, config)])
