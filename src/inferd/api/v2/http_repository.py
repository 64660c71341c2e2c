"""The URLs of the model repository and model configuration extensions."""

from typing import NoReturn

from inferd.aio.offload import Work
from inferd.engine.engine import Engine
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import Route
from inferd.wire.v2 import repository as v2_repository

_REPOSITORY = "/v2/repository/models/{model}"
_NAMED = "/v2/repository/{repository}/models/{model}"
_MODEL = "/v2/models/{model}"
_VERSION = "/v2/models/{model}/versions/{version}"


class RepositoryRoutes:
    """Lists the models and their configurations, loads and unloads them.

    `max_json_bytes` limits the body of a load.
    """

    def __init__(self, engine: Engine, max_json_bytes: int) -> None:
        self._engine = engine
        self._max_json_bytes = max_json_bytes
        self._offload = engine.offload

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("POST", "/v2/repository/index", "model-repository", self.index),
            Route("POST", "/v2/repository/{repository}/index", "model-repository", self.index),
            Route("POST", f"{_REPOSITORY}/load", "model-repository", self.load),
            Route("POST", f"{_REPOSITORY}/unload", "model-repository", self.unload),
            Route("POST", f"{_NAMED}/load", "model-repository", self.refuse_named),
            Route("POST", f"{_NAMED}/unload", "model-repository", self.refuse_named),
            Route("GET", f"{_MODEL}/config", "model-config", self.config),
            Route("GET", f"{_VERSION}/config", "model-config", self.config),
        ]

    async def index(self, request: HttpRequest, _repository: str = "") -> HttpAnswer:
        """Handle Index (Model Repository extension); ignore a repository's name, as Triton does."""
        ready = v2_repository.decode_index_request(request.body)
        rows = await self._engine.repository_index(ready=ready)
        return HttpAnswer(200, [v2_repository.encode_index(rows)])

    async def load(self, request: HttpRequest, model: str) -> HttpAnswer:
        """Handle Load (Model Repository extension)."""
        self._engine.check_is_explicit()
        decode = v2_repository.decode_load_request
        load = await self._offload.run(
            Work.LOAD_REQUEST, decode, model, request.body, self._max_json_bytes
        )
        await self._engine.load(load)
        return HttpAnswer(200, [v2_repository.encode_loaded(model)])

    async def unload(self, request: HttpRequest, model: str) -> HttpAnswer:
        """Handle Unload (Model Repository extension)."""
        self._engine.check_is_explicit()
        await self._engine.unload(v2_repository.decode_unload_request(model, request.body))
        return HttpAnswer(200, [v2_repository.encode_unloaded(model)])

    async def refuse_named(self, _request: HttpRequest, _repository: str, _model: str) -> NoReturn:
        """Refuse Load and Unload of a named repository (Model Repository extension)."""
        raise v2_repository.one_repository()

    async def config(self, _request: HttpRequest, model: str, version: str = "") -> HttpAnswer:
        """Handle the Model Configuration extension."""
        config = self._engine.model_config(model, version)
        return HttpAnswer(
            200, [await self._offload.run(Work.CONFIG, v2_repository.encode_config, config)]
        )
