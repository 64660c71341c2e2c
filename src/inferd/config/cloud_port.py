"""Checks the cloud platforms' options: SageMaker's range of ports, Vertex AI's routes."""

import re
from collections.abc import Iterator

from inferd.config.ports import metrics_port, ports_of
from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig

_RANGE = re.compile(r"\s*([0-9]{1,5})\s*-\s*([0-9]{1,5})\s*")
# The characters of a path in RFC 3986, section 3.3, without percent escapes: routes are compared as
# they were sent.
_ROUTE = re.compile(r"(/[\w.~!$&'()*+,;=:@-]+)+", re.ASCII)


def check_cloud(config: ServerConfig) -> None:
    """Raise InvalidConfig when an option of a cloud platform is wrong."""
    _check_safe_ports(config)
    if config.sagemaker_multi_model and config.model_control_mode != "explicit":
        msg = "--sagemaker-multi-model needs --model-control-mode=explicit"
        raise InvalidConfig(msg)
    routes = {
        "--vertex-ai-health-route": config.vertex_ai_health_route,
        "--vertex-ai-predict-route": config.vertex_ai_predict_route,
    }
    for flag, route in routes.items():
        if not _ROUTE.fullmatch(route):
            msg = f"{flag} is '{route}', expected a path such as /predict"
            raise InvalidConfig(msg)
    if len(set(routes.values())) < len(routes):
        msg = f"{' and '.join(routes)} are the same, {config.vertex_ai_health_route}"
        raise InvalidConfig(msg)


def _check_safe_ports(config: ServerConfig) -> None:
    text = config.sagemaker_safe_port_range
    if text is None:
        return
    found = _RANGE.fullmatch(text)
    # The impossible range makes one complaint for what is no range and for what is an empty one.
    low, high = map(int, found.groups()) if found else (1, 0)
    if not 0 < low <= high <= 65535:
        msg = f"--sagemaker-safe-port-range is '{text}', expected LOW-HIGH, such as 8000-8999"
        raise InvalidConfig(msg)
    if not config.allow_sagemaker:
        return
    for protocol, flag, port in _open_ports(config):
        if not low <= port <= high:
            msg = (
                f"{flag} {port} is not in --sagemaker-safe-port-range {low}-{high}: "
                f"give {protocol} another port, or turn it off"
            )
            raise InvalidConfig(msg)


def _open_ports(config: ServerConfig) -> Iterator[tuple[str, str, int]]:
    for each in ports_of(config):
        if each.is_open:
            yield each.protocol, each.flag, each.number
    if config.allow_metrics:
        yield "metrics", "--metrics-port", metrics_port(config)
