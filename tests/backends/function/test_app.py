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


def test_each_file_has_the_modules_of_its_own_folder(app, tmp_path):
    text = (
        "import inferd, json\nimport parts.more\nfrom helper_of_the_app import MORE\n"
        "@inferd.model\ndef f(x: int) -> int:\n    return MORE, parts.more.MORE, json.__name__\n"
    )
    files = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        (folder / "parts").mkdir(parents=True)
        for module in ("helper_of_the_app", "parts/__init__", "parts/more"):
            (folder / f"{module}.py").write_text(f"MORE = {number}\n")
        for name in ("app.py", "again.py"):
            (folder / name).write_text(text)
            files.append(folder / name)
    (tmp_path / "2" / "json.py").write_text("")
    helpers = []
    for file in (*files[::2], *files[1::2]):
        number = int(file.parent.name)
        read_app(file)
        module = next(one for one in sys.modules.values() if file_of(one) == str(file))
        assert module.f(0) == (number, number, "json")
        helpers.append(sys.modules["helper_of_the_app"])
    assert [helper.MORE for helper in helpers] == [1, 2, 1, 2]


def test_files_of_one_folder_share_their_modules(app, tmp_path):
    read_app(app(APP))
    helper = sys.modules["helper_of_the_app"]
    (tmp_path / "other.py").write_text(APP)
    read_app(tmp_path / "other.py")
    assert sys.modules["helper_of_the_app"] is helper


def file_of(module):
    return getattr(module, "__file__", None)


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
