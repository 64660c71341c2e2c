"""The gRPC methods of the model repository and model configuration extensions."""

from typing import Any

from inferd.engine.engine import Engine
from inferd.transport.call import Call, Method, Unary
from inferd.transport.lane import Lane
from inferd.wire import v2_grpc_metadata, v2_repository


class RepositoryMethods:
    """Tells which models there are and how they are configured."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._encoding = Lane("inferd-config")

    def methods(self) -> dict[str, Method]:
        """Return the methods by name."""
        return {
            "RepositoryIndex": Unary(self.repository_index),
            "ModelConfig": Unary(self.model_config),
        }

    async def repository_index(self, data: bytes, call: Call) -> list[Any]:
        """Model Repository extension, RepositoryIndex."""
        ready = v2_repository.decode_index_message(data)
        return [v2_repository.encode_index_message(self._engine.index(ready=ready))]

    async def model_config(self, data: bytes, call: Call) -> list[Any]:
        """Model Configuration extension."""
        name, version = v2_grpc_metadata.decode_model_request("ModelConfig", data)
        config = self._engine.model_config(name, version)
        return [await self._encoding.run(v2_repository.encode_config_message, config)]
