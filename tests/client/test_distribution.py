"""The client without inferd: what the wheel of inferd-client has works by itself."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys


class NoServer:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"inferd", "onnxruntime", "grpc", "uvloop", "httptools"}:
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, NoServer())
import numpy as np
from inferd_client import AsyncClient, connect

x = np.ones((1, 4), np.float32)
for url in sys.argv[1:]:
    with connect(url) as client:
        print(client.infer("m", {"INPUT0": x, "INPUT1": [[1, 2, 3, 4]]})["OUTPUT0"].tolist())
        assert client.models() and client.statistics("m") and client.config("m")
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("client_hook", ROOT / "tools/client_hook.py")
    hook = importlib.util.module_from_spec(spec)
    # The hook's base class is hatchling's, which only a build has.
    stub = type(sys)("interface")
    stub.BuildHookInterface = object
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", stub)
        spec.loader.exec_module(hook)
    folder = tmp_path_factory.mktemp("copy")
    hook.copy_into(folder)
    return folder


@pytest.mark.slow
def test_it_asks_a_server_without_anything_of_inferd(package, served):
    command = [sys.executable, "-c", PROGRAM, served.http_url, served.grpc_url]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(package)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[[2.0, 3.0, 4.0, 5.0]]\n" * 2


def test_it_owns_one_folder_and_imports_nothing_of_inferd(package):
    assert [path.name for path in package.iterdir()] == ["inferd_client"]
    files = {path.relative_to(package / "inferd_client") for path in package.rglob("*.py")}
    assert Path("_codec/wire/v2/rest/client.py") in files
    assert Path("sync/client.py") in files
    assert Path("trtis.py") not in files
    assert (package / "inferd_client" / "py.typed").exists()
    for path in package.rglob("*.py"):
        assert "inferd." not in path.read_text().replace("inferd_client.", ""), path
