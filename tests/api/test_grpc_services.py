"""The handlers of gRPC health checking alone: bytes in, buffers or an error out, no socket."""

import asyncio
from operator import length_hint

import pytest
from grpc_health.v1 import health_pb2

from inferd.api.call import V2_SERVICE
from inferd.api.grpc_services import HEALTH_SERVICE, HealthService
from inferd.engine.engine import Engine
from inferd.engine.loading.load import LoadOptions
from inferd.errors import InvalidRequest, ServiceNotFound, Unavailable

NAMES = ("", V2_SERVICE)


@pytest.fixture
def engine():
    engine = Engine(load_options=LoadOptions(allow_empty=True))
    engine.readiness.finish_loading()
    return engine


async def no_pause():
    await asyncio.sleep(0)
    return True


def called(engine, rpc, request=None):
    method = HealthService(engine, no_pause, NAMES).methods()[f"/{HEALTH_SERVICE}/{rpc}"]
    data = request.SerializeToString() if request else b""
    return b"".join(asyncio.run(method.handler(data, None)))


def health(engine, service):
    request = health_pb2.HealthCheckRequest(service=service)
    data = called(engine, "Check", request)
    return health_pb2.HealthCheckResponse.FromString(data).status


@pytest.mark.parametrize("service", ["", V2_SERVICE])
def test_a_service_serves_while_the_engine_is_ready(engine, service):
    assert health(engine, service) == health_pb2.HealthCheckResponse.SERVING
    engine.drain()
    assert health(engine, service) == health_pb2.HealthCheckResponse.NOT_SERVING


def test_an_unknown_service_is_not_found(engine):
    with pytest.raises(ServiceNotFound, match="'nope'"):
        health(engine, "nope")


def test_health_lists_both_names(engine):
    data = called(engine, "List")
    assert b"SERVING" not in data and V2_SERVICE.encode() in data


async def messages(*items):
    for item in items:
        yield item


def watched(engine, service, pauses):
    """Return the statuses a watch tells while `pauses` are carried out; then the server stops."""
    steps = iter(pauses)

    async def pause():
        next(steps)()
        return length_hint(steps) > 0

    async def watch():
        method = HealthService(engine, pause, NAMES).methods()[f"/{HEALTH_SERVICE}/Watch"]
        request = health_pb2.HealthCheckRequest(service=service).SerializeToString()
        answers = method.handler(messages(request), None)
        told = []
        try:
            while True:
                data = b"".join(await anext(answers))
                told.append(health_pb2.HealthCheckResponse.FromString(data).status)
        except Unavailable:
            return told

    return asyncio.run(watch())


def test_a_watch_tells_each_change_once(engine):
    assert watched(engine, "", [lambda: None, engine.drain, lambda: None]) == [1, 2]


def test_a_watch_tells_a_change_that_came_with_the_end(engine):
    assert watched(engine, "", [engine.drain]) == [1, 2]


def test_a_watch_on_an_unknown_service_says_so_and_goes_on(engine):
    assert watched(engine, "nope", [lambda: None]) == [3]


def test_a_watch_without_a_message_is_invalid(engine):
    async def watch():
        method = HealthService(engine, no_pause, NAMES).methods()[f"/{HEALTH_SERVICE}/Watch"]
        await anext(method.handler(messages(), None))

    with pytest.raises(InvalidRequest, match="without a message"):
        asyncio.run(watch())
