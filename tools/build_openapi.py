"""Writes the OpenAPI document of the REST surface, src/inferd/wire/openapi.json.

    python tools/build_openapi.py            write it
    python tools/build_openapi.py --check    fail if it is out of date

The calls and their descriptions are those of inferd.api.v2.calls, the schemas are in
tools/openapi_schemas.py.
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openapi_schemas import SCHEMAS, ref

import inferd
from inferd.api.call import JSON, ApiCall, Rest
from inferd.api.v2.calls import CALLS

TARGET = Path(__file__).resolve().parent.parent / "src" / "inferd" / "wire" / "openapi.json"

_ABOUT = """\
The Open Inference Protocol (V2) with Triton's extensions. An error is an object with the key
`error`. HEAD is answered wherever GET is. Any call may be refused with 401 or 403 where the server
asks for API keys or restricts APIs.
"""
_OCTETS = "application/octet-stream"
_TEXT = {"type": "string"}
_HEADER = "Inference-Header-Content-Length"
_BINARY = {
    "description": "The bytes of JSON, when bytes of tensors follow.",
    "schema": {"type": "integer", "minimum": 0},
}
_PARAMETERS = {
    "model": "A model's name.",
    "version": "A version of the model, such as 3; without it, the highest that is ready.",
    "repository": "A repository's name. The index passes it over, load and unload refuse it.",
    "region": "The name of a region of shared memory.",
    "file": "A file's name, as /v2/protos lists them.",
}
_REASONS = {
    400: "The request is wrong.",
    404: "There is no such thing.",
    500: "The model, or the server, failed.",
    501: "It is not offered, or turned off.",
    503: "Not now: not ready, or too much to do.",
}


def build(calls: Sequence[ApiCall] = CALLS) -> dict[str, Any]:
    """Return the document of `calls`."""
    paths: dict[str, Any] = {}
    operations = {
        (path, rest.verb): described(rest, name, call.group)
        for call in calls
        for rest in call.rest
        for path, name in rest.operations()
    }
    for path, verb in sorted(operations):
        entry = paths.setdefault(path, {})
        if names := re.findall(r"{(\w+)}", path):
            entry["parameters"] = [parameter(name) for name in names]
        entry[verb.lower()] = operations[path, verb]
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "inferd",
            "version": inferd.__version__,
            "description": _ABOUT,
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}, {"apiKey": []}],
        "paths": paths,
    }
    schemes = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    schemas = {name: SCHEMAS[name] for name in sorted(used_schemas(document))}
    return {**document, "components": {"schemas": schemas, "securitySchemes": schemes}}


def parameter(name: str) -> dict[str, Any]:
    """Return the description of a path parameter."""
    schema = {**_TEXT, "minLength": 1}
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": _PARAMETERS[name],
        "schema": schema,
    }


def described(rest: Rest, name: str, group: str) -> dict[str, Any]:
    """Return the description of one operation."""
    found: dict[str, Any] = {
        "operationId": name,
        "summary": rest.text.partition(". ")[0].removesuffix("."),
        "description": rest.text,
        "tags": [group],
    }
    if rest.takes:
        content = {JSON: {"schema": ref(rest.takes)}}
        if rest.takes == "InferRequest":
            content[_OCTETS] = {"schema": {}}
            found["parameters"] = [{"name": _HEADER, "in": "header", **_BINARY}]
        found["requestBody"] = {"required": not rest.may_be_empty, "content": content}
    found["responses"] = {"200": answer(rest)}
    for status in rest.errors:
        schema = ref(rest.gives if rest.gives.endswith("Ready") else "Error")
        found["responses"][str(status)] = {
            "description": _REASONS[status],
            "content": {JSON: {"schema": schema}},
        }
    found["responses"]["default"] = {
        "description": "Refused.",
        "content": {JSON: {"schema": ref("Error")}},
    }
    return found


def answer(rest: Rest) -> dict[str, Any]:
    """Return the description of a successful response."""
    if not rest.gives:
        return {"description": "Done."}
    events = {"description": "The data of each event is a GenerateResponse, or an Error."}
    infers = {"description": "The data of each event is an InferResponse, or an Error."}
    plain = {
        "Anything": {"type": "object"},
        "Text": _TEXT,
        "Events": events,
        "InferEvents": infers,
    }
    schema = plain.get(rest.gives) or ref(rest.gives)
    if rest.gives == "InferResponse":
        content = {JSON: {"schema": schema}, _OCTETS: {"schema": {}}}
        return {"description": "The answer.", "headers": {_HEADER: _BINARY}, "content": content}
    return {"description": "The answer.", "content": {rest.type: {"schema": schema}}}


def used_schemas(part: Any) -> set[str]:
    """Return the schemas that `part` refers to, directly or indirectly."""
    if isinstance(part, list):
        return set().union(*(used_schemas(one) for one in part))
    if not isinstance(part, dict):
        return set()
    found = set().union(*(used_schemas(one) for one in part.values()))
    if isinstance(part.get("$ref"), str):
        name = part["$ref"].rpartition("/")[2]
        found |= {name} | used_schemas(SCHEMAS[name])
    return found


def main(arguments: list[str]) -> int:
    """Write the document; with --check, only return 1 if it is out of date."""
    text = json.dumps(build(), indent=1) + "\n"
    if "--check" not in arguments:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write("src/inferd/wire/openapi.json is out of date: run make docs\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
