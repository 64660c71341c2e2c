"""Which address the ports bind when nobody said so, and how an address is written."""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_MARKS = ("/.dockerenv", "/run/.containerenv")


@dataclass(frozen=True, slots=True)
class DefaultAddress:
    """The address to bind, and the reason, as the start-up lines tell it."""

    address: str
    reason: str


def in_container(environ: Mapping[str, str], exists: Callable[[str], bool]) -> bool:
    """Tell whether this process runs in a container: Docker, Podman, Kubernetes, systemd-nspawn."""
    named = environ.get("KUBERNETES_SERVICE_HOST") or environ.get("container")
    return bool(named) or any(exists(mark) for mark in _MARKS)


def default_address(environ: Mapping[str, str], exists: Callable[[str], bool]) -> DefaultAddress:
    """Return loopback, or all interfaces in a container, whose network is a wall of its own."""
    if in_container(environ, exists):
        return DefaultAddress("0.0.0.0", "all interfaces, because this is a container")
    return DefaultAddress("127.0.0.1", "this machine only, because this is no container")


def is_loopback(address: str) -> bool:
    """Tell whether an address to bind is reached from this machine alone.

    Of names that is said of localhost only: nobody knows where another one will lead.
    """
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def host_and_port(host: str, port: int) -> str:
    """Return host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
