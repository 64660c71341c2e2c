"""Server reflection over gRPC, in each version of its protocol."""

from collections.abc import AsyncIterator, Sequence

from inferd.http.grpc.handler import Call, Method, Stream, StreamHandler
from inferd.memory.buffer import Buffer
from inferd.wire.grpc_reflection import VERSIONS, answer_reflection

_SERVICES = {f"grpc.reflection.{version}.ServerReflection": version for version in VERSIONS}
REFLECTION_SERVICES = tuple(_SERVICES)


def reflection_methods(services: Sequence[str]) -> dict[str, Method]:
    """Return the methods by path; they list `services`."""
    return {
        f"/{service}/ServerReflectionInfo": Stream(_reflect(version, services))
        for service, version in _SERVICES.items()
    }


def _reflect(version: str, services: Sequence[str]) -> StreamHandler:
    async def reflect(messages: AsyncIterator[bytes], _call: Call) -> AsyncIterator[list[Buffer]]:
        async for data in messages:
            yield [answer_reflection(version, data, services)]

    return reflect
