"""A class name has one meaning in all of src."""

import ast
from collections import defaultdict

from packages import MODULES

# Names that others have given, and the one class that has two sides; each is defined twice.
SHARED = {
    "ModelConfig": "Triton's pb_utils has one, so the worker's is called so, too",
    "Tensor": "Triton's pb_utils has one, so the worker's is called so, too",
    "TritonPythonModel": "Triton's name of the class in a model.py; each such file has one",
}


def class_names(tree):
    """Yield the public classes of a module; those inside a function or class are theirs alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
        elif isinstance(node, ast.If | ast.Try):
            yield from class_names(node)


def doubles(modules):
    """Return the names of classes that several of `modules`, path -> text, define."""
    places = defaultdict(set)
    for path, text in modules.items():
        for name in class_names(ast.parse(text)):
            places[name].add(path)
    return {name: sorted(paths) for name, paths in places.items() if len(paths) > 1}


def test_a_class_name_has_one_meaning():
    found = doubles({name: path.read_text() for name, path in MODULES.items()})
    assert {name: paths for name, paths in found.items() if name not in SHARED} == {}
    assert {name: len(found.get(name, ())) for name in SHARED} == dict.fromkeys(SHARED, 2)


def test_doubles_are_found():
    modules = {
        "a.py": "class Plan: pass\nclass _Own: pass\nclass A:\n    class Inner: pass",
        "b.py": "try:\n    class Plan: pass\nfinally: pass\nclass _Own: pass",
        "c.py": "def f():\n    class A: pass\nclass Inner: pass",
    }
    assert doubles(modules) == {"Plan": ["a.py", "b.py"]}
