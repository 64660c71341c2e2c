"""What a model in the server's process may import."""

import sys

import pytest

from inferd.backends.python.code import PrivateModules

CLASS = "class TritonPythonModel:\n    def execute(self, requests): ...\n"


@pytest.fixture
def model(tmp_path):
    """model(source, path=text, ...) is a model's class, imported."""
    opened = []

    def build(source, **files):
        for number, text in files.items():
            path = tmp_path / "1" / (number.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        file = tmp_path / "1" / "model.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(source + CLASS)
        modules = PrivateModules()
        modules.open([tmp_path / "1", tmp_path])
        opened.append(modules)
        return modules.find_class(str(file), str(tmp_path / "1"), str(tmp_path))

    yield build
    for modules in opened:
        modules.close()


def globals_of(kind):
    return vars(sys.modules[kind.__module__])


@pytest.mark.parametrize(
    "statement",
    [
        "import triton_python_backend_utils as found",
        "import near; found = near.utils",
        "import near as also; found = also.utils",
        "from near import utils as found",
        "from . import near; found = near.utils",
        "from .near import utils as found",
        "import deep.down.far; found = deep.down.far.utils",
        "from deep.down import far; found = far.utils",
        "from deep.down.far import utils as found",
        "from deep.down.far import *; found = utils",
    ],
)
def test_the_api_is_found_wherever_the_model_imports_it(model, statement):
    importing = "import triton_python_backend_utils as utils\n"
    kind = model(f"{statement}\n", near=importing, deep__down__far=importing)
    assert globals_of(kind)["found"].Tensor.__name__ == "Tensor"
    assert "triton_python_backend_utils" not in sys.modules
    assert "near" not in sys.modules


def test_two_instances_have_an_api_each(model):
    one, two = (model("import triton_python_backend_utils as found\n") for _ in range(2))
    assert globals_of(one)["found"] is not globals_of(two)["found"]


def test_what_is_installed_is_found_before_what_lies_beside(model):
    kind = model("import json, os.path\n", json="loud = True\n")
    assert globals_of(kind)["json"] is sys.modules["json"]
    assert globals_of(kind)["os"] is sys.modules["os"]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("import json.nothing", "No module named 'json.nothing'"),
        ("from . import nothing", "cannot import name 'nothing'"),
        ("from json import nothing", "cannot import name 'nothing'"),
        ("import wrong", "No module named 'missing'"),
    ],
)
def test_what_is_not_there_is_told_as_always(model, statement, expected):
    with pytest.raises(Exception, match=r"1/\w+.py, line 1") as caught:
        model(f"{statement}\n", wrong="import missing\n")
    assert expected in str(caught.value)


def test_nothing_is_left_when_it_is_closed(tmp_path):
    before, finders = set(sys.modules), list(sys.meta_path)
    modules = PrivateModules()
    modules.open([tmp_path])
    assert modules.ours("api").Tensor
    modules.close()
    assert {name for name in sys.modules if name.startswith("inferd_model_")} - before == set()
    assert sys.meta_path == finders
