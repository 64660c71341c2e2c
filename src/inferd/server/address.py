"""The address that ports bind when none is configured, and how addresses are written."""

import ipaddress
from collections.abc import Callable, Mapping
from typing import NamedTuple

# Files that Docker and Podman make in each container.
_MARKS = ("/.dockerenv", "/run/.containerenv")


class DefaultAddress(NamedTuple):
    """The address to bind, and the reason, as the start-up log gives it."""

    address: str
    reason: str


def in_container(environ: Mapping[str, str], exists: Callable[[str], bool]) -> bool:
    """Tell whether this process runs in a container: Docker, Podman, Kubernetes, systemd-nspawn."""
    named = environ.get("KUBERNETES_SERVICE_HOST") or environ.get("container")
    return bool(named) or any(exists(mark) for mark in _MARKS)


def default_address(environ: Mapping[str, str], exists: Callable[[str], bool]) -> DefaultAddress:
    """Return loopback, or in a container, whose network is isolated anyway, all interfaces."""
    if in_container(environ, exists):
        return DefaultAddress("0.0.0.0", "all interfaces, because this is a container")
    return DefaultAddress("127.0.0.1", "this machine only, because this is no container")


def is_loopback(address: str) -> bool:
    """Tell whether an address to bind can be reached only from this machine.

    The only name for which this is true is localhost: others may resolve to any address.
    """
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def host_and_port(host: str, port: int) -> str:
    """Return host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
