"""The gRPC methods that inferd offers, by full name: V2 inference, health checking, reflection.

One handler per method: the codec decodes the message, the engine answers, the codec encodes.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from inferd.api.header_forward import header_forward
from inferd.api.trtis.grpc_calls import TRTIS_API_OF, TrtisMethods
from inferd.api.trtis.trtis import Trtis
from inferd.api.v2.grpc_infer import Inference
from inferd.api.v2.grpc_logging import LoggingMethods
from inferd.api.v2.grpc_repository import RepositoryMethods
from inferd.api.v2.grpc_shared_memory import SharedMemoryMethods
from inferd.api.v2.grpc_statistics import StatisticsMethods
from inferd.api.v2.grpc_stream import StreamMethods
from inferd.api.v2.grpc_trace import TraceMethods
from inferd.engine.engine import Engine
from inferd.errors import (
    InvalidRequest,
    ModelNotFound,
    ServiceNotFound,
    Unavailable,
)
from inferd.http.access import OPEN, Access
from inferd.http.grpc.handler import Call, Method, Stream, StreamHandler, Unary
from inferd.http.header_forward import HeaderForward
from inferd.transport.grpc_options import GrpcOptions
from inferd.wire import grpc_health, grpc_reflection
from inferd.wire.grpc_health import Serving
from inferd.wire.v2.grpc import metadata as v2_grpc_metadata

V2_SERVICE = "inference.GRPCInferenceService"
HEALTH_SERVICE = "grpc.health.v1.Health"

MLSERVER_REPOSITORY_SERVICE = "inference.model_repository.ModelRepositoryService"
"""MLServer's own service for the Model Repository extension, with V2's messages.

It is kept for old clients such as ModelMesh's adapter; reflection does not list it.
"""

Pause = Callable[[], Awaitable[bool]]


_RPCS = {
    "health": "ServerLive ServerReady ModelReady Check List Watch",
    "metadata": "ServerMetadata ModelMetadata ServerReflectionInfo",
    "inference": "ModelInfer ModelStreamInfer",
    "shared-memory": "SystemSharedMemoryStatus SystemSharedMemoryRegister "
    "SystemSharedMemoryUnregister CudaSharedMemoryStatus CudaSharedMemoryRegister "
    "CudaSharedMemoryUnregister",
    "model-config": "ModelConfig",
    "model-repository": "RepositoryIndex RepositoryModelLoad RepositoryModelUnload",
    "statistics": "ModelStatistics",
    "trace": "TraceSetting",
    "logging": "LogSettings",
}
API_OF = {rpc: api for api, rpcs in _RPCS.items() for rpc in rpcs.split()}
"""The API group of each method, by the method's name."""


def grpc_methods(
    engine: Engine,
    pause: Pause,
    *,
    typed_answers: bool,
    forward: HeaderForward | None = None,
    trtis: Trtis | None = None,
    access: Access = OPEN,
) -> dict[str, Method]:
    """Return every method the server offers by its path, such as /package.Service/Method.

    A Watch checks the engine's readiness again after each `pause`, also after the last, which
    returns that the server does not go on. With `typed_answers` a request
    in typed contents is answered in typed contents. `forward` chooses the metadata of an inference
    that become its parameters. `trtis` is the old API, if it is offered; it needs `access` for the
    one call that several groups guard.
    """
    v2: dict[str, Method] = {
        **_V2(engine, typed_answers=typed_answers, forward=forward).methods(),
        **StreamMethods(engine, typed_answers=typed_answers, forward=forward).methods(),
        **RepositoryMethods(engine).methods(),
        **LoggingMethods(engine.log).methods(),
        **TraceMethods(engine).methods(),
        **SharedMemoryMethods(engine.regions).methods(),
        **StatisticsMethods(engine).methods(),
    }
    methods = {f"/{V2_SERVICE}/{rpc}": method for rpc, method in v2.items()}
    if trtis is not None:
        methods.update(TrtisMethods(trtis, forward, access).methods())
    checked = ("", *sorted({path.split("/")[1] for path in methods}))
    methods.update(_Health(engine, pause, checked).methods())
    reflection = [f"grpc.reflection.{version}.ServerReflection" for version in _REFLECTION]
    services = sorted({path.split("/")[1] for path in methods} | set(reflection))
    for service, version in zip(reflection, _REFLECTION, strict=True):
        methods[f"/{service}/ServerReflectionInfo"] = Stream(_reflect(version, services))
    for rpc in _RPCS["model-repository"].split():
        methods[f"/{MLSERVER_REPOSITORY_SERVICE}/{rpc}"] = v2[rpc]
    return methods


def port_methods(
    engine: Engine, options: GrpcOptions, pause: Pause, more: Mapping[str, Method]
) -> dict[str, Method]:
    """Return the methods of one port by path: ours and `more`, each with its guard.

    A method that belongs to no API group counts as an inference.
    """
    where, secret = "--grpc-header-forward-pattern", options.access.secret_names
    forward = header_forward(options.header_forward_pattern, where, secret)
    access = options.access
    ours = grpc_methods(
        engine,
        pause,
        typed_answers=options.typed_answers,
        forward=forward,
        trtis=options.trtis,
        access=access,
    )
    methods = {}
    for path, method in (*ours.items(), *more.items()):
        api = TRTIS_API_OF.get(path) or API_OF.get(path.rpartition("/")[2], "inference")
        guard = access.guard(api)
        methods[path] = method._replace(guard=guard, is_refusable=api == "inference")
    return methods


