"""The URLs of cloud platforms: V2's calls under other URLs and types, on ports of their own.

Inference requests have V2's format. The platforms pass few headers on, so the Content-Type says
where the binary data begin.
"""

import asyncio
import logging
import re
from collections.abc import Iterable
from copy import copy
from pathlib import Path
from urllib.parse import quote

from inferd.api.routes import HttpRoutes, TableRoutes, error_answer
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.engine.engine import Engine
from inferd.errors import InferdError, InvalidRequest
from inferd.http.access import Access, Headers
from inferd.http.failure import FailureLog
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import Route, path_of
from inferd.observe.log import printable
from inferd.wire.cloud import BinaryType, Load, decode_load, encode_model, encode_models
from inferd.wire.v2.binary import HEADER_KEY

NOT_READY = 503
"""The status of failed health checks; both platforms look only at the status."""

# V2 tells the size of the JSON in a header of its own, which the platforms do not pass on.
_SIZE = re.compile(rb"^%b: ([0-9]+)\r$" % HEADER_KEY, re.IGNORECASE | re.MULTILINE)


class CloudRoutes(TableRoutes):
    """Answers a platform's calls, those of `routes`, with those of `v2`.

    `default` is the model for requests that name none, "" for the only one there is. Of each
    platform, `flag` is the option that sets it; binary tensor data are sent and received as
    `binary_type`.
    """

    flag: str
    binary_type: BinaryType

    def __init__(
        self,
        engine: Engine,
        v2: HttpRoutes,
        access: Access,
        default: str,
        routes: Iterable[Route],
        failures: FailureLog,
    ) -> None:
        super().__init__(routes, v2.tracer, failures, forward=v2.forward, access=access)
        self._engine = engine
        self._v2 = v2
        self._default = default

    async def infer(self, request: HttpRequest, model: str = "", verb: str = "infer") -> HttpAnswer:
        """Return V2's answer to `verb` of `model`, "" for the default model."""
        # The request may be shared by all that are alike; only this call's target changes.
        passed_on = copy(request)
        # A model's name may hold characters that a path gives a meaning to.
        name = quote(model or self.default_model(), safe="")
        passed_on.target = f"/v2/models/{name}/{verb}".encode()
        return await self.of_v2(passed_on)

    async def of_v2(self, request: HttpRequest) -> HttpAnswer:
        """Return V2's answer to `request`, whose target is one of V2's."""
        headers = request.headers
        size = self.binary_type.json_size(headers.get(b"content-type", b""))
        if size is not None:
            request = copy(request)
            request.headers = {**headers, HEADER_KEY: size}
        answer = await self._v2.answer(request)
        if found := _SIZE.search(answer.headers):
            answer.content_type = self.binary_type.with_size(found[1])
        return answer

    def default_model(self) -> str:
        """Return the model for requests that name none. Raises InvalidRequest if it is unclear."""
        if self._default:
            return self._default
        # All known models, ready or not: with one that still loads, it is clear which is meant.
        names = {row.name for row in self._engine.catalog.index()}
        if len(names) == 1:
            return names.pop()
        raise InvalidRequest(
            f"the request names no model, and there are {len(names)}: {self.flag} says which one "
            f"is meant"
        )


def _health(*, ready: bool) -> HttpAnswer:
    """Return the answer to a health check: a status and an empty body."""
    return HttpAnswer(200 if ready else NOT_READY, [])


_SHOWN = 200

sagemaker_log = logging.getLogger("inferd.sagemaker")

TARGET_MODEL = b"x-amzn-sagemaker-target-model"
"""The header with the name of the model's archive, by which SageMaker's clients know the model."""

_NO_MEMORY = re.compile(
    r"out of memory|cannot allocate memory|MemoryError|bad_alloc", re.IGNORECASE
)


