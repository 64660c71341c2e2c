"""The URLs of Amazon SageMaker, which its containers answer on a port of their own.

Inference requests go to /invocations and have V2's format. SageMaker passes few headers on, so the
Content-Type says where the binary data begin.
"""

import asyncio
import logging
import re
from pathlib import Path

from inferd.api.cloud.port import CloudCalls
from inferd.api.routes import HttpRoutes, TableRoutes, error_answer
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.engine.engine import Engine
from inferd.errors import InferdError
from inferd.http.access import Access
from inferd.http.failure import FailureLog
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import Route
from inferd.observe.log import printable
from inferd.wire.sagemaker import Load, decode_load, encode_model, encode_models
from inferd.wire.v2.content_type import BinaryType

_SHOWN = 200

log = logging.getLogger("inferd.sagemaker")

BINARY_TYPE = BinaryType("application/vnd.sagemaker-triton.binary+json")


TARGET_MODEL = b"x-amzn-sagemaker-target-model"
"""The header with the name of the model's archive, by which SageMaker's clients know the model."""

_NO_MEMORY = re.compile(
    r"out of memory|cannot allocate memory|MemoryError|bad_alloc", re.IGNORECASE
)


class SagemakerRoutes(TableRoutes):
    """Answers SageMaker's calls with those of `v2`.

    /invocations calls `verb` of V2 (infer, generate or generate_stream) on `default_model`, "" for
    the only one there is. With `multi_model` SageMaker loads and unloads the models.
    """

    def __init__(
        self,
        engine: Engine,
        v2: HttpRoutes,
        access: Access,
        default_model: str,
        verb: str,
        *,
        multi_model: bool = False,
    ) -> None:
        self._engine = engine
        self._verb = verb
        self._is_multi_model = multi_model
        self._urls: dict[str, str] = {}  # of the models that SageMaker has loaded
        self._loading: dict[str, asyncio.Task[InferdError | None]] = {}
        flag = "--sagemaker-default-model"
        self._calls = CloudCalls(engine, v2, BINARY_TYPE, default_model, flag)
        routes = [
            Route("GET", "/ping", "health", self.ping),
            Route("POST", "/invocations", "inference", self.invoke),
        ]
        if multi_model:
            routes += [
                Route("GET", "/models", "model-repository", self.models),
                Route("POST", "/models", "model-repository", self.load),
                Route("GET", "/models/{model}", "model-repository", self.model),
                Route("DELETE", "/models/{model}", "model-repository", self.unload),
                Route("POST", "/models/{model}/invoke", "inference", self.invoke_named),
            ]
        super().__init__(routes, v2.tracer, FailureLog(log), forward=v2.forward, access=access)

    async def ping(self, _request: HttpRequest) -> HttpAnswer:
        """Answer a health check: ready, or with `multi_model` live, as models are loaded later."""
        server = self._engine.readiness
        return self._calls.health(
            ready=server.is_live() if self._is_multi_model else server.is_ready()
        )

    async def invoke(self, request: HttpRequest) -> HttpAnswer:
        """Run an inference of the default model."""
        return await self._calls.infer(request, verb=self._verb)

    async def invoke_named(self, request: HttpRequest, model: str) -> HttpAnswer:
        """Run an inference of a model that has been loaded."""
        # V2 could load models that SageMaker does not know of; here they are not found.
        if model not in self._urls:
            return _not_loaded(model)
        return await self._calls.infer(request, model, self._verb)

    async def models(self, _request: HttpRequest) -> HttpAnswer:
        """Return the models that are loaded, all on one page."""
        return HttpAnswer(200, [encode_models(self._urls)])

    async def model(self, _request: HttpRequest, model: str) -> HttpAnswer:
        """Return one model that is loaded."""
        url = self._urls.get(model)
        return _not_loaded(model) if url is None else HttpAnswer(200, [encode_model(model, url)])

    async def load(self, request: HttpRequest) -> HttpAnswer:
        """Load the model in a folder under the name that SageMaker gives it."""
        load = decode_load(request.body)
        name = load.model_name
        if name in self._urls or name in self._loading:
            return error_answer(409, f"model '{name[:_SHOWN]}' is loaded already, or loading")
        target = request.headers.get(TARGET_MODEL, b"").decode("latin-1")
        # If the client goes away, the load goes on, and the model must then be known as loaded.
        task = self._loading[name] = asyncio.create_task(self._load(load, target))
        error = await asyncio.shield(task)
        if error is None:
            return HttpAnswer(200, [encode_model(name, load.url)])
        if _NO_MEMORY.search(error.message):
            # On 507 SageMaker unloads other models and tries again. Frameworks report a lack of
            # memory only in their error texts.
            return error_answer(507, error.message)
        raise error

    async def _load(self, load: Load, target: str) -> InferdError | None:
        name = load.model_name
        try:
            await self._engine.changes.load(LoadRequest(name, folder=Path(load.url)))
        except InferdError as error:
            return error
        finally:
            del self._loading[name]
        self._urls[name] = load.url
        log.info("model '%s' is SageMaker's '%s'", printable(name), printable(target))
        return None

    async def unload(self, _request: HttpRequest, model: str) -> HttpAnswer:
        """Unload a model."""
        if model not in self._urls:
            return _not_loaded(model)
        await self._engine.changes.unload(UnloadRequest(model))
        # Two unloads at once may both come here.
        self._urls.pop(model, None)
        return HttpAnswer(200, [b"{}"])


def _not_loaded(model: str) -> HttpAnswer:
    return error_answer(404, f"model '{model[:_SHOWN]}' is not loaded")
