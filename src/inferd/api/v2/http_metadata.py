"""The URLs that describe the server and its models: health and metadata."""

from inferd.engine.engine import Engine
from inferd.errors import ModelNotFound
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import Route
from inferd.wire.v2.rest import metadata as wire

_VERSION = "/v2/models/{model}/versions/{version}"


class MetadataRoutes:
    """Reports the health and the metadata of the server and its models (V2)."""

    def __init__(self, engine: Engine, not_ready_status: int) -> None:
        self._engine = engine
        self._not_ready_status = not_ready_status

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("GET", "/v2", "metadata", self.server_metadata),
            Route("GET", "/v2/health/live", "health", self.live),
            Route("GET", "/v2/health/ready", "health", self.ready),
            Route("GET", "/v2/models", "metadata", self.model_names),
            Route("GET", "/v2/models/{model}", "metadata", self.model_metadata),
            Route("GET", _VERSION, "metadata", self.model_metadata),
            Route("GET", "/v2/models/{model}/ready", "health", self.model_ready),
            Route("GET", f"{_VERSION}/ready", "health", self.model_ready),
        ]

    async def live(self, _request: HttpRequest) -> HttpAnswer:
        """Handle V2 Server Live."""
        live = self._engine.is_live()
        return HttpAnswer(200 if live else self._not_ready_status, [wire.encode_live(live=live)])

    async def ready(self, _request: HttpRequest) -> HttpAnswer:
        """Handle V2 Server Ready; the body has both spellings found in the specs."""
        if self._engine.is_ready():
            return HttpAnswer(200, [wire.encode_ready(ready=True)])
        text = "the server is not ready for inference"
        return HttpAnswer(self._not_ready_status, [wire.encode_ready(ready=False, error=text)])

    async def model_ready(self, _request: HttpRequest, model: str, version: str = "") -> HttpAnswer:
        """Handle V2 Model Ready."""
        try:
            if await self._engine.says_ready(model, version):
                return HttpAnswer(200, [wire.encode_model_ready(model, ready=True)])
            status, text = self._not_ready_status, f"model '{model}' is not ready"
        except ModelNotFound as error:
            status, text = 404, error.message
        return HttpAnswer(status, [wire.encode_model_ready(model, ready=False, error=text)])

    async def server_metadata(self, _request: HttpRequest) -> HttpAnswer:
        """Handle V2 Server Metadata."""
        return HttpAnswer(200, [wire.encode_server_metadata(self._engine.server_metadata())])

    async def model_metadata(
        self, _request: HttpRequest, model: str, version: str = ""
    ) -> HttpAnswer:
        """Handle V2 Model Metadata."""
        metadata = self._engine.model_metadata(model, version)
        return HttpAnswer(200, [wire.encode_model_metadata(metadata)])

    async def model_names(self, _request: HttpRequest) -> HttpAnswer:
        """Return the models that are ready, as KServe lists them."""
        return HttpAnswer(200, [wire.encode_model_names(self._engine.model_names())])
