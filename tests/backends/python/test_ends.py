"""How models in Python end, whatever they are doing: at once, and with all they have started."""

import os
import threading
import urllib.request

import pytest
from serving import running
from tritonclient.utils import InferenceServerException

HANGS = """
import os, threading
class TritonPythonModel:
    def initialize(self, args):
        with open(FILE + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(FILE + ".new", FILE)
        threading.Event().wait()
    def execute(self, requests): ...
"""


@pytest.fixture
def hangs(tmp_path):
    """The source of a model whose initialize hangs, and where it writes who it is."""
    file = tmp_path / "pid"
    return f"FILE = {str(file)!r}\n{HANGS}", file


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("retry_count", [0, 3])
def test_an_unload_ends_a_worker_whose_initialize_hangs(models, hangs, eventually, retry_count):
    source, file = hangs
    options = {"model_control_mode": "explicit", "model_load_retry_count": retry_count}
    with running(models(m=source), **options) as asked:
        refused = []

        def load():
            with pytest.raises(InferenceServerException) as caught:
                asked.grpc.load_model("m")
            refused.append(str(caught.value))

        loading = threading.Thread(target=load)
        loading.start()
        eventually(file.exists)
        pid = int(file.read_text())
        asked.http.unload_model("m")  # returns long before its timeout of an hour
        loading.join()
        assert "model 'm' is being unloaded" in refused[0]
        eventually(lambda: not is_there(pid))
        [row] = [row for row in asked.server.engine.index() if row.name == "m"]
        assert row.state.value == "UNAVAILABLE"


def test_the_servers_end_ends_a_worker_whose_initialize_hangs(models, hangs, eventually):
    source, file = hangs
    with running(models(m=source), model_control_mode="explicit", exit_timeout_secs=1) as asked:
        url = f"http://127.0.0.1:{asked.server.http_port}/v2/repository/models/m/load"

        def load():
            with pytest.raises(OSError):  # noqa: PT011  the connection ends, or a status says why
                urllib.request.urlopen(url, b"{}")

        loading = threading.Thread(target=load)
        loading.start()
        eventually(file.exists)
        pid = int(file.read_text())
    loading.join()
    eventually(lambda: not is_there(pid))
