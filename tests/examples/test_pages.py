"""Each example has a page that says how to run it and what to install, and is on the list."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FOLDERS = sorted(path for path in EXAMPLES.iterdir() if path.is_dir() and any(path.glob("*.*")))
INSTALL = re.compile(r"pip install ([^#\n`]+)")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORTED_AS = {"scikit-learn": "sklearn", "pillow": "PIL", "tensorflow-cpu": "tensorflow"}
OF_THE_SERVER = {"triton_python_backend_utils"}


def named(requirement):
    """The name that a package is imported by, and its extras."""
    name, extras = re.match(r"'?([\w.-]+)(?:\[([\w,]+)\])?", requirement).groups()
    return IMPORTED_AS.get(name, name.replace("-", "_")), extras.split(",") if extras else []


def installed(text):
    """What is there to be imported after the `pip install` of a page, or of a script."""
    there = set(sys.stdlib_module_names) | OF_THE_SERVER
    for requirement in ["inferd", *" ".join(INSTALL.findall(text)).split()]:
        name, extras = named(requirement)
        there.add(name)
        if name == "inferd":
            kinds = [PROJECT["optional-dependencies"][extra] for extra in extras]
            for one in sum(kinds, PROJECT["dependencies"]):
                there.add(named(one)[0])
    return there


def imported(script):
    """The packages that a script imports."""
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_example_is_listed_and_run_by_one_command(folder):
    assert f"]({folder.name}/README.md)" in (EXAMPLES / "README.md").read_text()
    commands = re.findall(r"^\$ (.*)$", (folder / "README.md").read_text(), re.MULTILINE)
    clients = len([*folder.glob("ask.*")])
    assert commands == [f"python examples/run.py {folder.name}"] * clients


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_an_example_imports_is_what_its_page_says_to_install(folder):
    page = (folder / "README.md").read_text()
    there = installed(page) | {path.stem for path in folder.glob("*.py")}
    for script in folder.rglob("*.py"):
        assert set(imported(script)) - there - installed(script.read_text()) == set(), script.name
