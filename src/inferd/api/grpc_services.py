"""The services of gRPC itself: health checking, and server reflection in each of its versions."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest, ServiceNotFound, Unavailable
from inferd.http.grpc.handler import Call, Method, Stream, StreamHandler, Unary
from inferd.memory.buffer import Buffer
from inferd.wire import grpc_services as wire
from inferd.wire.grpc_services import Serving

HEALTH_SERVICE = "grpc.health.v1.Health"

_REFLECTION = {f"grpc.reflection.{version}.ServerReflection": version for version in wire.VERSIONS}
REFLECTION_SERVICES = tuple(_REFLECTION)

Pause = Callable[[], Awaitable[bool]]
"""Waits until readiness may have changed; returns whether the server goes on."""


class HealthService:
    """The handlers of grpc.health.v1.Health: a service is serving while the engine is ready.

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

    async def check(self, data: bytes, _call: Call) -> list[Buffer]:
        """Return the status of one service. Raises ServiceNotFound."""
        service = wire.decode_check_request(data)
        status = self._status(service)
        # NOT_FOUND for Check, a status for Watch: gRPC's health checking protocol.
        if status is Serving.SERVICE_UNKNOWN:
            known = ", ".join(map(repr, self._services))
            raise ServiceNotFound(f"there is no service '{service}' here, expected one of {known}")
        return [wire.encode_check_response(status)]

    async def list_all(self, data: bytes, _call: Call) -> list[Buffer]:
        """Return the status of each service."""
        wire.decode_list_request(data)
        statuses = {service: self._status(service) for service in self._services}
        return [wire.encode_list_response(statuses)]

    async def watch(
        self, messages: AsyncIterator[bytes], _call: Call
    ) -> AsyncIterator[list[Buffer]]:
        """Yield the status of a service, and each that differs from the one before."""
        service = wire.decode_check_request(await _only_message(messages))
        sent = None
        goes_on = True
        while True:
            status = self._status(service)
            # A status is sent only when it has changed (health.proto, Watch).
            if status is not sent:
                sent = status
                yield [wire.encode_check_response(status)]
            if not goes_on:
                msg = "the server is shutting down"
                # After NOT_SERVING has been sent: `pause` returned False, and the loop came round
                # once more.
                raise Unavailable(msg)
            goes_on = await self._pause()

    def _status(self, service: str) -> Serving:
        if service not in self._services:
            return Serving.SERVICE_UNKNOWN
        return Serving.SERVING if self._engine.readiness.is_ready() else Serving.NOT_SERVING


async def _only_message(messages: AsyncIterator[bytes]) -> bytes:
    async for data in messages:
        return data
    raise InvalidRequest("the call ended without a message, expected one")


def reflection_methods(services: Sequence[str]) -> dict[str, Method]:
    """Return the methods by path; they list `services`."""
    return {
        f"/{service}/ServerReflectionInfo": Stream(_reflect(version, services))
        for service, version in _REFLECTION.items()
    }


def _reflect(version: str, services: Sequence[str]) -> StreamHandler:
    async def reflect(messages: AsyncIterator[bytes], _call: Call) -> AsyncIterator[list[Buffer]]:
        async for data in messages:
            yield [wire.answer_reflection(version, data, services)]

    return reflect
