"""NetDef: the two files of a Caffe2 model, read into plain objects.

Field numbers are those of caffe2.proto (package caffe2, proto2).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inferd.errors import InvalidConfig
from inferd.formats.protobuf import (
    Malformed,
    content,
    fields,
    float32,
    float32s,
    gathered,
    integer,
    text,
    varints,
    view,
)
from inferd.tensor.array import Array

MAX_OPERATORS = 100_000
"""Nets with more are refused."""


@dataclass(slots=True)
class NetArgument:
    """One argument of an operator; fields absent from the file are None or empty.

    Nets and tensors are ignored: no supported operator takes them.
    """

    f: float | None = None
    i: int | None = None
    s: bytes | None = None
    floats: Array = field(default_factory=lambda: np.empty(0, np.float32))
    ints: list[int] = field(default_factory=list)
    strings: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Operator:
    """One operator; `place` says in messages where it is: file, position, type, first output."""

    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    arguments: dict[str, NetArgument]
    place: str


@dataclass(slots=True)
class Net:
    """A net: its operators in execution order, and its external blobs."""

    name: str
    operators: list[Operator]
    external_input: list[str]
    external_output: list[str]


_LAST_FIELD = 9


def read_net(data: bytes, file: str) -> Net:
    """Return the net of the NetDef in `data`; it may be empty.

    Raises InvalidConfig naming `file` and the part.
    """
    parts: list[memoryview] = []
    net = Net("", [], [], [])
    try:
        for number, _, value in fields(memoryview(data)):
            if number == 1:
                net.name = text(value)
            elif number == 2:
                # Read after the whole file: messages then say which of how many operators it is.
                parts.append(view(value))
            elif number == 7:
                net.external_input.append(text(value))
            elif number == 8:
                net.external_output.append(text(value))
            # Any bytes may parse as protobuf; fields that nets lack show a file of another kind.
            elif number > _LAST_FIELD:
                msg = f"'{file}' is no Caffe2 net: it has a field {number}, and nets have none"
                raise InvalidConfig(msg)
    except Malformed as error:
        raise InvalidConfig(f"'{file}' is no Caffe2 net, or is cut off: {error}") from None
    # Counted before any is read: an empty operator takes two bytes of the file, and an object here.
    if len(parts) > MAX_OPERATORS:
        raise InvalidConfig(f"'{file}' has {len(parts)} operators, more than {MAX_OPERATORS}")
    for position, part in enumerate(parts, 1):
        place = f"'{file}', operator {position} of {len(parts)}"
        net.operators.append(_operator(part, place))
    return net


def _operator(data: memoryview, place: str) -> Operator:
    try:
        found = gathered(data, {1: text, 2: text, 4: text, 5: _argument})
    except Malformed as error:
        raise InvalidConfig(f"{place} is malformed: {error}") from None
    # The last value of a field counts (protobuf); without any the type is "", which is not known.
    kind, outputs = "".join(found[4][-1:]), tuple(found[2])
    if outputs:
        place += f" ('{kind}' → '{outputs[0]}')"
    return Operator(kind, tuple(found[1]), outputs, dict(found[5]), place)


_ARGUMENT = {1: text, 2: float32, 3: integer, 4: content, 5: float32s, 6: varints, 7: content}


def _argument(value: Any) -> tuple[str, NetArgument]:
    # floats=5: weights are unpacked floats, read as one run.
    found = gathered(view(value), _ARGUMENT, floats=5)
    last = {number: values[-1] for number, values in found.items() if values}
    argument = NetArgument(last.get(2), last.get(3), last.get(4))
    if floats := found[5]:
        argument.floats = floats[0] if len(floats) == 1 else np.concatenate(floats)
    argument.ints = [number for numbers in found[6] for number in numbers]
    argument.strings = found[7]
    return last.get(1, ""), argument
