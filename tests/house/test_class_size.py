"""A class ends where its noun ends: one with more than MOST methods says here why it has them."""

import ast
from pathlib import Path

SRC = Path(__file__).parents[2] / "src/inferd"

MOST = 25

REASONS = {
    "client/aio/client.py:AsyncClient": "a method per call of the protocol",
    "client/connection/http2.py:GrpcConnection": "to be cut: connection and calls",
    "http/h1/connection.py:HttpConnection": "asyncio's protocol has seven of them",
}
"""The classes with more, and why; none is added without a reason, and none stays without one."""


def large_classes():
    """Return the classes of src with more than MOST methods, as path:name."""
    found = set()
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                kinds = ast.FunctionDef | ast.AsyncFunctionDef
                if sum(isinstance(one, kinds) for one in node.body) > MOST:
                    found.add(f"{path.relative_to(SRC)}:{node.name}")
    return found


def test_a_class_has_few_methods_or_a_reason():
    assert large_classes() - REASONS.keys() == set(), "cut it where its noun ends"


def test_each_reason_is_still_needed():
    assert REASONS.keys() - large_classes() == set()
