"""Contradictions: what options of a server cannot say together, or at all."""

import re
from collections.abc import Iterator

from inferd.config.names import is_model_name
from inferd.config.options.access import read_header_pattern, read_restrictions
from inferd.config.options.backends import read_gpu_limits, read_host_policies, read_resources
from inferd.config.options.browser import read_origins, read_ui_hosts
from inferd.config.options.cache import read_cache_config
from inferd.config.options.metrics import read_metrics_config
from inferd.config.options.trace import read_trace_config
from inferd.config.ports import are_metrics_on_http, is_one_port, metrics_port, open_ports
from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig

_RANGE = re.compile(r"\s*([0-9]{1,5})\s*-\s*([0-9]{1,5})\s*")
# The characters of a path in RFC 3986, section 3.3, without percent escapes: routes are compared as
# they were sent.
_ROUTE = re.compile(r"(/[\w.~!$&'()*+,;=:@-]+)+", re.ASCII)


def check_server_config(config: ServerConfig) -> None:
    """Raise InvalidConfig when options contradict each other."""
    # Results of these readers are thrown away: each is read again where it is used, but a mistake
    # has to be told at the start, in one line.
    read_trace_config(config.trace_config)
    for text in _contradictions(config):
        raise InvalidConfig(text)
    read_restrictions("--http-restricted-api", config.http_restricted_api)
    read_origins(config.http_cors_origin)
    read_ui_hosts(config.ui_hosts)
    read_restrictions("--grpc-restricted-protocol", config.grpc_restricted_protocol)
    for protocol in ("http", "grpc"):
        if pattern := getattr(config, f"{protocol}_header_forward_pattern"):
            read_header_pattern(f"--{protocol}-header-forward-pattern", pattern)
    read_metrics_config(config.metrics_config)
    read_resources(config.rate_limit_resource)
    read_gpu_limits(config.model_load_gpu_limit)
    read_host_policies(config.host_policy)
    read_cache_config(config.cache_config)
    for text in config.backend_config:
        # The value is a backend's affair, line breaks included.
        if not re.fullmatch(r"([^,=]+,)?[^,=]+=.*", text, re.DOTALL):
            msg = f"--backend-config is '{text}', expected SETTING=VALUE or BACKEND,SETTING=VALUE"
            raise InvalidConfig(msg)


def _contradictions(config: ServerConfig) -> Iterator[str]:
    yield from _of_ports(config)
    if "" in config.model_repository:  # as from PATH="$UNSET": must not mean the working directory
        yield (
            "a model repository (PATH, --model-repository) is an empty text, and names no folder"
        )
    yield from _of_safe_ports(config)
    yield from _of_cloud(config)
    yield from _of_models(config)
    if config.api_key_file == "":  # as from --api-key-file=$UNSET: must not mean "open to all"
        yield "--api-key-file names no file; leave it out if calls need no key"
    for protocol in ("http", "grpc"):
        yield from _of_tls(config, protocol)
    if is_one_port(config):
        yield from _of_one_port(config)
    # One socket has one address.
    if are_metrics_on_http(config) and config.metrics_address not in (None, config.http_address):
        yield (
            "--metrics-port equals --http-port, so --metrics-address must be left out, or equal "
            "--http-address"
        )


def _of_ports(config: ServerConfig) -> Iterator[str]:
    if not any(open_ports(config)):
        yield "--allow-http=false and --allow-grpc=false leave nothing to serve; allow one of them"
    if config.http_unix_socket and not config.allow_http:
        yield (
            "--http-unix-socket needs HTTP, which --allow-http=false turns off; choose one of them"
        )
    if config.grpc_unix_socket and not config.allow_grpc:
        yield (
            "--grpc-unix-socket needs gRPC, which --allow-grpc=false turns off; choose one of them"
        )
    # On one port it is the HTTP server that accepts, also on the socket.
    if config.grpc_unix_socket and config.grpc_transport != "own" and not is_one_port(config):
        yield f"--grpc-unix-socket needs --grpc-transport=own, not {config.grpc_transport}"
    if config.grpc_unix_socket and config.grpc_unix_socket == config.http_unix_socket:
        yield "--http-unix-socket and --grpc-unix-socket are the same; choose another for one"


