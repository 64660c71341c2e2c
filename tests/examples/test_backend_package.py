"""examples/backend_package as its users have it: found by its entry point, served over a socket."""

import importlib
import json
import shutil
import sys
import tomllib
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import inferd
from inferd.core.traits import InstanceTraits, Traits
from inferd.engine.loading.lookup import backend_named
from inferd.errors import LoadFailed

PACKAGE = Path(__file__).parents[2] / "examples/backend_package"
GUIDE = Path(__file__).parents[2] / "docs/guide/backends.md"


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """The package on the path, with what its pyproject.toml has an installer leave there."""
    site = tmp_path / "site"
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    record = site / f"{name.replace('-', '_')}-{version}.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {target}\n" for key, target in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (record / "entry_points.txt").write_text("".join(lines))
    shutil.copy(PACKAGE / "inferd_linear.py", site)
    monkeypatch.syspath_prepend(site)
    importlib.invalidate_caches()
    yield
    sys.modules.pop("inferd_linear", None)


@pytest.fixture
def models(tmp_path):
    shutil.copytree(PACKAGE / "models", tmp_path / "models")
    return tmp_path / "models"


def ask(url, body=None):
    request = Request(url, json.dumps(body).encode() if body else None)
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def rows(*given):
    data = [number for row in given for number in row]
    return {"inputs": [{"name": "x", "shape": [len(given), 2], "datatype": "FP32", "data": data}]}


def test_a_model_of_the_package_is_served(models):
    with inferd.Server(model_repository=models) as server:
        url = f"{server.http_url}/v2/models/line"
        about = ask(url)
        [answer] = ask(f"{url}/infer", rows([1, 10], [2, 20]))["outputs"]
        config = ask(f"{url}/config")
    assert about["platform"] == "linear"
    assert about["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    assert (answer["shape"], answer["data"]) == ([2, 2], [3.0, 29.0, 5.0, 59.0])
    assert config["max_batch_size"] == 64 and "dynamic_batching" in config


@pytest.mark.parametrize(
    ("text", "why"),
    [("1,2\n", "has fewer than two rows"), ("1,2\nx\n", "is no table of numbers")],
)
def test_a_file_that_is_no_model_is_refused(models, text, why):
    (models / "line/1/weights.csv").write_text(text)
    with (
        pytest.raises(LoadFailed, match=f"^model 'line': 'weights.csv' {why}"),
        inferd.Server(model_repository=models),
    ):
        pass


def test_the_backend_promises_what_its_guide_says():
    assert backend_named("linear").traits == Traits(is_bounded=True, is_concurrent=True, joins=True)
    text = GUIDE.read_text()
    named = [*Traits.__struct_fields__, *InstanceTraits.__struct_fields__]
    assert [name for name in named if f"| `{name}`" not in text] == []
