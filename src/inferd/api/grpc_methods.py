"""The gRPC methods that inferd offers, by full name: V2 inference, health checking, reflection."""

from collections.abc import Mapping

from inferd.api.apis import V2_ALONE, Apis
from inferd.api.call import V2_SERVICE, grpc_handlers
from inferd.api.header_forward import header_forward
from inferd.api.health_service import HEALTH_SERVICE, HealthService, Pause
from inferd.api.reflection import REFLECTION_SERVICES, reflection_methods
from inferd.api.trtis.grpc_calls import TRTIS_API_OF, TrtisMethods
from inferd.api.v2.grpc_infer import Inference
from inferd.api.v2.grpc_stream import StreamMethods
from inferd.engine.engine import Engine
from inferd.http.access import OPEN, Access
from inferd.http.grpc.handler import Method, Unary
from inferd.http.header_forward import HeaderForward
from inferd.transport.grpc_options import GrpcOptions


def grpc_methods(
    engine: Engine,
    pause: Pause,
    *,
    typed_answers: bool,
    forward: HeaderForward | None = None,
    access: Access = OPEN,
    apis: Apis = V2_ALONE,
) -> dict[str, Method]:
    """Return every method the server offers by its path, such as /package.Service/Method.

    A Watch checks the engine's readiness again after each `pause`, also after the last, which
    returns that the server does not go on. With `typed_answers` a request
    in typed contents is answered in typed contents. `forward` chooses the metadata of an inference
    that become its parameters. The old API needs `access` for the one call that several groups
    guard.
    """
    inference = Inference(engine, typed_answers=typed_answers, forward=forward)
    streams = StreamMethods(engine, typed_answers=typed_answers, forward=forward).methods()
    by_hand: dict[str, Method] = {
        f"/{V2_SERVICE}/ModelInfer": Unary(inference.model_infer),
        **{f"/{V2_SERVICE}/{rpc}": method for rpc, method in streams.items()},
    }
    if apis.trtis is not None:
        by_hand |= TrtisMethods(apis.trtis, forward, access).methods()
    offered = {path.split("/")[1] for path in by_hand}
    by_hand |= HealthService(engine, pause, ("", *sorted(offered))).methods()
    by_hand |= reflection_methods(sorted({*offered, HEALTH_SERVICE, *REFLECTION_SERVICES}))
    return grpc_handlers(apis.calls, engine, by_hand)


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
        access=access,
        apis=options.apis,
    )
    groups = {rpc.name: call.group for call in options.apis.calls for rpc in call.rpcs}
    methods = {}
    for path, method in (*ours.items(), *more.items()):
        api = TRTIS_API_OF.get(path) or groups.get(path.rpartition("/")[2], "inference")
        guard = access.guard(api)
        methods[path] = method._replace(guard=guard, is_refusable=api == "inference")
    return methods
