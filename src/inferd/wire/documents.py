"""The documents that describe the server: its OpenAPI document and the .proto files."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from inferd.wire.proto import proto_folders


@cache
def openapi() -> bytes:
    """Return the OpenAPI document of the REST API, as JSON."""
    return files("inferd.wire").joinpath("openapi.json").read_bytes()


@cache
def proto_files() -> Mapping[str, bytes]:
    """Return the text of each .proto file by name; they import each other by these names."""
    found = {
        file.name: file.read_bytes()
        for folder in (*proto_folders(), files("inferd.config.proto"))
        for file in folder.iterdir()
        if file.name.endswith(".proto")
    }
    return dict(sorted(found.items()))
