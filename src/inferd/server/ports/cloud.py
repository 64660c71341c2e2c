"""The ports for cloud platforms and for health checks: which are open, and what answers there."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from inferd.config.ports import has_health_port
from inferd.config.server import ServerConfig
from inferd.engine.engine import Engine
from inferd.server.options import http_options

if TYPE_CHECKING:
    from inferd.api.access import KeyRing
    from inferd.api.v2.calls import Apis
    from inferd.http.request_log import RequestLog
    from inferd.http.routes import Routes
    from inferd.transport.http_server import HttpServer


class CloudPort(NamedTuple):
    """A port to be opened for `protocol`; its options begin with --`word`-."""

    protocol: str
    word: str
    server: "HttpServer"
    address: str
    port: int


def health_port(
    config: ServerConfig,
    engine: Engine,
    address: str,
    ring: "KeyRing | None",
    apis: "Apis | None",
    request_log: "RequestLog | None" = None,
) -> Iterator[CloudPort]:
    """Yield the port for health checks, if `config` asks for one other than the HTTP port."""
    if not has_health_port(config):
        return
    from inferd.api.routes import TableRoutes, log
    from inferd.http.failure import FailureLog
    from inferd.transport.http_server import HttpServer, v2_routes

    options = http_options(config, ring, apis=apis, log=request_log)
    v2 = v2_routes(engine, options)
    routes = TableRoutes(v2.health, v2.tracer, FailureLog(log), access=options.access)
    server = HttpServer(engine, options, routes=routes)
    yield CloudPort("Health", "http-health", server, address, config.http_health_port or 0)


def cloud_ports(
    config: ServerConfig,
    engine: Engine,
    default_address: str,
    ring: "KeyRing | None",
    request_log: "RequestLog | None" = None,
) -> Iterator[CloudPort]:
    """Yield the ports that `config` asks for, with the limits and guards of HTTP but without TLS.

    The platforms terminate TLS themselves, and web pages cannot call them.
    """
    if not (config.allow_sagemaker or config.allow_vertex_ai):
        return
    from inferd.transport.http_server import HttpServer, v2_routes

    options = http_options(config, ring, log=request_log)
    v2 = v2_routes(engine, options)

    def server(routes: "Routes") -> "HttpServer":
        return HttpServer(engine, options, routes=routes)

    if config.allow_sagemaker:
        from inferd.api.cloud import SagemakerRoutes

        sagemaker = SagemakerRoutes(
            engine,
            v2,
            options.access,
            config.sagemaker_default_model or "",
            config.sagemaker_inference_type,
            multi_model=config.sagemaker_multi_model,
        )
        address = config.sagemaker_address or default_address
        port = config.sagemaker_port
        yield CloudPort("SageMaker", "sagemaker", server(sagemaker), address, port)
    if config.allow_vertex_ai:
        from inferd.api.cloud import VertexAiRoutes

        vertex_ai = VertexAiRoutes(
            engine,
            v2,
            options.access,
            config.vertex_ai_default_model or "",
            config.vertex_ai_health_route,
            config.vertex_ai_predict_route,
        )
        address = config.vertex_ai_address or default_address
        port = config.vertex_ai_port
        yield CloudPort("Vertex AI", "vertex-ai", server(vertex_ai), address, port)
