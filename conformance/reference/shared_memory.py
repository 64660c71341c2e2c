"""Regions of system shared memory by plain rules: the object is opened for each use."""

import json
from pathlib import Path
from typing import Any

from conformance.reference.models import Refused, Server

FOLDER = Path("/dev/shm")


def register(server: Server, name: str, body: bytes) -> None:
    """Make a region known, or raise Refused."""
    check_allowed(server)
    fields = json.loads(body)
    if not isinstance(fields.get("key"), str) or not isinstance(fields.get("byte_size"), int):
        msg = f"region '{name}' needs a key and a byte_size"
        raise Refused(msg)
    if name in server.regions:
        msg = f"there is a region '{name}' already"
        raise Refused(msg)
    entry = {"name": name, "key": fields["key"], "offset": fields.get("offset", 0)}
    server.regions[name] = entry | {"byte_size": fields["byte_size"]}


def unregister(server: Server, name: str) -> None:
    """Forget a region, or all."""
    check_allowed(server)
    for known in [name] if name else list(server.regions):
        server.regions.pop(known, None)


def status(server: Server, name: str) -> list[dict[str, Any]]:
    """Tell a region, or all."""
    return [find(server, name)] if name else list(server.regions.values())


def check_allowed(server: Server) -> None:
    """Raise Refused where shared memory is turned off."""
    if not server.shares_memory:
        msg = "shared memory is turned off"
        raise Refused(msg, "unsupported")


def find(server: Server, name: str) -> dict[str, Any]:
    """Return a region."""
    if name not in server.regions:
        msg = f"there is no region '{name}'"
        raise Refused(msg, "not found")
    return server.regions[name]


def place(server: Server, parameters: dict[str, Any]) -> tuple[Path, int, int]:
    """Return the file, the offset in it and the size that parameters of a tensor name."""
    name = parameters["shared_memory_region"]
    region = find(server, name)
    size = parameters.get("shared_memory_byte_size", -1)
    offset = parameters.get("shared_memory_offset", 0)
    if not 0 <= size <= region["byte_size"] - offset:
        msg = f"bytes {offset} to {offset + size} are not in region '{name}'"
        raise Refused(msg)
    return FOLDER / region["key"].lstrip("/"), region["offset"] + offset, size


def read(server: Server, parameters: dict[str, Any]) -> bytes:
    """Return the bytes of a tensor."""
    file, offset, size = place(server, parameters)
    return file.read_bytes()[offset : offset + size]


def write(server: Server, parameters: dict[str, Any], data: bytes) -> None:
    """Put the bytes of a tensor in their place."""
    path, offset, size = place(server, parameters)
    if len(data) > size:
        msg = f"{len(data)} bytes do not fit in {size}"
        raise Refused(msg)
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
