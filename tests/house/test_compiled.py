"""What the compiler does otherwise than the interpreter, and compiled modules must not say.

While an error is handled, the interpreter keeps it with the coroutine, compiled code with the
thread. A coroutine that waits meanwhile leaves it to all others: a `raise` without a name raises
somebody else's, and what the error's traceback holds stays in memory.

A class attribute whose type is a choice of three, one of them None, is left undefined where it
should be None.

Compiled functions accept an object as one of a compiled class only if it is exactly that, or if its
class is compiled too: a class with heirs in plain modules has to say so. A Struct cannot.

`raise ... from` sets no cause, and the log has the traceback of what made a model fail by that: who
makes the error has to set it.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = (ROOT / "tools" / "compiled_modules.txt").read_text().split()
RUNNING_MODELS = ("inferd/backends/", "inferd/schedulers/", "inferd_worker/")
WAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Yield, ast.YieldFrom)
CHOICES = 2
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def inside(node):
    """Yield what runs when `node` does: functions that are only defined there are left out."""
    if not isinstance(node, FUNCTIONS):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from inside(child)


def handling(tree):
    """Yield what may run while an error is handled."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            for statement in (*(s for one in node.handlers for s in one.body), *node.finalbody):
                yield from inside(statement)
        elif isinstance(node, ast.AsyncWith):
            yield node


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_waited_for_while_an_error_is_handled(module):
    tree = ast.parse((ROOT / "src" / module).read_text())
    assert [node.lineno for node in handling(tree) if isinstance(node, WAITS)] == []


def undefined(tree):
    """Yield class attributes that say None and have none: the compiler leaves them undefined."""
    for kind in ast.walk(tree):
        for node in kind.body if isinstance(kind, ast.ClassDef) else ():
            if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant):
                choices = ast.unparse(node.annotation).count("|") + 1
                if node.value.value is None and choices > CHOICES:
                    yield node


@pytest.mark.parametrize("module", MODULES)
def test_no_default_of_none_is_lost(module):
    tree = ast.parse((ROOT / "src" / module).read_text())
    assert [node.lineno for node in undefined(tree)] == []


def imported(tree):
    """Return the modules, as paths below src, by the names that `tree` has from them."""
    return {
        alias.asname or alias.name: node.module.replace(".", "/") + ".py"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def is_open(kind):
    """Whether the class `kind` may have, compiled, heirs in plain modules."""
    is_struct = "msgspec.Struct" in map(ast.unparse, kind.bases)
    said = " ".join(map(ast.unparse, kind.decorator_list))
    return not is_struct and "allow_interpreted_subclasses=True" in said


def closed(tree):
    """Return the names of classes in `tree` that have, compiled, no heirs in plain modules."""
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef) and not is_open(node)}


def test_compiled_classes_with_plain_heirs_say_so():
    compiled = {
        module: closed(ast.parse((ROOT / "src" / module).read_text())) for module in MODULES
    }
    wrong = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        if str(path.relative_to(ROOT / "src")) in compiled:
            continue
        tree = ast.parse(path.read_text())
        places = imported(tree)
        for kind in ast.walk(tree):
            for base in kind.bases if isinstance(kind, ast.ClassDef) else ():
                name = ast.unparse(base)
                if name in compiled.get(places.get(name, ""), ()):
                    wrong.append(f"{kind.name} of {path.name}: {name}")
    assert wrong == []


def made(tree):
    """Yield the names of the functions that make errors which `tree` raises from others."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.cause and isinstance(node.exc, ast.Call):
            name = ast.unparse(node.exc.func).rpartition(".")[2]
            if name.strip("_")[0].islower():
                yield name


def sets_cause(tree, name):
    """Whether the function `name` of `tree` sets the cause of what it makes."""
    return any(
        isinstance(node, FUNCTIONS[:2]) and node.name == name and "__cause__ =" in ast.unparse(node)
        for node in ast.walk(tree)
    )


@pytest.mark.parametrize("module", [one for one in MODULES if one.startswith(RUNNING_MODELS)])
def test_what_made_a_model_fail_is_not_lost(module):
    tree = ast.parse((ROOT / "src" / module).read_text())
    for name in made(tree):
        place = ROOT / "src" / imported(tree).get(name, module)
        assert sets_cause(ast.parse(place.read_text()), name), f"{name} of {place.name}"


def test_a_default_that_would_be_lost_is_found():
    wrong = """
class Call:
    one: int | None = None
    two: int | str = 0
    three: int | str | None = None
"""
    assert [node.lineno for node in undefined(ast.parse(wrong))] == [5]


def test_waiting_in_a_handler_is_found():
    wrong = """
async def run(work):
    try:
        await work
    except OSError:
        async def later(): await work
        await work
    finally:
        async for _ in work: pass
    async with work: pass
"""
    tree = ast.parse(wrong)
    assert {node.lineno for node in handling(tree) if isinstance(node, WAITS)} == {7, 9, 10}
