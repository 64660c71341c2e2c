"""Recorded requests: V2 requests as lines of JSON."""

import json
from collections.abc import Sequence
from pathlib import Path

from inferd.core.metadata import TensorMetadata
from inferd.errors import InvalidRequest
from inferd.tensor.tensor import Tensor
from inferd.values.fitting import fitted
from inferd.values.json_text import read_json

MOST_REQUESTS = 100_000


def read_requests(file: str, declared: Sequence[TensorMetadata]) -> list[list[Tensor]]:
    """Return the inputs of each request in a file. Raises InvalidRequest, which names the line.

    A line is a V2 request, or an object whose `request` is one, as logs of requests have.
    """
    found: list[list[Tensor]] = []
    try:
        with Path(file).open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                if len(found) >= MOST_REQUESTS:
                    msg = f"{file} has more than {MOST_REQUESTS} requests: split it"
                    raise InvalidRequest(msg)
                found.append(_request(line, f"{file}, line {number}", declared))
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror or error}"
        raise InvalidRequest(msg) from error
    if not found:
        msg = f"{file} has no requests"
        raise InvalidRequest(msg)
    return found


def _request(line: bytes, where: str, declared: Sequence[TensorMetadata]) -> list[Tensor]:
    try:
        document = json.loads(line)
    except ValueError as error:
        msg = f"{where}: no JSON: {error}"
        raise InvalidRequest(msg) from None
    if isinstance(document, dict) and isinstance(document.get("request"), dict):
        line = json.dumps(document["request"]).encode()
    try:
        return fitted(read_json(line, where), declared).tensors
    except InvalidRequest as error:
        msg = error.message if where in error.message else f"{where}: {error.message}"
        raise InvalidRequest(msg) from error
