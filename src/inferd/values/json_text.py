"""JSON as inputs: a V2 request, an object of arrays by name, or one array."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from inferd.errors import InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DATATYPES
from inferd.values.value import InputValue, cast, objects


def read_json(body: bytes, source: str) -> dict[str, InputValue]:
    """Read a V2 request, an object of arrays by name, or one array."""
    try:
        document = json.loads(body)
    except ValueError as error:
        msg = f"{source} is no JSON: {error}"
        raise InvalidRequest(msg) from None
    except RecursionError:
        msg = f"{source} is nested too deeply"
        raise InvalidRequest(msg) from None
    # An inference request as the protocol has it, copied from a log or from documentation.
    if isinstance(document, dict) and isinstance(document.get("inputs"), list):
        return {
            name: value for entry in document["inputs"] for name, value in _v2_input(entry, source)
        }
    if isinstance(document, dict):
        return {
            str(name): InputValue(source, json_array(values, f"{source}: '{name}'"))
            for name, values in document.items()
        }
    return {"": InputValue(source, json_array(document, source))}


def _v2_input(entry: object, source: str) -> Iterable[tuple[str, InputValue]]:
    """Yield the name and value of an entry of a V2 request's inputs."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        msg = f"{source}: each of the inputs is to be an object with a name"
        raise InvalidRequest(msg)
    name = entry["name"]
    datatype = DATATYPES.get(str(entry.get("datatype")))
    if datatype is None:
        msg = f"{source}: input '{name}' has datatype '{entry.get('datatype')}', which there is not"
        raise InvalidRequest(msg)
    if "data" not in entry:
        msg = f"{source}: input '{name}' has no data"
        raise InvalidRequest(msg)
    array = json_array(entry["data"], f"{source}: '{name}'")
    try:
        yield (
            name,
            InputValue(source, cast(array, datatype).reshape(entry.get("shape", -1)), datatype),
        )
    except (ValueError, TypeError, OverflowError) as error:
        msg = f"{source}: input '{name}' does not fit its datatype and shape: {error}"
        raise InvalidRequest(msg) from None


def json_array(values: Any, what: str) -> Array:
    """Return nested lists of numbers, booleans or strings as an array; a scalar has dims [1].

    Numbers are int64, uint64 or float64; strings are objects. Raises InvalidRequest for rows of
    different lengths, and for objects and null.
    """
    flat, shape = _flat(values, what)
    # By the exact type and not isinstance, for which True is an int.
    kinds = {type(one) for one in flat}
    if kinds <= {str}:
        # JSON may escape a lone surrogate; the model is to get it as it is written.
        array = objects([one.encode(errors="surrogatepass") for one in flat])
    # Before the numbers: a bool is an int in Python, and NumPy would mix them.
    elif kinds == {bool}:
        array = np.array(flat, bool)
    elif kinds <= {int, float}:
        array = _numbers(flat, what)
    else:
        names = ", ".join(sorted(_JSON_KINDS.get(kind, kind.__name__) for kind in kinds))
        msg = f"{what} mixes or has {names}: an input is all numbers, all booleans or all strings"
        raise InvalidRequest(msg)
    return array.reshape(shape or (1,))


_JSON_KINDS = {type(None): "null", dict: "objects", str: "strings", bool: "booleans"}
_JSON_KINDS |= {int: "numbers", float: "numbers"}


def _numbers(flat: list[object], what: str) -> Array:
    if all(type(one) is int for one in flat):
        # Signed first, as that is what most models have.
        for kind in (np.int64, np.uint64):
            try:
                return np.array(flat, kind)
            except OverflowError:
                continue
        msg = f"{what} has an integer beyond 64 bits"
        raise InvalidRequest(msg)
    try:
        return np.array(flat, np.float64)
    except OverflowError:
        msg = f"{what} has a number beyond what float64 can say"
        raise InvalidRequest(msg) from None


def _flat(values: Any, what: str) -> tuple[list[Any], tuple[int, ...]]:
    """Return the elements of nested lists in row-major order, and the dims."""
    shape: list[int] = []
    level = [values]
    while level and all(isinstance(one, list) for one in level):
        # NumPy would take all this over, but says nothing of where lists have
        # different lengths, and guesses a type.
        lengths = {len(one) for one in level}
        if len(lengths) > 1:
            msg = f"{what} has rows of different lengths: {_some(sorted(lengths))}"
            raise InvalidRequest(msg)
        shape.append(lengths.pop())
        level = [inner for one in level for inner in one]
    if any(isinstance(one, list) for one in level):
        msg = f"{what} mixes lists and values"
        raise InvalidRequest(msg)
    return level, tuple(shape)


def _some(values: list[int]) -> str:
    return ", ".join(map(str, values[:5])) + (", ..." if len(values) > 5 else "")
