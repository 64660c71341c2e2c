"""The model repository and configuration extensions by plain rules."""

import base64
import binascii
import json
from dataclasses import replace
from typing import Any

from conformance.reference.models import Model, Refused, Server


def index(server: Server, body: bytes) -> list[dict[str, str]]:
    """Return the rows of the index."""
    ready = parsed(body).get("ready", False)
    if not isinstance(ready, bool):
        msg = f"ready is {ready!r}"
        raise Refused(msg)
    rows = [
        row(server, model, version)
        for model in server.models.values()
        for version in model.versions
    ]
    return [one for one in rows if one["state"] == "READY" or not ready]


def row(server: Server, model: Model, version: str) -> dict[str, str]:
    """Return one row of the index."""
    known = {"name": model.name, "version": version}
    if model.broken:
        return known | {"state": "UNAVAILABLE", "reason": "it does not load"}
    if model.name in server.unloaded:
        return known | {"state": "UNAVAILABLE", "reason": "unloaded"}
    return known | {"state": "READY"}


def load(server: Server, name: str, body: bytes) -> None:
    """Load a model: of those there are, or one that is sent (then it adds and subtracts)."""
    check_explicit(server)
    parameters = parsed(body).get("parameters", {})
    files = [key for key in parameters if key.startswith("file:")]
    if parameters.keys() - {"config", *files}:
        msg = f"a load has no parameters {list(parameters)}"
        raise Refused(msg)
    try:
        for key in files:
            base64.b64decode(parameters[key], validate=True)
    except binascii.Error as error:
        msg = "a file is not base64"
        raise Refused(msg) from error
    if files:
        parsed(parameters["config"].encode())
        server.models[name] = replace(server.models["m"], name=name, versions=["1"])
    if name not in server.models:
        msg = f"there is no model '{name}' to load"
        raise Refused(msg, "internal")
    server.unloaded.discard(name)


def unload(server: Server, name: str) -> None:
    """Unload a model, if there is one."""
    check_explicit(server)
    if name in server.models:
        server.unloaded.add(name)


def config(server: Server, name: str, version: str) -> dict[str, Any]:
    """Return a model's configuration, as far as it is known here."""
    model, _ = server.find(name, version)
    found: dict[str, Any] = {"name": name, "max_batch_size": model.max_batch}
    for key, specs in (("input", model.inputs), ("output", model.outputs)):
        found[key] = [
            {
                "name": tensor,
                "data_type": "TYPE_" + datatype.replace("BYTES", "STRING"),
                "dims": dims[1:] if model.max_batch else dims,
            }
            for tensor, (datatype, dims) in specs.items()
        ]
    return found


def check_explicit(server: Server) -> None:
    """Refuse where clients do not control models."""
    if not server.explicit:
        msg = "models are loaded by the server itself"
        raise Refused(msg, "unavailable")


def parsed(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body that may be empty."""
    try:
        document = json.loads(body or b"{}")
    except ValueError as error:
        msg = "the body is no JSON"
        raise Refused(msg) from error
    if not isinstance(document, dict):
        msg = "the body is no object"
        raise Refused(msg)
    return document