_REFLECTION = grpc_reflection.VERSIONS


class _V2:
    """The handlers of GRPCInferenceService (Open Inference Protocol)."""

    def __init__(
        self, engine: Engine, *, typed_answers: bool, forward: HeaderForward | None
    ) -> None:
        self._engine = engine
        self._inference = Inference(engine, typed_answers=typed_answers, forward=forward)

    def methods(self) -> dict[str, Method]:
        """Return the methods by name."""
        return {
            "ServerLive": Unary(self.server_live),
            "ServerReady": Unary(self.server_ready),
            "ModelReady": Unary(self.model_ready),
            "ServerMetadata": Unary(self.server_metadata),
            "ModelMetadata": Unary(self.model_metadata),
            "ModelInfer": Unary(self._inference.model_infer),
        }

    async def server_live(self, data: bytes, call: Call) -> list[Any]:
        v2_grpc_metadata.decode_server_request("ServerLive", data)
        return [v2_grpc_metadata.encode_live(live=self._engine.is_live())]

    async def server_ready(self, data: bytes, call: Call) -> list[Any]:
        v2_grpc_metadata.decode_server_request("ServerReady", data)
        return [v2_grpc_metadata.encode_ready("ServerReady", ready=self._engine.is_ready())]

    async def model_ready(self, data: bytes, call: Call) -> list[Any]:
        name, version = v2_grpc_metadata.decode_model_request("ModelReady", data)
        try:
            ready = await self._engine.says_ready(name, version)
        except ModelNotFound:
            ready = False  # Triton's answer; clients ask before they load a model
        return [v2_grpc_metadata.encode_ready("ModelReady", ready=ready)]

    async def server_metadata(self, data: bytes, call: Call) -> list[Any]:
        v2_grpc_metadata.decode_server_request("ServerMetadata", data)
        return [v2_grpc_metadata.encode_server_metadata(self._engine.server_metadata())]

    async def model_metadata(self, data: bytes, call: Call) -> list[Any]:
        name, version = v2_grpc_metadata.decode_model_request("ModelMetadata", data)
        metadata = self._engine.model_metadata(name, version)
        return [v2_grpc_metadata.encode_model_metadata(metadata)]


class _Health:
    """The handlers of grpc.health.v1: a service is serving while the engine is ready.

    `services` are the names it knows, "" for the server as a whole among them.
    """

    def __init__(self, engine: Engine, pause: Pause, services: Sequence[str]) -> None:
        self._engine = engine
        self._pause = pause
        self._services = services

    def methods(self) -> dict[str, Method]:
        """Return the service's methods by path."""
        return {
            f"/{HEALTH_SERVICE}/Check": Unary(self.check),
            f"/{HEALTH_SERVICE}/List": Unary(self.list_all),
            f"/{HEALTH_SERVICE}/Watch": Stream(self.watch),
        }

    async def check(self, data: bytes, call: Call) -> list[Any]:
        service = grpc_health.decode_check_request(data)
        status = self._status(service)
        if status is Serving.SERVICE_UNKNOWN:
            known = ", ".join(map(repr, self._services))
            msg = f"there is no service '{service}' here, expected one of {known}"
            raise ServiceNotFound(msg)
        return [grpc_health.encode_check_response(status)]

    async def list_all(self, data: bytes, call: Call) -> list[Any]:
        grpc_health.decode_list_request(data)
        statuses = {service: self._status(service) for service in self._services}
        return [grpc_health.encode_list_response(statuses)]

    async def watch(self, messages: AsyncIterator[bytes], call: Call) -> AsyncIterator[list[Any]]:
        service = grpc_health.decode_check_request(await _only_message(messages))
        told = None
        goes_on = True
        while True:
            status = self._status(service)
            if status is not told:
                told = status
                yield [grpc_health.encode_check_response(status)]
            if not goes_on:
                msg = "the server is shutting down"
                raise Unavailable(msg)
            goes_on = await self._pause()

    def _status(self, service: str) -> Serving:
        if service not in self._services:
            return Serving.SERVICE_UNKNOWN
        return Serving.SERVING if self._engine.is_ready() else Serving.NOT_SERVING


async def _only_message(messages: AsyncIterator[bytes]) -> bytes:
    async for data in messages:
        return data
    msg = "the call ended without a message, expected one"
    raise InvalidRequest(msg)


def _reflect(version: str, services: Iterable[str]) -> StreamHandler:
    async def reflect(messages: AsyncIterator[bytes], call: Call) -> AsyncIterator[list[Any]]:
        async for data in messages:
            yield [grpc_reflection.answer_reflection(version, data, services)]

    return reflect
