"""What the light client takes of inferd is listed, and needs nothing else (decision 0026)."""

import ast
import configparser
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACT = "importlinter:contract:client-codecs"
CLIENT = ROOT / "src/inferd/client"
PACKAGES = {"google", "hpack", "msgspec", "numpy", "orjson", "simdjson"}


@pytest.fixture(scope="module")
def listed():
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    return contracts[CONTRACT]["source_modules"].split()


def file_of(module):
    path = ROOT / "src" / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(module):
    """Return the modules that `module` imports at run time."""
    tree = ast.parse(file_of(module).read_text())
    only_for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in only_for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            whole = (f"{node.module}.{one.name}" for one in node.names)
            found |= {name if file_of(name).is_file() else node.module for name in whole}
    return found


def is_ours(module):
    return module.split(".")[0] == "inferd"


def test_the_list_is_what_the_clients_calls_need(listed):
    files = [path for path in CLIENT.rglob("*.py") if path.name != "trtis.py"]
    names = [".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in files]
    clients = {name.removesuffix(".__init__") for name in names}
    found = {name for module in clients for name in imported(module) if is_ours(name)}
    needed, more = set(), found - clients
    while more:
        needed |= more
        more = {name for module in more for name in imported(module) if is_ours(name)} - needed
    assert needed == set(listed)
    assert listed == sorted(listed)


def test_of_other_packages_the_codecs_need_only_those_of_the_client(listed):
    foreign = {name.split(".")[0] for module in listed for name in imported(module)} - {"inferd"}
    assert foreign - set(sys.stdlib_module_names) == PACKAGES