def _of_safe_ports(config: ServerConfig) -> Iterator[str]:
    text = config.sagemaker_safe_port_range
    if text is None:
        return
    found = _RANGE.fullmatch(text)
    # The impossible range makes one complaint for what is no range and for what is an empty one.
    low, high = map(int, found.groups()) if found else (1, 0)
    if not 0 < low <= high <= 65535:
        yield f"--sagemaker-safe-port-range is '{text}', expected LOW-HIGH, such as 8000-8999"
    if not config.allow_sagemaker:
        return
    ports = [(each.protocol, each.flag, each.number) for each in open_ports(config)]
    if config.allow_metrics:
        ports.append(("metrics", "--metrics-port", metrics_port(config)))
    for protocol, flag, port in ports:
        if not low <= port <= high:
            yield (
                f"{flag} {port} is not in --sagemaker-safe-port-range {low}-{high}: "
                f"give {protocol} another port, or turn it off"
            )


def _of_cloud(config: ServerConfig) -> Iterator[str]:
    if config.sagemaker_multi_model and config.model_control_mode != "explicit":
        yield "--sagemaker-multi-model needs --model-control-mode=explicit"
    health, predict = config.vertex_ai_health_route, config.vertex_ai_predict_route
    for name, route in (("health", health), ("predict", predict)):
        if not _ROUTE.fullmatch(route):
            yield f"--vertex-ai-{name}-route is '{route}', expected a path such as /predict"
    if health == predict:
        yield f"--vertex-ai-health-route and --vertex-ai-predict-route are the same, {health}"


def _of_models(config: ServerConfig) -> Iterator[str]:
    # Triton leaves these aside in the other modes; who names models there expects only them.
    if config.load_model and config.model_control_mode != "explicit":
        yield (
            f"--load-model needs --model-control-mode=explicit; "
            f"in mode {config.model_control_mode} all models load"
        )
    if "*" in config.load_model and len(config.load_model) > 1:
        yield "--load-model=* means all models, so it must be the only --load-model"
    if config.model_name is not None and not is_model_name(config.model_name):
        yield (
            f"--model-name: {config.model_name!r} is no name of a model, expected a printable text "
            f"without slashes that does not begin with a dot"
        )


def _of_tls(config: ServerConfig, protocol: str) -> Iterator[str]:
    mutual = getattr(config, f"{protocol}_use_ssl_mutual")
    if not (mutual or getattr(config, f"{protocol}_use_ssl")):
        return
    flag = f"--{protocol}-use-ssl-mutual" if mutual else f"--{protocol}-use-ssl"
    # Without --…-root-cert every certificate, or none, would be trusted.
    needed = ("server_cert", "server_key", "root_cert") if mutual else ("server_cert", "server_key")
    for name in needed:
        if getattr(config, f"{protocol}_{name}") is None:
            yield f"{flag} needs --{protocol}-{name.replace('_', '-')}"


def _of_one_port(config: ServerConfig) -> Iterator[str]:
    if config.grpc_transport != "own":
        yield "--grpc-port can only equal --http-port with --grpc-transport=own"
    if config.http_address != config.grpc_address:
        yield "--grpc-port equals --http-port, so --http-address and --grpc-address must be equal"
    # Nothing said for gRPC is no contradiction.
    has_grpc_tls = config.grpc_use_ssl or config.grpc_use_ssl_mutual
    if has_grpc_tls and any(
        getattr(config, f"grpc_{name}") != getattr(config, f"http_{name}")
        for name in ("use_ssl", "use_ssl_mutual", "server_cert", "server_key", "root_cert")
    ):
        yield "--grpc-port equals --http-port: TLS there is set by the --http-… options alone"
