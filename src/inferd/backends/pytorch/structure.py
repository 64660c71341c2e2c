"""Structure: arguments and results of a TorchScript model that are more than one tensor.

An argument may be a tuple, whose parts are separate inputs, in order; or a number, a text, or a
list of them, which arrive as tensors. A result may consist of nested tuples, lists and dicts. Its
outputs are their leaves, in order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inferd.errors import InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType

TENSOR = "Tensor"
TEXTS = "List[str]"
TENSORS = "List[Tensor]"
BY_NAME = "Dict[str, Tensor]"

_WHOLE = frozenset(one for one in DataType if "INT" in one.value)
_REAL = frozenset((DataType.FP16, DataType.FP32, DataType.FP64))
_PLAIN: Mapping[str, frozenset[DataType]] = {
    "int": _WHOLE,
    "float": _REAL | _WHOLE,
    "number": _REAL | _WHOLE,
    "bool": frozenset((DataType.BOOL,)),
    "str": frozenset((DataType.BYTES,)),
}
"""Types of single elements -> the input datatypes they can be made from."""
_TO: Mapping[str, Callable[[Any], Any]] = {"int": int, "float": float, "bool": bool}
_KINDS: Mapping[str, frozenset[DataType]] = {
    TENSOR: frozenset(DataType) - {DataType.BYTES},
    **_PLAIN,
    **{f"List[{kind}]": datatypes for kind, datatypes in _PLAIN.items()},
}
_MAX_DEPTH = 20


@dataclass(frozen=True, slots=True)
class TorchArgument:
    """One argument of forward: its TorchScript type, and whether it may be left out."""

    name: str
    kind: str
    optional: bool = False

    @property
    def plain_kind(self) -> str:
        """The type without the Optional around it."""
        return _inside(self.kind, "Optional") or self.kind

    @property
    def parts(self) -> list["TorchArgument"]:
        """The parts of a tuple, named <name>.0, <name>.1, ...; none for other types."""
        inside = _inside(self.plain_kind, "Tuple")
        return [
            TorchArgument(f"{self.name}.{place}", kind, self.optional)
            for place, kind in enumerate(_split(inside))
        ]

    @property
    def datatypes(self) -> frozenset[DataType]:
        """The datatypes of the inputs it can be made from; none if it cannot be."""
        return _KINDS.get(self.plain_kind, frozenset())


def leaves(arguments: Sequence[TorchArgument]) -> list[TorchArgument]:
    """Return the arguments that inputs go to: `arguments`, with tuples replaced by their parts."""
    found = []
    for argument in arguments:
        parts = argument.parts
        found += leaves(parts) if parts else [argument]
    return found


def _inside(kind: str, outer: str) -> str:
    return kind[len(outer) + 1 : -1] if kind.startswith(f"{outer}[") else ""


def _split(inside: str) -> list[str]:
    """Return the types in a list of them, split at its top-level commas."""
    kinds, depth, start = [], 0, 0
    for place, letter in enumerate(inside):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            kinds.append(inside[start:place].strip())
            start = place + 1
    return [*kinds, inside[start:].strip()] if inside.strip(" ()") else []


Convert = Callable[[str, Array], Any]
"""(input name, its array) -> a tensor."""


def assembled(
    argument: TorchArgument, names: Mapping[str, str], feed: Mapping[str, Array], convert: Convert
) -> object:
    """Return the value of `argument`. `names` are the inputs of its leaves.

    None if none of its leaves has an input. Raises InvalidRequest.
    """
    parts = argument.parts
    if parts:
        values = [assembled(part, names, feed, convert) for part in parts]
        return None if all(value is None for value in values) else tuple(values)
    name = names.get(argument.name)
    if name is None or name not in feed:
        return None
    kind, array = argument.plain_kind, feed[name]
    if kind == TENSOR:
        return convert(name, array)
    if listed := _inside(kind, "List"):
        return _elements(listed, name, array)
    if array.size != 1:
        msg = f"input '{name}' has {array.size} elements, the model takes one {kind}"
        raise InvalidRequest(msg)
    return _elements(kind, name, array)[0]


def _elements(kind: str, name: str, array: Array) -> list[Any]:
    if kind == "str":
        return texts(name, array)
    to, elements = _TO.get(kind), array.ravel().tolist()
    return elements if to is None else [to(element) for element in elements]


def texts(name: str, array: Array) -> list[str]:
    """Return the elements of an input as `str`. Raises InvalidRequest if one is not UTF-8."""
    try:
        return [element.decode() for element in array.ravel()]
    except UnicodeDecodeError as error:
        msg = f"input '{name}' has an element that is not UTF-8, and TorchScript takes nothing else"
        raise InvalidRequest(msg) from error


def flattened(result: object) -> list[tuple[str, object]]:
    """Return the leaves of a result in order, each with its dict key, or else ""."""
    return list(_walk(result, "", 0))


def _walk(value: object, key: str, depth: int) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        for inner, one in value.items():
            yield from _walk(one, str(inner), depth + 1)
    elif isinstance(value, tuple) or (isinstance(value, list) and not _is_array(value)):
        for one in value if depth < _MAX_DEPTH else ():
            yield from _walk(one, key, depth + 1)
    else:
        yield key, value


def _is_array(value: list[object]) -> bool:
    """Return whether a list is a single output: of numbers or texts, or empty."""
    return all(isinstance(one, (str, int, float)) for one in value)


def plain_array(value: object, datatype: DataType) -> Array | None:
    """Return a number, a text or a list of them as an array, None for anything else.

    Numbers are converted to `datatype` if nothing but precision is lost.
    """
    listed = value if isinstance(value, list) else [value]
    if not _is_array(listed):
        return None
    if any(isinstance(one, str) for one in listed) or (not listed and datatype is DataType.BYTES):
        array = np.array(listed, object)
    elif not listed:
        array = np.empty(0, datatype.numpy)
    else:
        array = _fitted(np.array(listed), datatype)
    return array if isinstance(value, list) else array.reshape(())


def _fitted(array: Array, datatype: DataType) -> Array:
    if array.dtype.kind not in "fi" or datatype not in _REAL | _WHOLE:
        return array
    # A number beyond FP16 becomes infinite, as it would in the model; no warning is due.
    with np.errstate(over="ignore"):
        # TorchScript's numbers are INT64 and FP64; the configuration may declare smaller ones.
        fitted = array.astype(datatype.numpy)
    is_whole = datatype in _WHOLE
    return array if is_whole and not np.array_equal(fitted, array) else fitted
