import os
import sys

import pytest

from inferd.backends.function.app import read_app
from inferd.errors import InvalidConfig

APP = """
from dataclasses import dataclass
import inferd
from helper_of_the_app import MORE

@dataclass
class Out:
    a: "int"

@inferd.model
def first(x: int) -> Out:
    return Out(x + MORE)

def plain(x: int) -> int:
    return x

second = inferd.Model(plain, "second")
again = second
"""


@pytest.fixture
def app(tmp_path, monkeypatch):
    """app(text) writes an app file; what it imports is forgotten at the end."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    (tmp_path / "helper_of_the_app.py").write_text("MORE = 1\n")

    def write(text):
        path = tmp_path / "app.py"
        path.write_text(text)
        return path

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_the_models_of_a_file_come_in_their_order_each_once(app):
    models = read_app(app(APP))
    assert [model.name for model in models] == ["first", "second"]
    assert [one.name for one in models[0].config.output] == ["a"]


def test_a_file_may_lie_where_a_name_is_no_utf_8(app):
    path = app("import inferd\n@inferd.model\ndef f(x: int) -> int:\n    return x\n")
    folder = path.parent / os.fsdecode(b"\xff")
    folder.mkdir()
    [model] = read_app(path.rename(folder / "app.py"))
    assert model.name == "f"


def test_a_file_is_not_run_as_the_main_program(app):
    text = APP + "\nif __name__ == '__main__':\n    raise SystemExit\n"
    assert len(read_app(app(text))) == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1\n", "^app.py defines no model: put @inferd.model over a function"),
        ("x = 1\nx = = 2\n", "^app.py, line 2: SyntaxError: invalid syntax"),
        ("\nimport nothing_of_that_name\n", "^app.py, line 2: ModuleNotFoundError: No module"),
        ("raise SystemExit(3)\n", "^app.py, line 1: SystemExit: 3"),
        ("import json\njson.loads('x')\n", "^app.py, line 2: JSONDecodeError"),
        (
            "import inferd\n\n@inferd.model\ndef f(x): ...\n",
            "^app.py, line 3: InvalidConfig: function 'f' .app.py, line 3.: parameter 'x' has no t",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_line(app, text, complaint):
    before = set(sys.modules)
    with pytest.raises(InvalidConfig, match=complaint):
        read_app(app(text))
    assert not [name for name in set(sys.modules) - before if name.startswith("inferd_app_")][1:]
