"""Shutting: collects what shuts one operator: checks of requests, and nodes put before it."""

from collections.abc import Callable

import numpy as np

from inferd.backends.onnx.doors.check import Check, dims_check
from inferd.backends.onnx.doors.scope import Scope
from inferd.formats.onnx_graph import INT64, RowNode
from inferd.formats.onnx_model import OnnxNode
from inferd.tensor.array import Array

_SINCE_SCATTER = 11
"""The opset that brought ScatterElements."""


class Shutting:
    """Collects what shuts one operator, which may make `most` elements of a request's values.

    `checks` compare requests; `before` are nodes to put before the operator, whose inputs are
    then `renamed`, by index, and gone if that is to ""; the operator itself is `called` so then,
    which ONNX Runtime's errors tell, unless that is "". `refusal` says why the file cannot be
    right, `left` what is still possible; "" for nothing. How long the operator runs is not bounded
    by the dims of the inputs if `is_bounded` is false.
    """

    def __init__(self, node: RowNode, scope: Scope, opset: int, most: int) -> None:
        self.node, self.scope, self.opset, self.most = node, scope, opset, most
        self.prefix = next((one for one in node.outputs if one), "")
        self.what = f"{node.op} '{self.prefix}'"
        self.checks: list[Check] = []
        self.before: list[OnnxNode] = []
        self.renamed: dict[int, str] = {}
        self.called = self.refusal = self.left = ""
        self.is_bounded = True

    def is_open(self, index: int) -> bool:
        """Whether that input of the operator is one of the model."""
        return self.node.input(index) in self.scope.open_inputs

    def compares(
        self, index: int, rank: int = 0, free: tuple[int, ...] = (), *, any_size: bool = False
    ) -> bool:
        """Have requests compared with the dims that an input needs, see dims_check.

        Returns False for an input that is not one of the model.
        """
        is_open = self.is_open(index)
        if is_open:
            self.checks.append(
                dims_check(self.node.input(index), self.what, rank, free, any_size=any_size)
            )
        return is_open

    def name(self, index: int) -> str:
        """The present name of that input: the last node put before it gives it."""
        return self.renamed.get(index, self.node.input(index))

    def add(self, op: str, inputs: tuple[str, ...], why: str, **attributes: int) -> str:
        """Put a node before the operator; return the name of its output."""
        name = f"{self.prefix}:{len(self.before)}"
        words = f"{self.what}: {why} ({len(self.before)})"  # names of nodes are unique
        self.before.append(OnnxNode(op, inputs, (name,), attributes, words))
        return name

    def constant(self, value: Array) -> str:
        """Put a constant before the operator; return its name."""
        name = f"{self.prefix}:{len(self.before)}"
        self.before.append(OnnxNode("Constant", (), (name,), {"value": value}))
        return name

    def replace(self, index: int, name: str) -> None:
        """Let that input of the operator be `name`."""
        self.renamed[index] = name

    def reshape(self, index: int, dims: list[int], why: str) -> None:
        """Let that input pass a Reshape: 0 keeps a dim, and -1 fails if another one is 0."""
        shape = self.constant(np.array(dims, np.int64))
        self.replace(index, self.add("Reshape", (self.name(index), shape), why))

    def unit(self, is_right: str, why: str) -> str:
        """Return the name of a 1, whose computation fails unless `is_right`, a truth, is true."""
        # Div is for numbers only, so the truth is made a 1 or a 0.
        one = self.add("Cast", (is_right,), why, to=INT64)
        return self.add("Div", (one, one), why)  # 0 / 0 if it is not

    def keep_shape(self, index: int, shape: str, unit: str, why: str) -> None:
        """Let that input pass a Reshape to its own `shape`, if `unit`, ones, can be computed."""
        same = self.add("Mul", (shape, unit), why)
        self.replace(index, self.add("Reshape", (self.name(index), same), why))

    def fill(self, index: int, free: tuple[int, ...], why: str) -> None:
        """Let that input, of any rank, pass only if no dim is 0 but those at `free`."""
        shape = divided = self.add("Shape", (self.name(index),), why)
        if free and self.opset >= _SINCE_SCATTER:
            places = self.constant(np.array(free, np.int64))
            ones = self.constant(np.ones(len(free), np.int64))
            divided = self.add("ScatterElements", (shape, places, ones), why)
        # 1 for every dim; a dim of 0 is a division by zero, which ends this run and nothing else.
        self.keep_shape(index, shape, self.add("Div", (divided, divided), why), why)

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


Shutter = Callable[[Shutting], None]
"""Collects what shuts one operator."""
