"""Sockets that systemd has opened before it started the server: see sd_listen_fds(3)."""

import socket
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any, NamedTuple

from inferd.config.ports import is_one_port, listening
from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig
from inferd.fleet.listening import BoundPort

HTTP_UNIX = "Unix"
GRPC_UNIX = "gRPC Unix"
"""The names of Unix sockets, beside those of ports, which are their protocols."""

# SD_LISTEN_FDS_START.
_FIRST = 3
_MOST_DIGITS = 3
_PROTOCOLS = {
    "http": "HTTP",
    "grpc": "gRPC",
    "metrics": "Metrics",
    "health": "Health",
    "sagemaker": "SageMaker",
    "vertex-ai": "Vertex AI",
}
_UNIX = {"http": HTTP_UNIX, "grpc": GRPC_UNIX}
_ADDRESSES = {
    "HTTP": "http_address",
    "gRPC": "grpc_address",
    "Metrics": "metrics_address",
    "SageMaker": "sagemaker_address",
    "Vertex AI": "vertex_ai_address",
}
_LOOPBACK = ("127.", "::1")


class PassedSocket(NamedTuple):
    """A socket, and its FileDescriptorName=, which is that of its unit if none is given."""

    name: str
    socket: socket.socket


def are_sockets_passed(environ: Mapping[str, str], pid: int) -> bool:
    """Tell whether systemd has opened sockets for the process `pid`."""
    # The variables may be inherited by a process that they are not for.
    return environ.get("LISTEN_PID") == str(pid) and environ.get("LISTEN_FDS", "0") != "0"


def passed_sockets(environ: MutableMapping[str, str], pid: int) -> list[PassedSocket]:
    """Return the sockets for the process `pid`; no child will take them for its own.

    Raises InvalidConfig for what no connections can be accepted from.
    """
    is_ours = are_sockets_passed(environ, pid)
    count, names = environ.pop("LISTEN_FDS", ""), environ.pop("LISTEN_FDNAMES", "").split(":")
    environ.pop("LISTEN_PID", None)
    if not is_ours:
        return []
    if not count.isdecimal() or len(count) > _MOST_DIGITS:
        raise InvalidConfig(f"LISTEN_FDS is '{count}', expected a number of sockets")
    # LISTEN_FDNAMES may be missing or too short.
    names += [""] * (int(count) - len(names))
    return [_passed(_FIRST + at, names[at]) for at in range(int(count))]


def _passed(descriptor: int, name: str) -> PassedSocket:
    try:
        one = socket.socket(fileno=descriptor)
        is_listening = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        msg = f"descriptor {descriptor}, passed by systemd as '{name}', is no socket"
        raise InvalidConfig(msg) from error
    if not is_listening or one.type != socket.SOCK_STREAM:
        one.close()
        raise InvalidConfig(
            f"the socket that systemd passed as '{name}' does not listen for connections: it "
            "needs ListenStream= and Accept=no"
        )
    one.set_inheritable(False)
    one.setblocking(False)
    return PassedSocket(name, one)


def arranged(
    sockets: Iterable[PassedSocket], config: ServerConfig, default_address: str
) -> dict[str, BoundPort]:
    """Return what `sockets` are for: by protocol, or the name of a Unix socket.

    Those whose names are no words of ours are told by their port numbers. Raises InvalidConfig for
    one that this server has no use for: its clients would wait in vain.
    """
    wanted = {one.protocol: one.number for one in listening(config, default_address)}
    by_number = {number: protocol for protocol, number in wanted.items() if number}
    offered = {HTTP_UNIX: config.allow_http, GRPC_UNIX: config.allow_grpc}
    found: dict[str, list[socket.socket]] = {}
    for name, one in sockets:
        if one.family == socket.AF_UNIX:
            kind = _UNIX.get(name, "")
            where, is_wanted = str(one.getsockname()), offered.get(kind, False)
        else:
            number = one.getsockname()[1]
            kind = _PROTOCOLS.get(name) or by_number.get(number, "")
            where, is_wanted = f"port {number}", kind in wanted
        if not is_wanted:
            raise InvalidConfig(
                f"systemd passed the socket '{name}' ({where}), which is for no port of this "
                f"server; FileDescriptorName= may be one of {', '.join(_PROTOCOLS)}"
            )
        found.setdefault(kind, []).append(one)
    return {kind: _bound(kind, sockets) for kind, sockets in found.items()}


def _bound(kind: str, sockets: list[socket.socket]) -> BoundPort:
    is_unix = kind in _UNIX.values()
    # IPv4 and IPv6 are two sockets of one port.
    numbers = {0 if is_unix else one.getsockname()[1] for one in sockets}
    if len(numbers) > 1:
        msg = f"systemd passed sockets with several ports for {kind}: {sorted(numbers)}"
        raise InvalidConfig(msg)
    return BoundPort(kind, numbers.pop(), sockets)


def placed(
    config: ServerConfig, default_address: str, found: Mapping[str, BoundPort]
) -> ServerConfig:
    """Return the configuration with the addresses of the sockets that were `found`.

    What depends on who can reach the server goes by these, not by what would have been bound.
    """
    if not found:
        return config
    addresses = {one.protocol: one.address for one in listening(config, default_address)}
    addresses |= {kind: _address(one) for kind, one in found.items() if one.number}
    if is_one_port(config):
        addresses["gRPC"] = addresses["HTTP"]
    given: dict[str, Any] = {
        _ADDRESSES[kind]: text for kind, text in addresses.items() if kind in _ADDRESSES
    }
    if HTTP_UNIX in found:
        given["http_unix_socket"] = found[HTTP_UNIX].paths[0]
    if GRPC_UNIX in found:
        given["grpc_unix_socket"] = found[GRPC_UNIX].paths[0]
    return replace(config, **given)


def _address(port: BoundPort) -> str:
    """Return the address of one of its sockets, of one that others can reach if there is one."""
    addresses = [str(one.getsockname()[0]) for one in port.sockets]
    # False sorts first: an address that others can reach decides what is safe to allow.
    return min(addresses, key=lambda one: one.startswith(_LOOPBACK))
