"""Models that run on threads of the server's process: what differs from those in their own."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from serving import ADD_SUB, ADD_SUB_CONFIG, ONE_CONFIG, parameter, running
from tritonclient.utils import InferenceServerException

HERE = ONE_CONFIG + parameter("inferd_process", "server")
ZERO = np.zeros(1, np.int32)

PID = """
    import os
    class TritonPythonModel:
        def execute(self, requests):
            pid = np.array([os.getpid()], np.int32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pid)]) for _ in requests]
"""

NEIGHBOUR = """
    import helper, late.number
    from helper import out
    class TritonPythonModel:
        def execute(self, requests):
            import triton_python_backend_utils as again
            from . import helper as same
            import helper as also
            assert again is pb_utils and same is also is helper
            return [out(late.number.NUMBER) for _ in requests]
"""

HELPER = """
import triton_python_backend_utils as pb_utils
import numpy as np
def out(number):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([number], np.int32))])
"""

HANGS = """
    import threading
    released = threading.Event()
    class TritonPythonModel:
        def execute(self, requests):
            threading.current_thread().name = "hanging-model"
            released.wait()
            return []
"""


@pytest.fixture(autouse=True)
def _nothing_is_left(eventually):
    yield

    def is_clean():  # a model that was given up early may come to wait only now
        for name in private_names():
            if released := getattr(sys.modules.get(name), "released", None):
                released.set()
        return not private_names() and not model_threads()

    eventually(is_clean)


def private_names():
    return [name for name in list(sys.modules) if name.startswith("inferd_model_")]


def model_threads():
    return [one.name for one in threading.enumerate() if one.name.endswith("-model")]


def reason_of(asked, model):
    [row] = [row for row in asked.server.engine.catalog.index() if row.name == model]
    return f"{row.state.value}: {row.reason}"


def test_a_model_runs_in_the_servers_process(serve):
    with serve(pid=(PID, HERE)) as asked:
        assert asked.ask("pid", IN=ZERO)["OUT"].tolist() == [os.getpid()]


def test_models_share_no_modules_and_leave_none(models):
    root = models(one=(NEIGHBOUR, HERE), two=(NEIGHBOUR, HERE))
    for number, name in enumerate(("one", "two")):
        (root / name / "1" / "helper.py").write_text(HELPER)
        (root / name / "late").mkdir()
        (root / name / "late" / "number.py").write_text(f"NUMBER = {number}\n")
    with running(root) as asked:
        for number, name in enumerate(("one", "two")):
            assert asked.ask(name, IN=ZERO)["OUT"].tolist() == [number]
        assert "triton_python_backend_utils" not in sys.modules
        assert "helper" not in sys.modules
        assert private_names()


def test_instances_of_a_model_are_several_at_once(serve):
    source = """
        import threading
        class TritonPythonModel:
            def initialize(self, args):
                self.name = args["model_instance_name"]
            def execute(self, requests):
                threading.Event().wait(0.02)
                pb_utils.Logger.log_info("says " + self.name)
                name = np.array([int(self.name[-1])], np.int32)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", name)])]
    """
    with serve(many=(source, HERE + "instance_group { count: 3 }")) as asked:
        got = []
        threads = [
            threading.Thread(
                target=lambda: got.append(int(asked.ask("many", "grpc", IN=ZERO)["OUT"][0]))
            )
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(got) == {0, 1, 2}


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (parameter("EXECUTION_ENV_PATH", "env"), "parameter EXECUTION_ENV_PATH"),
        (parameter("inferd_python", "3.9"), "parameter inferd_python"),
        (
            parameter("inferd_execution_timeout_seconds", "1"),
            "parameter inferd_execution_timeout_seconds",
        ),
        (parameter("inferd_memory_limit_bytes", "1e9"), "parameter inferd_memory_limit_bytes"),
        (parameter("inferd_retry_lost_requests", "true"), "inferd_retry_lost_requests"),
        ("requirements.txt", "requirements.txt"),
    ],
)
def test_what_needs_a_process_of_its_own_is_refused(models, what, expected):
    is_file = not what.startswith("parameters")
    root = models(m=(PID, HERE + ("" if is_file else what)))
    if is_file:
        (root / "m" / what).write_text("numpy\n")
    with running(root) as asked:
        reason = reason_of(asked, "m")
        assert reason.startswith("UNAVAILABLE: model 'm': its ")
        assert expected in reason
        assert "needs a process of its own, but inferd_process is server" in reason


def test_a_place_that_is_none_is_refused(serve):
    with serve(m=(PID, ONE_CONFIG + parameter("inferd_process", "cellar"))) as asked:
        expected = "parameter inferd_process is 'cellar', expected server or worker"
        assert expected in reason_of(asked, "m")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("raise ValueError('nope')", "ValueError: nope (1/model.py, line 6, in execute)"),
        ("import sys; sys.exit(3)", "SystemExit: 3 (1/model.py, line 6, in execute)"),
        ("import no_such_module", "No module named 'no_such_module' (1/model.py, line 6, in exec"),
        ("return None", "returned None, expected a list of 1 InferenceResponse"),
    ],
)
def test_what_goes_wrong_is_told_with_file_and_line(serve, line, expected):
    source = f"class TritonPythonModel:\n    def execute(self, requests):\n        {line}\n"
    with serve(bad=(source, HERE), good=(ADD_SUB, ADD_SUB_CONFIG)) as asked:
        for _ in range(2):
            with pytest.raises(InferenceServerException) as caught:
                asked.ask("bad", IN=ZERO)
            assert expected in str(caught.value)


def test_a_model_that_does_not_load_says_why_and_leaves_nothing(serve):
    with serve(bad=("class X(:\n", HERE), none=("x = 1\n", HERE)) as asked:
        assert "SyntaxError: invalid syntax (1/model.py, line 4)" in reason_of(asked, "bad")
        assert "1/model.py defines no class TritonPythonModel" in reason_of(asked, "none")


def test_an_initialize_that_hangs_is_left_behind(serve):
    source = HANGS + "        initialize = execute\n"
    options = {"backend_config": ("python,stub-timeout-seconds=0.3",)}
    with serve(options, slow=(source, HERE)) as asked:
        assert "was not ready within 0.3 s" in reason_of(asked, "slow")


def test_an_execution_that_hangs_does_not_hold_up_the_unload(models):
    root = models(good=(PID, HERE), hangs=(HANGS, HERE))
    options = {
        "model_control_mode": "explicit",
        "load_model": ("*",),
        "model_unload_timeout_secs": 0.3,
    }
    with running(root, **options) as asked:
        failed = []

        def ask():
            with pytest.raises(InferenceServerException) as caught:
                asked.ask("hangs", "grpc", IN=ZERO)
            failed.append(str(caught.value))

        thread = threading.Thread(target=ask)
        thread.start()
        while "hanging-model" not in model_threads():
            threading.Event().wait(0.005)
        asked.grpc.unload_model("hangs")
        thread.join()
        assert "was unloaded" in failed[0]
        assert asked.ask("good", IN=ZERO)["OUT"].tolist() == [os.getpid()]


ALONE = """
import contextlib, os, pathlib, resource
from inferd.backends.python.thread import ModelThread
from inferd.backends.worker.process import Sizes
from inferd.core.interfaces import ModelFiles
from inferd.errors import BackendFailed

