"""The examples of the guide run as they are written, but for the ports."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from client_serving import MODELS, serve

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/guide/python_client.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
PRINTED = ["[[4]] 1", "10", "[3]\n[1]\n[2]"]
PRINTED += ["0 [[4]] True\n1 [[4]] True\n2 [[4]] True", "[4]"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = tmp_path_factory.mktemp("guide") / "models"
    shutil.copytree(ROOT / "examples/digits/models", models)
    shutil.copytree(MODELS / "repeat", models / "repeat")
    yield from serve(models=models)


def test_each_block_is_tried():
    assert len(BLOCKS) == len(PRINTED)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(PRINTED)))
def test_a_block_prints_what_it_should(server, number):
    imports = "" if "import numpy" in BLOCKS[number] else BLOCKS[0].partition("\nwith")[0] + "\n"
    code = imports + BLOCKS[number]
    for url, real in (
        ("http://127.0.0.1:8000", server.http_url),
        ("grpc://127.0.0.1:8001", server.grpc_url),
    ):
        code = code.replace(url, real)
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.strip() == PRINTED[number]
