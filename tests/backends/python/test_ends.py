"""How models in Python end, whatever they are doing: at once, and with all they have started."""

import os
import signal
import threading
import urllib.request

import numpy as np
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
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
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
        [row] = [row for row in asked.server.engine.catalog.index() if row.name == "m"]
        assert row.state.value == "UNAVAILABLE"


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_a_model_has_started_in_a_session_of_its_own_ends_with_it(serve, eventually):
    source = """
        import os, subprocess, sys
        class TritonPythonModel:
            def initialize(self, args):
                waits = [sys.executable, "-c", "import signal; signal.pause()"]
                self.child = subprocess.Popen(waits, start_new_session=True).pid
            def execute(self, requests):
                pids = np.array([os.getpid(), self.child], np.int32)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pids)])]
    """
    zero = np.zeros(1, np.int32)
    with serve(starts=source) as asked:
        pid, child = asked.ask("starts", "grpc", IN=zero)["OUT"]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not is_there(child))
        pid, child = asked.ask("starts", "grpc", IN=zero)["OUT"]
        assert is_there(child)
    assert not is_there(pid)
    eventually(lambda: not is_there(child))


@pytest.mark.slow
def test_what_a_model_wants_done_at_exit_is_done_after_finalize(serve, tmp_path):
    file = tmp_path / "said"
    source = f"""
        import atexit

        def say(word):
            with open({str(file)!r}, "a") as file:
                file.write(word + " ")

        def fail():
            raise SystemExit("nobody minds")

        atexit.register(say, "exit")
        atexit.register(fail)

        class TritonPythonModel:
            def execute(self, requests): ...
            def finalize(self):
                say("finalize")
    """
    with serve(m=source):
        pass
    assert file.read_text() == "finalize exit "


FRAGILE = """
import os, sys
class TritonPythonModel:
    def initialize(self, args):
        if os.path.exists(FILE):
            raise RuntimeError("the file is there")
    def execute(self, requests):
        open(FILE, "w").close()
        os._exit(1)
"""


@pytest.mark.slow
def test_a_model_whose_process_cannot_start_makes_the_server_not_ready(
    models, tmp_path, eventually
):
    file = tmp_path / "broken"
    root = models(m=f"FILE = {str(file)!r}\n{FRAGILE}")
    with running(root, model_control_mode="explicit", load_model=("m",)) as asked:
        assert asked.http.is_server_ready()
        with pytest.raises(InferenceServerException):
            asked.ask("m", IN=np.zeros(1, np.int32))
        eventually(lambda: not asked.http.is_model_ready("m"))
        assert not asked.http.is_server_ready()
        with pytest.raises(InferenceServerException, match="the file is there"):
            asked.http.load_model("m")
        file.unlink()
        asked.http.load_model("m")  # tries at once, whenever the next start would have been
        assert asked.http.is_model_ready("m")
        assert asked.http.is_server_ready()