class SagemakerRoutes(CloudRoutes):
    """Answers the calls of Amazon SageMaker.

    /invocations calls `verb` of V2 (infer, generate or generate_stream) on `default_model`, "" for
    the only one there is. With `multi_model` SageMaker loads and unloads the models.
    """

    flag = "--sagemaker-default-model"
    binary_type = BinaryType("application/vnd.sagemaker-triton.binary+json")

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
        self._verb = verb
        self._is_multi_model = multi_model
        # Of the models that SageMaker has loaded. The engine's: in a server of several processes,
        # another may have been asked for the load.
        self._folders = engine.control.placed
        self._loading: dict[str, asyncio.Task[InferdError | None]] = {}
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
        super().__init__(engine, v2, access, default_model, routes, FailureLog(sagemaker_log))

    async def ping(self, _request: HttpRequest) -> HttpAnswer:
        """Answer a health check: ready, or with `multi_model` live, as models are loaded later."""
        server = self._engine.readiness
        return _health(ready=server.is_live() if self._is_multi_model else server.is_ready())

    async def invoke(self, request: HttpRequest) -> HttpAnswer:
        """Run an inference of the default model."""
        return await self.infer(request, verb=self._verb)

    async def invoke_named(self, request: HttpRequest, model: str) -> HttpAnswer:
        """Run an inference of a model that has been loaded."""
        # V2 could load models that SageMaker does not know of; here they are not found.
        if model not in self._folders:
            return _not_loaded(model)
        return await self.infer(request, model, self._verb)

    async def models(self, _request: HttpRequest) -> HttpAnswer:
        """Return the models that are loaded, all on one page."""
        urls = {name: str(folder) for name, folder in self._folders.items()}
        return HttpAnswer(200, [encode_models(urls)])

    async def model(self, _request: HttpRequest, model: str) -> HttpAnswer:
        """Return one model that is loaded."""
        folder = self._folders.get(model)
        if folder is None:
            return _not_loaded(model)
        return HttpAnswer(200, [encode_model(model, str(folder))])

    async def load(self, request: HttpRequest) -> HttpAnswer:
        """Load the model in a folder under the name that SageMaker gives it."""
        load = decode_load(request.body)
        name = load.model_name
        if name in self._folders or name in self._loading:
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
        sagemaker_log.info("model '%s' is SageMaker's '%s'", printable(name), printable(target))
        return None

    async def unload(self, _request: HttpRequest, model: str) -> HttpAnswer:
        """Unload a model."""
        if model not in self._folders:
            return _not_loaded(model)
        await self._engine.changes.unload(UnloadRequest(model))
        return HttpAnswer(200, [b"{}"])


def _not_loaded(model: str) -> HttpAnswer:
    return error_answer(404, f"model '{model[:_SHOWN]}' is not loaded")


REDIRECT = b"x-vertex-ai-triton-redirect"
"""The header with a path of V2, such as v2/models/m/config."""


class VertexAiRoutes(CloudRoutes):
    """Answers the calls of Google's Vertex AI at the paths it has chosen: health and predictions.

    `default_model` is the model for predictions, "" for the only one there is. A header may
    redirect a prediction to any other URL of V2, since the platform has one URL for everything.
    """

    flag = "--vertex-ai-default-model"
    binary_type = BinaryType("application/vnd.vertex-ai-triton.binary+json")

    def __init__(
        self,
        engine: Engine,
        v2: HttpRoutes,
        access: Access,
        default_model: str,
        health: str,
        predict: str,
    ) -> None:
        self._predict_path = predict.encode()
        routes = [
            Route("GET", health, "health", self.health),
            Route("POST", predict, "inference", self.predict),
        ]
        failures = FailureLog(logging.getLogger("inferd.vertex_ai"))
        super().__init__(engine, v2, access, default_model, routes, failures)

    async def health(self, _request: HttpRequest) -> HttpAnswer:
        """Answer a health check: whether the server is ready."""
        return _health(ready=self._engine.readiness.is_ready())

    async def predict(self, request: HttpRequest) -> HttpAnswer:
        """Run an inference of the default model."""
        return await self.infer(request)

    # Else a redirect would be a way around the guards of V2's calls.
    def check_access(self, target: bytes, headers: Headers) -> None:
        """See Routes.check_access; a redirected prediction is checked as V2's target."""
        led_to = self._led_to(target, headers)
        if led_to is None:
            super().check_access(target, headers)
        else:
            self._v2.check_access(led_to, headers)

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer to `request`, whatever happens."""
        target = self._led_to(request.target, request.headers)
        if target is None:
            return await super().answer(request)
        verbs = self._v2.verbs(target)
        # The platform sends only POST, even for calls that V2 offers only as GET.
        method = b"GET" if b"GET" in verbs and b"POST" not in verbs else request.method
        passed_on = copy(request)
        passed_on.target, passed_on.method = target, method
        try:
            return await self.of_v2(passed_on)
        except InferdError as error:
            return self.refusal(request, error)

    def _led_to(self, target: bytes, headers: Headers) -> bytes | None:
        """Return the V2 target that a prediction's header names, None if it names none."""
        path = headers.get(REDIRECT)
        if path is None or path_of(target).rstrip(b"/") != self._predict_path:
            return None
        # With and without the leading slash; one is what a path needs.
        return b"/" + path.strip().lstrip(b"/")
