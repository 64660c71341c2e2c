"""The gRPC methods of the model repository and model configuration extensions."""

from typing import Any

from inferd.aio.offload import Work
from inferd.engine.engine import Engine
from inferd.http.grpc.handler import Call, Method, Unary
from inferd.wire.v2 import repository as v2_repository
from inferd.wire.v2.grpc import metadata as v2_grpc_metadata


class RepositoryMethods:
    """Lists the models and their configurations, loads and unloads them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._offload = engine.offload

    def methods(self) -> dict[str, Method]:
        """Return the methods by name."""
        return {
            "RepositoryIndex": Unary(self.repository_index),
            "RepositoryModelLoad": Unary(self.repository_model_load),
            "RepositoryModelUnload": Unary(self.repository_model_unload),
            "ModelConfig": Unary(self.model_config),
        }

    async def repository_index(self, data: bytes, call: Call) -> list[Any]:
        """Handle RepositoryIndex (Model Repository extension)."""
        ready = v2_repository.decode_index_message(data)
        return [
            v2_repository.encode_index_message(await self._engine.repository_index(ready=ready))
        ]

    async def repository_model_load(self, data: bytes, call: Call) -> list[Any]:
        """Handle RepositoryModelLoad (Model Repository extension)."""
        self._engine.check_is_explicit()
        load = await self._offload.run(Work.LOAD_REQUEST, v2_repository.decode_load_message, data)
        await self._engine.load(load)
        return [v2_repository.encode_done(load.model)]

    async def repository_model_unload(self, data: bytes, call: Call) -> list[Any]:
        """Handle RepositoryModelUnload (Model Repository extension)."""
        self._engine.check_is_explicit()
        unload = v2_repository.decode_unload_message(data)
        await self._engine.unload(unload)
        return [v2_repository.encode_done(unload.model)]

    async def model_config(self, data: bytes, call: Call) -> list[Any]:
        """Handle ModelConfig (Model Configuration extension)."""
        name, version = v2_grpc_metadata.decode_model_request("ModelConfig", data)
        config = self._engine.model_config(name, version)
        return [await self._offload.run(Work.CONFIG, v2_repository.encode_config_message, config)]