def descriptors():
    with contextlib.suppress(OSError):
        while True:
            yield os.dup(0)

most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
nowhere = pathlib.Path("/nowhere")
before = os.listdir("/proc/self/fd")
for room in range(3):  # for none of its three, for one, for two
    thread = ModelThread("m", ModelFiles(nowhere, 1, nowhere, nowhere), Sizes(1 << 16), print)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, most))
    taken = list(descriptors())
    for _ in range(room):
        os.close(taken.pop())
    try:
        thread.start()
    except BackendFailed as error:
        print(error)
    for descriptor in taken:
        os.close(descriptor)
    del thread  # whose memories each have one of their own
print(os.listdir("/proc/self/fd") == before)
"""


def test_a_thread_that_finds_no_descriptors_takes_none():
    """In a process of its own: no other thread here is to find none."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    refused = "model 'm': its thread cannot be started: Too many open files"
    assert done.stdout.splitlines() == [refused] * 3 + ["True"], done.stderr


@pytest.mark.slow
def test_loads_and_unloads_leave_no_descriptors_and_call_finalize(models, tmp_path, eventually):
    source = f"""
        class TritonPythonModel:
            def execute(self, requests):
                return [pb_utils.InferenceResponse(r.inputs() and [
                    pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
            def finalize(self):
                with open({str(tmp_path / "ended")!r}, "a") as file:
                    file.write("x")
    """
    root = models(m=(source, HERE))
    with running(root, model_control_mode="explicit") as asked:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(4):
            asked.grpc.load_model("m")
            assert asked.ask("m", "grpc", IN=ZERO)["OUT"].tolist() == [0]
            asked.grpc.unload_model("m")
        # An upcall's socket may come late; a leak would be seven at each load.
        eventually(lambda: len(os.listdir("/proc/self/fd")) < before + 7)
    assert (tmp_path / "ended").read_text() == "xxxx"
