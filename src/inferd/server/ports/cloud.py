"""The ports for cloud platforms and for health checks: which are open, and what answers there."""

from typing import TYPE_CHECKING

from inferd.config.ports import has_health_port
from inferd.config.server import ServerConfig
from inferd.engine.engine import Engine
from inferd.server.options import http_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferd.api.access import KeyRing
    from inferd.api.v2.calls import Apis
    from inferd.http.request_log import RequestLog
    from inferd.transport.http_server import HttpServer


def health_port(
    config: ServerConfig,
    engine: Engine,
    ring: "KeyRing | None",
    apis: "Apis | None",
    request_log: "RequestLog | None" = None,
) -> "Iterator[tuple[str, HttpServer]]":
    """Yield what answers health checks, if `config` asks for a port other than the HTTP port."""
    if not has_health_port(config):
        return
    from inferd.api.routes import TableRoutes, log
    from inferd.http.failure import FailureLog
    from inferd.transport.http_server import HttpServer, v2_routes

    options = http_options(config, ring, apis=apis, log=request_log)
    v2 = v2_routes(engine, options)
    routes = TableRoutes(v2.health, v2.tracer, FailureLog(log), access=options.access)
    yield "Health", HttpServer(engine, options, routes=routes)


def cloud_ports(
    config: ServerConfig,
    engine: Engine,
    ring: "KeyRing | None",
    request_log: "RequestLog | None" = None,
) -> "Iterator[tuple[str, HttpServer]]":
    """Yield what answers at the ports that `config` asks for, by protocol.

    They have the limits and guards of HTTP, but no TLS: the platforms terminate that themselves,
    and web pages cannot call them.
    """
    if not (config.allow_sagemaker or config.allow_vertex_ai):
        return
    from inferd.transport.http_server import HttpServer, v2_routes

    options = http_options(config, ring, log=request_log)
    v2 = v2_routes(engine, options)

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
        yield "SageMaker", HttpServer(engine, options, routes=sagemaker)
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
        yield "Vertex AI", HttpServer(engine, options, routes=vertex_ai)
