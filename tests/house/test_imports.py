"""Heavy things come late: what importing and asking for help may load."""

import subprocess
import sys

import pytest

PRINT_MODULES = "\nimport sys\nprint('modules:', *{name.split('.')[0] for name in sys.modules})"
RUN = (
    "import runpy, sys\nsys.argv = {!r}\ntry:\n    runpy.run_module('inferd', run_name='__main__')"
)
RUN += "\nexcept SystemExit as end:\n    assert not end.code, end.code"


def foreign(code):
    """Return the packages that `code` loads in a fresh interpreter, beyond Python's own."""
    command = [sys.executable, "-c", code + PRINT_MODULES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.rpartition("modules: ")[2].split())
    # What an environment's .pth files load is there in any program.
    usual = subprocess.run([sys.executable, "-c", PRINT_MODULES], capture_output=True, text=True)
    before = set(usual.stdout.rpartition("modules: ")[2].split())
    # What is compiled has helpers; those of the worker's package are loaded with its neighbours.
    own = {"inferd", "inferd_worker"} | {name for name in modules if name.endswith("__mypyc")}
    return modules - set(sys.stdlib_module_names) - before - own


def test_importing_inferd_loads_nothing_else():
    assert foreign("import inferd") == set()


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["serve", "--help"]])
def test_help_loads_nothing_heavy(words):
    assert foreign(RUN.format(["inferd", *words])) == set()


@pytest.mark.slow
@pytest.mark.parametrize("module", ["core.interfaces", "tensor.tensor", "engine.engine"])
def test_the_floors_below_the_frameworks_need_numpy_and_msgspec_at_most(module):
    allowed = {"numpy", "msgspec", "typing_extensions"}  # msgspec takes the last where it is
    if module == "engine.engine":
        allowed |= {"google", "orjson"}  # config.pbtxt and its JSON form
    assert foreign(f"import inferd.{module}") <= allowed


def test_converters_are_loaded_for_models_that_need_them_alone():
    look = "from inferd.engine.loading.lookup import backend_named\nbackend_named({!r})"
    assert "inferd_convert" not in foreign(look.format("onnxruntime"))
    assert "inferd_convert" in foreign(look.format("mxnet"))


@pytest.mark.slow
def test_the_client_loads_protobuf_only_for_grpc():
    heavy = {"google", "grpc", "onnxruntime", "uvloop", "httptools"}
    assert not foreign("from inferd.client import Client\nClient('http://h')") & heavy
    assert foreign("from inferd.client import Client\nClient('grpc://h')") & heavy == {"google"}


@pytest.mark.parametrize("ui", ["off", "read", "full"])
def test_a_server_without_a_dashboard_loads_nothing_of_it(ui):
    serve = f"""
import asyncio, sys
from inferd.config.server import ServerConfig
from inferd.server.server import Server
async def serve():
    config = ServerConfig(ui={ui!r}, http_port=0, grpc_port=0, metrics_port=0, allow_empty=True)
    async with Server(config) as server:
        assert server.http_port
asyncio.run(serve())
print("loaded:", sum(name.startswith("inferd.ui") for name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", serve], capture_output=True, text=True, check=True, timeout=60
    )
    assert (int(done.stdout.rpartition("loaded: ")[2]) == 0) is (ui == "off")
