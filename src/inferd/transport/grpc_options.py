"""The options of the gRPC port, whichever transport carries it: its methods and TLS context."""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from inferd.api.grpc_methods import groups_of, grpc_methods
from inferd.api.header_forward import header_forward
from inferd.api.v2.calls import V2_ALONE, Apis
from inferd.engine.engine import Engine
from inferd.errors import InvalidConfig
from inferd.http.access import OPEN, Access
from inferd.http.grpc.handler import Method
from inferd.http.limits import GrpcLimits
from inferd.http.request_log import RequestLog

WATCH_INTERVAL_S = 1.0
"""How often a Watch checks the engine's readiness."""


class GrpcOptions(GrpcLimits, frozen=True, kw_only=True):
    """The options of the gRPC port; config/server.py has the defaults.

    `typed_answers`: typed requests get typed answers. Metadata whose keys match
    `header_forward_pattern` become parameters of an inference. TLS files are PEM; `use_ssl_mutual`
    asks clients for a certificate signed by `root_cert`. Each call leaves a line in `request_log`,
    if there is one. The limits from `max_connections` on are
    for our own transport; grpcio has none of them.
    """

    typed_answers: bool
    header_forward_pattern: str | None = None
    reuse_port: bool
    use_ssl: bool
    use_ssl_mutual: bool
    server_cert: str | None
    server_key: str | None
    root_cert: str | None
    access: Access = OPEN
    apis: Apis = V2_ALONE
    request_log: RequestLog | None = None

    @property
    def has_tls(self) -> bool:
        """Whether the port speaks TLS."""
        return self.use_ssl or self.use_ssl_mutual


def grpc_ssl_context(options: GrpcOptions) -> ssl.SSLContext:
    """Return the TLS context that `options` ask for. Raises InvalidConfig."""
    if not options.server_cert or not options.server_key:
        raise InvalidConfig("TLS for gRPC needs a server certificate and a server key")
    if options.use_ssl_mutual and not options.root_cert:
        msg = "mutual TLS for gRPC needs the root certificate that signs the clients'"
        raise InvalidConfig(msg)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # RFC 9113, section 9.2
    context.set_alpn_protocols(["h2"])
    try:
        # Without a password OpenSSL would ask for that of an encrypted key at the terminal.
        context.load_cert_chain(options.server_cert, options.server_key, password="")
        if options.root_cert:
            context.load_verify_locations(options.root_cert)
    except (OSError, ValueError) as error:
        msg = f"TLS for gRPC: certificate, key or root certificate cannot be used: {error}"
        raise InvalidConfig(msg) from error
    if options.use_ssl_mutual:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def port_methods(
    engine: Engine, options: GrpcOptions, stopping: asyncio.Event, more: Mapping[str, Method]
) -> dict[str, Method]:
    """Return the methods of one port by path: ours and `more`, each with its guard.

    Those of inferences may be refused under overload. `stopping` is set when the server stops.
    """
    where, access = "--grpc-header-forward-pattern", options.access
    methods = grpc_methods(
        engine,
        partial(_pause, stopping),
        typed_answers=options.typed_answers,
        # Headers with keys must not become parameters, which models see and logs may show.
        forward=header_forward(options.header_forward_pattern, where, access.secret_names),
        access=access,
        apis=options.apis,
        stopping=stopping,
    )
    methods.update(more)
    for path, api in groups_of(methods, options.apis).items():
        methods[path] = methods[path]._replace(
            # Health and control calls are answered under overload as well
            # (docs/decisions/0022-overload.md).
            guard=access.guard(api),
            is_refusable=api == "inference",
        )
    return methods


async def _pause(stopping: asyncio.Event) -> bool:
    """Wait for WATCH_INTERVAL_S, or until the server is `stopping`; return whether it goes on."""
    # The usual end: a second has passed.
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), WATCH_INTERVAL_S)
    return not stopping.is_set()
