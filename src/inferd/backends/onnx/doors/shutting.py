"""Shutting: collects what shuts one operator: checks of requests, and nodes put before it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from inferd.backends.onnx.doors.check import Check
from inferd.backends.onnx.doors.scope import Scope
from inferd.formats.onnx_graph import RowNode
from inferd.formats.onnx_model import OnnxNode
from inferd.tensor.array import Array

_SINCE_SCATTER = 11
"""The opset that brought ScatterElements."""


class Shut(NamedTuple):
    """How one operator is shut.

    `checks` compare requests; `before` are nodes to put before the operator, whose inputs are
    then `renamed`, by index; the operator itself gets the name `name`, which ONNX Runtime's errors
    tell, unless that is "". `refusal` says why the file cannot be right, `left` what is still
    possible; "" for nothing. How long the operator runs is not bounded by the dims of the inputs
    if `is_bounded` is false.
    """

    checks: tuple[Check, ...] = ()
    before: tuple[OnnxNode, ...] = ()
    renamed: Mapping[int, str] = MappingProxyType({})
    name: str = ""
    refusal: str = ""
    left: str = ""
    is_bounded: bool = True


class Shutting:
    """Collects what shuts one operator, which may make `most` elements of a request's values."""

    def __init__(self, node: RowNode, scope: Scope, opset: int, most: int) -> None:
        self.node, self.scope, self.opset, self.most = node, scope, opset, most
        self.prefix = next((one for one in node.outputs if one), "")
        self.what = f"{node.op} '{self.prefix}'"
        self._checks: list[Check] = []
        self._before: list[OnnxNode] = []
        self._renamed: dict[int, str] = {}

    def shut(self, name: str = "") -> Shut:
        """Return what has been collected; see Shut for `name`."""
        return Shut(tuple(self._checks), tuple(self._before), self._renamed, name)

    def shut_sizes(self) -> Shut:
        """Return what has been collected of an operator that runs as long as a request says."""
        return self.shut()._replace(is_bounded=False)

    def is_open(self, index: int) -> bool:
        """Whether that input of the operator is one of the model."""
        return self.node.input(index) in self.scope.open_inputs

    def check(self, check: Check) -> None:
        """Have requests compared with `check`."""
        self._checks.append(check)

    def name(self, index: int) -> str:
        """The present name of that input: the last node put before it gives it."""
        return self._renamed.get(index, self.node.input(index))

    def add(self, op: str, inputs: tuple[str, ...], why: str, **attributes: int) -> str:
        """Put a node before the operator; return the name of its output."""
        name = f"{self.prefix}:{len(self._before)}"
        words = f"{self.what}: {why} ({len(self._before)})"  # names of nodes are unique
        self._before.append(OnnxNode(op, inputs, (name,), attributes, words))
        return name

    def constant(self, value: Array) -> str:
        """Put a constant before the operator; return its name."""
        name = f"{self.prefix}:{len(self._before)}"
        self._before.append(OnnxNode("Constant", (), (name,), {"value": value}))
        return name

    def replace(self, index: int, name: str) -> None:
        """Let that input of the operator be `name`."""
        self._renamed[index] = name

    def reshape(self, index: int, dims: list[int], why: str) -> None:
        """Let that input pass a Reshape: 0 keeps a dim, and -1 fails if another one is 0."""
        shape = self.constant(np.array(dims, np.int64))
        self.replace(index, self.add("Reshape", (self.name(index), shape), why))

    def fill(self, index: int, free: tuple[int, ...], why: str) -> None:
        """Let that input, of any rank, pass only if no dim is 0 but those at `free`."""
        x = self.name(index)
        shape = divided = self.add("Shape", (x,), why)
        if free and self.opset >= _SINCE_SCATTER:
            places = self.constant(np.array(free, np.int64))
            ones = self.constant(np.ones(len(free), np.int64))
            divided = self.add("ScatterElements", (shape, places, ones), why)
        # 1 for every dim; a dim of 0 is a division by zero, which ends this run and nothing else.
        unit = self.add("Div", (divided, divided), why)
        same = self.add("Mul", (shape, unit), why)
        self.replace(index, self.add("Reshape", (x, same), why))

    def need_rank(self, index: int, rank: int) -> None:
        """Let that input pass only if it has at least `rank` dims."""
        why = f"input {index} needs {rank} dims"
        x = self.name(index)
        shape = self.add("Shape", (x,), why)
        last = self.constant(np.array([rank - 1], np.int64))
        dim = self.add("Gather", (shape, last), why)
        # 0, and Gather has failed if there is no such dim; added to the shape it changes nothing.
        none = self.add("Sub", (dim, dim), why)
        same = self.add("Add", (shape, none), why)
        self.replace(index, self.add("Reshape", (x, same), why))


Shutter = Callable[[Shutting], Shut]
"""Returns what shuts one operator."""
