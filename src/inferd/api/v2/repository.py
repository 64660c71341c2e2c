"""The calls of the model repository and model configuration extensions."""

from functools import partial

from inferd.aio.offload import Work
from inferd.api.call import V2_SERVICE, ApiCall, Rest, Rpc
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.engine.engine import Engine
from inferd.wire.v2 import model_config
from inferd.wire.v2 import repository as wire
from inferd.wire.v2.grpc.metadata import decode_model_request

MLSERVER_SERVICE = "inference.model_repository.ModelRepositoryService"
"""MLServer's own service for the Model Repository extension, with V2's messages.

It is there for old clients such as ModelMesh's adapter; reflection does not list it.
"""

_LOADING = "/v2/repository[/{repository}]/models/{model}"
_SERVICES = (V2_SERVICE, MLSERVER_SERVICE)


async def load(engine: Engine, request: LoadRequest) -> str:
    """Load a model; return its name."""
    await engine.changes.load(request)
    return request.model


async def unload(engine: Engine, request: UnloadRequest) -> str:
    """Unload a model; return its name."""
    await engine.changes.unload(request)
    return request.model


def _check(engine: Engine, *names: str) -> None:
    if len(names) > 1:
        raise wire.one_repository()
    engine.control.check_is_explicit()


CALLS = (
    ApiCall(
        "model-repository",
        "model_repository",
        Rest(
            "POST",
            "/v2/repository[/{repository}]/index",
            "index",
            "Which models there are, and their states.",
            "Index",
            "IndexRequest",
            (400,),
            decode=wire.decode_index_request,
            encode=wire.encode_index,
        ),
        Rpc(
            "RepositoryIndex",
            wire.decode_index_message,
            wire.encode_index_message,
            services=_SERVICES,
        ),
        function=lambda engine, ready: engine.control.index(ready=ready),
    ),
    ApiCall(
        "model-repository",
        "model_repository",
        Rest(
            "POST",
            f"{_LOADING}/load",
            "load",
            "Load a model.",
            "Loaded",
            "LoadRequest",
            (400, 404, 500, 501, 503),
            decode=wire.decode_load_request,
            encode=wire.encode_loaded,
            check=_check,
            has_limit=True,
        ),
        Rpc("RepositoryModelLoad", wire.decode_load_message, wire.encode_done, _check, _SERVICES),
        function=load,
        decode_work=Work.LOAD_REQUEST,
    ),
    ApiCall(
        "model-repository",
        "model_repository",
        Rest(
            "POST",
            f"{_LOADING}/unload",
            "unload",
            "Unload a model.",
            "Unloaded",
            "UnloadRequest",
            (400, 501, 503),
            decode=wire.decode_unload_request,
            encode=wire.encode_unloaded,
            check=_check,
        ),
        Rpc(
            "RepositoryModelUnload", wire.decode_unload_message, wire.encode_done, _check, _SERVICES
        ),
        function=unload,
    ),
    ApiCall(
        "model-config",
        "model_configuration",
        Rest(
            "GET",
            "/v2/models/{model}[/versions/{version}]/config",
            "modelConfig",
            "The configuration in force.",
            "ModelConfig",
            errors=(404, 503),
            encode=model_config.encode_config,
        ),
        Rpc(
            "ModelConfig",
            partial(decode_model_request, "ModelConfig"),
            model_config.encode_config_message,
        ),
        function=lambda engine, model, version="": engine.find(model, version).shown_config(),
        encode_work=Work.CONFIG,
    ),
)
