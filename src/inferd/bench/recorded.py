"""Recorded requests: V2 requests as lines of JSON, or the payload log of a server."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from inferd.core.metadata import TensorMetadata
from inferd.errors import InferdError, InvalidRequest
from inferd.replay.entries import PayloadReader
from inferd.replay.files import is_table
from inferd.tensor.tensor import Tensor
from inferd.values.fitting import fitted
from inferd.values.source import read_json
from inferd.wire.v2.rest.codec import JsonRules, V2Rest

# All are in memory, as the bytes that are sent.
MOST_REQUESTS = 100_000


class Recorded(NamedTuple):
    """Requests: the inputs of each, and when it came, in seconds; without times if one has none."""

    inputs: list[list[Tensor]]
    times_s: list[float]


def read_requests(file: str, declared: Sequence[TensorMetadata], model: str) -> Recorded:
    """Return the requests in a file, by their times. Raises InvalidRequest, which names the line.

    A line is a V2 request, or an object whose `request` is one, and whose `time` are seconds. In a
    payload log only the requests of `model` count, and those that were not cut.
    """
    found: list[tuple[float, list[Tensor]]] = []
    try:
        if _is_payload_log(Path(file)):
            return _in_order(_logged(Path(file), model))
        with Path(file).open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                if len(found) >= MOST_REQUESTS:
                    raise InvalidRequest(f"{file} has more than {MOST_REQUESTS} requests: split it")
                found.append(_request(line, f"{file}, line {number}", declared))
    except OSError as error:
        raise InvalidRequest(f"cannot read {file}: {error.strerror or error}") from error
    if not found:
        raise InvalidRequest(f"{file} has no requests")
    return _in_order(found)


def _in_order(found: list[tuple[float, list[Tensor]]]) -> Recorded:
    # Times of some alone are of no use.
    if any(not seconds for seconds, _ in found):
        return Recorded([inputs for _, inputs in found], [])
    found.sort(key=lambda one: one[0])
    return Recorded([inputs for _, inputs in found], [seconds for seconds, _ in found])


def _is_payload_log(file: Path) -> bool:
    """Return whether a file is a table of events, or lines of them, by its name and first line."""
    if is_table(file):
        return True
    with file.open("rb") as lines:
        first = lines.readline()
    try:
        event = json.loads(first)
    except (ValueError, RecursionError):
        return False
    # Required in each CloudEvent.
    return isinstance(event, dict) and "specversion" in event


def _logged(file: Path, model: str) -> list[tuple[float, list[Tensor]]]:
    # As lenient as servers are: what was logged was accepted.
    codec = V2Rest(JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=2**31))
    found: list[tuple[float, list[Tensor]]] = []
    for one in PayloadReader([file]).requests():
        if one.model != model or one.body.is_cut:
            continue
        body = memoryview(one.body.data)
        size = len(body) if one.body.json_size is None else one.body.json_size
        try:
            request = codec.decode_slowly(model, one.version, body, size)
        except InferdError as error:
            raise InvalidRequest(f"{one.where}: {error.message}") from error
        found.append((one.seconds, request.inputs))
        if len(found) >= MOST_REQUESTS:
            break
    if not found:
        raise InvalidRequest(f"{file} has no whole request of model '{model}'")
    return found


def _request(
    line: bytes, where: str, declared: Sequence[TensorMetadata]
) -> tuple[float, list[Tensor]]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{where}: no JSON: {error}") from None
    seconds = 0.0
    if isinstance(document, dict) and isinstance(document.get("request"), dict):
        line = json.dumps(document["request"]).encode()
        if isinstance(document.get("time"), int | float):
            seconds = float(document["time"])
    try:
        return seconds, fitted(read_json(line, where), declared).tensors
    except InvalidRequest as error:
        msg = error.message if where in error.message else f"{where}: {error.message}"
        raise InvalidRequest(msg) from error
