"""Mount: an API beside V2 on the ports of a server.

Whatever subpackage of inferd.api has a module `mount` is one; nothing else knows which there are.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from importlib.util import find_spec

import inferd.api
from inferd.api.mounted import MountedRoutes
from inferd.engine.engine import Engine
from inferd.http.access import Access
from inferd.http.failure import FailureLog
from inferd.http.grpc.handler import Method
from inferd.http.header_forward import HeaderForward


class Mount:
    """An API of an engine, without the transports; `groups` are the API groups by gRPC method.

    It is made of an engine, and of the name that the server has been given, None if it has none.
    """

    groups: Mapping[str, str]

    def __init__(self, engine: Engine, server_id: str | None) -> None:
        raise NotImplementedError

    def http(self, access: Access, failures: FailureLog, *, forwards: bool) -> MountedRoutes:
        """Return what answers over HTTP on one port; with `forwards`, inferences get headers."""
        raise NotImplementedError

    def grpc(self, forward: HeaderForward | None, access: Access) -> dict[str, Method]:
        """Return the gRPC methods of one port, by path."""
        raise NotImplementedError


def mount_names() -> Iterator[str]:
    """Return the names of the mounts; the option --allow-NAME turns each of them off."""
    for module in pkgutil.iter_modules(inferd.api.__path__):
        if module.ispkg and find_spec(f"inferd.api.{module.name}.mount"):
            yield module.name


def load_mount(name: str) -> type[Mount]:
    """Return the class of a mount."""
    found: type[Mount] = importlib.import_module(f"inferd.api.{name}.mount").MOUNT
    return found
