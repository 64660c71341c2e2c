"""Parameters of V2 over JSON: known ones go where they belong, the others are kept."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from inferd.core.request import InferRequest, Sequence
from inferd.errors import InvalidRequest
from inferd.tensor.tensor import Parameters
from inferd.wire.json.data import json_text
from inferd.wire.json.document import JsonObject
from inferd.wire.json.kinds import unreadable
from inferd.wire.shared_memory import PARAMETERS

MAX_SHOWN = 200
"""Values of parameters in error texts are cut to this length."""

RESERVED = "triton_"
"""The prefix of request parameter names that are reserved for the server."""

_INT64 = range(-(2**63), 2**63)


def set_parameters(request: InferRequest, parameters: JsonObject) -> None:
    """Put request parameters where they belong. V2 extensions: sequence, schedule policy, binary.

    Raises InvalidRequest, naming the parameter and what it must be.
    """
    others: Parameters = {}
    for key, value in parameters.items():
        # null is absent, as everywhere in V2's JSON.
        if value is None:
            continue
        if field := _FIELDS.get(key):
            name, read = field
            setattr(request, name, read(key, value))
        elif key in _SEQUENCE:
            _set_sequence(request, key, value)
        elif key.startswith(RESERVED):
            raise InvalidRequest(
                f"parameter keys starting with '{RESERVED}' are reserved for Triton usage: '{key}'"
            )
        else:
            others[key] = parameter(key, value)
    request.parameters = others
    if (sequence := request.sequence) and not sequence.id:  # Triton: id 0 or no id means none
        is_marked = sequence.start or sequence.end
        request.sequence = Sequence(0, sequence.start, sequence.end) if is_marked else None


def parameter(key: str, value: Any) -> bool | int | str | float:
    """Return `value` as a parameter's value. Raises InvalidRequest unless it is a valid scalar."""
    if isinstance(value, dict | list):
        kind = "an object" if isinstance(value, dict) else "an array"
        raise InvalidRequest(
            f"parameter '{key}' has invalid type. It is {kind}, expected a string, a number or a "
            f"boolean"
        )
    if isinstance(value, bool | str | float):
        return value
    # Numbers beyond become doubles, as JSON's are.
    if type(value) is int and value in _INT64:
        return value
    try:
        wide = float(value)
    except OverflowError:
        wide = math.inf
    if math.isinf(wide):
        raise InvalidRequest(f"parameter '{key}' is beyond double precision")
    return wide


def _set_sequence(request: InferRequest, key: str, value: Any) -> None:
    sequence = request.sequence or Sequence(0)
    if key == "sequence_id":
        sequence.id = value if type(value) is str else _unsigned(key, value, " or a string")
    elif key == "sequence_start":
        sequence.start = _boolean(key, value)
    else:
        sequence.end = _boolean(key, value)
    request.sequence = sequence


def _boolean(key: str, value: Any) -> bool:
    if type(value) is not bool:
        raise InvalidRequest(
            f"{unreadable(key, 'boolean')}: parameter '{key}' is {json_text(value)[:MAX_SHOWN]}, "
            f"expected true or false"
        )
    return value


def _unsigned(key: str, value: Any, also: str = "") -> int:
    # bool is an int in Python.
    if type(value) is not int or not 0 <= value < 2**64:
        raise InvalidRequest(
            f"{unreadable(key, 'string' if also else 'unsigned-integer')}: parameter '{key}' is "
            f"{json_text(value)[:MAX_SHOWN]}, expected a whole number from 0 to 2^64 - 1{also}"
        )
    return value


_FIELDS: dict[str, tuple[str, Callable[[str, Any], bool | int]]] = {
    "binary_data_output": ("binary_output", _boolean),
    "priority": ("priority", _unsigned),
    "timeout": ("timeout_us", _unsigned),
    "triton_enable_empty_final_response": ("empty_final", _boolean),
}
"""The fields of a request that parameters set, and how their values are read."""

_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")


def reserved_parameters(request: InferRequest) -> Parameters:
    """Return the fields of `request` that travel as parameters; `set_parameters` is the reverse."""
    parameters: Parameters = {}
    if request.priority:
        parameters["priority"] = request.priority
    if request.timeout_us:
        parameters["timeout"] = request.timeout_us
    if sequence := request.sequence:
        parameters["sequence_id"] = sequence.id
        parameters["sequence_start"] = sequence.start
        parameters["sequence_end"] = sequence.end
    return parameters


def scalars(parameters: JsonObject) -> Parameters | None:
    """Return the custom parameters that are scalars, None if there are none; ignore the others."""
    others = {
        key: parameter(key, value)
        for key, value in parameters.items()
        if key not in _NOT_CUSTOM and isinstance(value, bool | int | str | float | Decimal)
    }
    return others or None


_NOT_CUSTOM = PARAMETERS | {"binary_data_size"}
