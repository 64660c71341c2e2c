"""The places where clients reach a server, its dashboard too, and what its log says of them."""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import inferd
from inferd.config.ports import are_metrics_on_http, is_one_port, listening, open_ports
from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig
from inferd.server.address import DefaultAddress, host_and_port
from inferd.server.tls import tls_files

if TYPE_CHECKING:
    from inferd.ui.tokens import Tokens

LOGGER = logging.getLogger("inferd")


def places(
    config: ServerConfig, default_address: str, ports: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Return (protocol, where to reach it) for every port among `ports`, and its Unix socket.

    `ports` are the numbers of those that are open, by protocol; 0 and others are not.
    """
    addresses = {one.protocol: one.address for one in listening(config, default_address)}
    scheme = "https" if tls_files(config, "http") else "http"
    found: list[tuple[str, str]] = []
    if number := ports.get("HTTP"):
        found.append(("HTTP", f"{scheme}://{host_and_port(addresses['HTTP'], number)}"))
        if config.http_unix_socket:
            found.append(("HTTP", f"unix:{config.http_unix_socket}"))
    shared = is_one_port(config)
    if number := ports.get("HTTP" if shared else "gRPC"):
        address = (config.grpc_address or default_address) if shared else addresses["gRPC"]
        note = " (TLS)" if tls_files(config, "http" if shared else "grpc") else ""
        found.append(("gRPC", host_and_port(address, number) + note))
        if config.grpc_unix_socket:
            found.append(("gRPC", f"unix:{config.grpc_unix_socket}"))
    for protocol, number in ports.items():
        if number and protocol not in ("HTTP", "gRPC", "Metrics"):
            found.append((protocol, f"http://{host_and_port(addresses[protocol], number)}"))
    if number := ports.get("Metrics"):
        is_shared = are_metrics_on_http(config)
        where = host_and_port(addresses["HTTP" if is_shared else "Metrics"], number)
        found.append(("Metrics", f"{scheme if is_shared else 'http'}://{where}/metrics"))
    return found


def has_dashboard(config: ServerConfig) -> bool:
    """Return whether there is a dashboard."""
    return config.allow_http and config.ui != "off"


def ui_tokens(config: ServerConfig, folder: Path | None = None) -> "Tokens | None":
    """Return the tokens for those who may change things, None if nobody may in the dashboard.

    `folder` is the private one of a server of several processes. Raises InvalidConfig.
    """
    if not has_dashboard(config) or config.ui != "full":
        return None
    from inferd.ui.tokens import own_tokens, shared_tokens

    if folder is None:
        return own_tokens()
    try:
        return shared_tokens(folder)
    except OSError as error:
        raise InvalidConfig(f"--ui: cannot keep the token in {folder}: {error.strerror}") from error


def dashboard_url(config: ServerConfig, found: list[tuple[str, str]]) -> str:
    """Return the URL of the dashboard for a browser on this machine, "" if there is none.

    `found` are the places where clients reach the server.
    """
    if not has_dashboard(config):
        return ""
    for protocol, where in found:
        if protocol == "HTTP" and not where.startswith("unix:"):
            # Nobody can open 0.0.0.0 in a browser.
            own = where.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
            return f"{own}/ui/"
    return ""


def say_live(config: ServerConfig, found: list[tuple[str, str]], default: DefaultAddress) -> None:
    """Log that the server is live at the places `found`, and why ports are bound as they are."""
    where = " and ".join(place for protocol, place in found if protocol != "Metrics")
    LOGGER.info("inferd %s is live at %s, models are loading", inferd.__version__, where)
    left_open = [one for one in open_ports(config) if one.address is None]
    if left_open:
        names = " and ".join(one.protocol for one in left_open)
        flags = dict.fromkeys(one.address_flag for one in left_open)
        text = "%s bound to %s; to change that: %s"
        LOGGER.info(text, names, default.reason, ", ".join(flags))


def say_link(url: str, tokens: "Tokens | None") -> None:
    """Print the link with which the dashboard may change things, if it may.

    On standard output, never in the log: who can read that is somebody else.
    """
    if tokens is None or not url:
        return
    text = f"The dashboard, with leave to change things (good once): {url}#token={tokens.token()}\n"
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError):  # nobody reads it
        return
