"""Modules know each other one way only; imports under TYPE_CHECKING are knowledge, too."""

import ast
import configparser

from packages import MODULES, SRC

ALLOWED: list[str] = []
"""The circles that there are, each with its reason; the module names follow `inferd.`."""


def all_modules():
    """Return the file of each module in src by its name."""
    found = {}
    for path in MODULES.values():
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_names(tree, name, path):
    """Yield all that a module's import statements may mean, as dotted names."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            # `from a import b`: the module a.b if there is one, else a name that a defines.
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imports_by_module():
    """Return the modules of src that each one imports."""
    modules = all_modules()
    imports = {}
    for name, path in modules.items():
        known = imports[name] = set()
        for full in imported_names(ast.parse(path.read_bytes()), name, path):
            for one in (full, full.rpartition(".")[0]):
                match = one if one in modules else None
                if match:
                    known.add(match)
                    break
        known.discard(name)
    return imports


def find_circles(imports):
    """Return the sets of modules that reach one another."""
    reached = {name: set(found) for name, found in imports.items()}
    changed = True
    while changed:
        changed = False
        for found in reached.values():
            more = set().union(*(reached[one] for one in found)) - found
            found |= more
            changed = changed or bool(more)
    alike = (
        frozenset(o for o in found if name in reached[o])
        for name, found in reached.items()
        if name in found
    )
    return set(alike)


def test_no_modules_know_each_other_in_a_circle():
    allowed = {frozenset(f"inferd.{name}" for name in one.split()) for one in ALLOWED}
    assert find_circles(imports_by_module()) == allowed


def test_the_contract_of_worker_processes_names_each_module():
    """Its layers run through two folders, which the contract cannot be told to cover whole."""
    contracts = configparser.ConfigParser()
    contracts.read(SRC.parent / ".importlinter")
    layers = contracts["importlinter:contract:inferd-worker"]["layers"]
    named = set(layers.replace("|", " ").split())
    there = {name for name in all_modules() if name.startswith("inferd_worker.")}
    aliases = {name for name in there if name.startswith("inferd_worker.on_path")}
    before = {name for name in there if name.startswith("inferd_worker.confinement")}
    assert named == there - aliases - before - {"inferd_worker.pb_utils"}


def test_a_circle_is_found_through_modules_between():
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()}
    assert find_circles(imports) == {frozenset("abc")}
