"""The gRPC methods that inferd offers, by full name: V2 inference, health checking, reflection."""

import asyncio
from collections.abc import Iterable

from inferd.api.call import V2_SERVICE, grpc_handlers
from inferd.api.grpc_services import (
    HEALTH_SERVICE,
    REFLECTION_SERVICES,
    HealthService,
    Pause,
    reflection_methods,
)
from inferd.api.inference import GrpcInference
from inferd.api.v2.calls import V2_ALONE, Apis
from inferd.api.v2.grpc_stream import stream_handler
from inferd.engine.engine import Engine
from inferd.http.access import OPEN, Access
from inferd.http.grpc.handler import Method, Stream, Unary
from inferd.http.header_forward import HeaderForward
from inferd.wire.v2.grpc.codec import V2Grpc


def grpc_methods(  # noqa: PLR0913
    engine: Engine,
    pause: Pause,
    *,
    typed_answers: bool,
    forward: HeaderForward | None = None,
    access: Access = OPEN,
    apis: Apis = V2_ALONE,
    stopping: asyncio.Event | None = None,
) -> dict[str, Method]:
    """Return every method the server offers by its path, such as /package.Service/Method.

    A Watch checks the engine's readiness again after each `pause`, also after the last, which
    returns that the server does not go on. With `typed_answers` a request
    in typed contents is answered in typed contents. `forward` chooses the metadata of an inference
    that become its parameters. `access` is for calls of mounts that several groups guard.
    `stopping` is set when the server stops.
    """
    codec = V2Grpc(engine.regions.span, typed_answers=typed_answers)
    inference = GrpcInference(engine, codec, forward)
    by_hand: dict[str, Method] = {
        f"/{V2_SERVICE}/ModelInfer": Unary(inference.begin),
        f"/{V2_SERVICE}/ModelStreamInfer": Stream(stream_handler(inference, stopping)),
    }
    for mount in apis.mounts:
        by_hand |= mount.grpc(forward, access)
    # Services, from /package.Service/Method.
    offered = {path.split("/")[1] for path in by_hand}
    by_hand |= HealthService(engine, pause, ("", *sorted(offered))).methods()
    by_hand |= reflection_methods(sorted({*offered, HEALTH_SERVICE, *REFLECTION_SERVICES}))
    return grpc_handlers(apis.calls, engine, by_hand)


def groups_of(paths: Iterable[str], apis: Apis) -> dict[str, str]:
    """Return the API group of each method; one that belongs to none counts as an inference."""
    mounted = {path: group for mount in apis.mounts for path, group in mount.groups.items()}
    groups = {rpc.name: call.group for call in apis.calls for rpc in call.rpcs}
    return {
        # The group that is guarded whenever any is, so that a method that was forgotten is not
        # open.
        path: mounted.get(path) or groups.get(path.rpartition("/")[2], "inference")
        for path in paths
    }
