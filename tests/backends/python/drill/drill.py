"""The drill: a model ends its process in every way we know, while four others are asked.

    python tests/backends/python/drill/drill.py

What it counts: wrong answers, and lost requests, of anybody but those who asked for an end; how
long it takes until the victim answers again; and what remains of the processes that were ended.
"""

import contextlib
import itertools
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from ways import FAILURES, WAYS  # noqa: E402

PATIENCE_S = 60
BACK_S = 5.0
"""How soon the victim must answer again."""

LIMIT_S = 3
"""How long an execution of the victim may take."""

PAUSE_S = 0.002
MODEL_COUNT = 4  # that Load asks, the stream being one
INNOCENT_COUNT = 3
KILL_COUNT = 6

LIVE = r"is live at http://127\.0\.0\.1:(\d+) and 127\.0\.0\.1:(\d+)"

ONE = """
input {{ name: "IN" data_type: TYPE_INT32 dims: -1 }}
output {{ name: "OUT" data_type: TYPE_INT32 dims: -1 }}
"""
PYTHON = 'backend: "python"\n' + ONE
VICTIM = f"""{PYTHON}
input {{{{ name: "WAY" data_type: TYPE_STRING dims: 1 }}}}
parameters {{{{
  key: "inferd_execution_timeout_seconds"
  value: {{{{ string_value: "{LIMIT_S}" }}}}
}}}}
"""
ENSEMBLE = """platform: "ensemble"
input {{ name: "IN" data_type: TYPE_INT32 dims: -1 }}
output {{ name: "OUT" data_type: TYPE_INT32 dims: -1 }}
ensemble_scheduling {{
  step {{ model_name: "in_server" model_version: -1
    input_map {{ key: "IN" value: "IN" }} output_map {{ key: "OUT" value: "MID" }} }}
  step {{ model_name: "in_worker" model_version: -1
    input_map {{ key: "IN" value: "MID" }} output_map {{ key: "OUT" value: "OUT" }} }}
}}
"""
IN_SERVER = 'backend: "onnxruntime"\nmax_batch_size: 0\n' + ONE
HOSTED = f"""{IN_SERVER}
parameters {{{{ key: "inferd_process" value: {{{{ string_value: "worker" }}}} }}}}
"""
TIMES_THREE = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", 3 * array)]) for array in (
            pb_utils.get_input_tensor_by_name(one, "IN").as_numpy() for one in requests)]
"""


def onnx_plus(number):
    """Return an ONNX model OUT = IN + `number`."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.INT32, ["n"]) for name in ("IN", "OUT")
    ]
    addend = helper.make_tensor("c", TensorProto.INT32, [1], [number])
    node = helper.make_node("Add", ["IN", "c"], ["OUT"])
    graph = helper.make_graph([node], "g", values[:1], values[1:], [addend])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model.SerializeToString()


def write_repository(root):
    """Write the victim and the others."""
    for name, config in (
        ("victim", VICTIM),
        ("in_worker", PYTHON),
        ("ensemble", ENSEMBLE),
        ("in_server", IN_SERVER),
        ("hosted", HOSTED),
    ):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(config.format())
    shutil.copy(HERE / "victim.py", root / "victim/1/model.py")
    shutil.copy(HERE / "ways.py", root / "victim/1/ways.py")
    (root / "in_worker/1/model.py").write_text(TIMES_THREE)
    for name in ("in_server", "hosted"):
        (root / name / "1/model.onnx").write_bytes(onnx_plus(7))


class ServerProcess:
    """A server of the repository `root`, as users start it; `kept` are the last lines it said."""

    def __init__(self, root):
        ports = [f"--{one}-port=0" for one in ("http", "grpc", "metrics")]
        ports += ["--http-address=127.0.0.1", "--grpc-address=127.0.0.1"]
        limit = "--backend-config=python,shm-growth-limit-byte-size=33554432"
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "inferd", "serve", str(root), *ports, limit],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.pid = self._popen.pid
        self.kept = []
        self._found = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.http_port, self.grpc_port = map(int, self._found.get(timeout=PATIENCE_S))
            self._found.get(timeout=PATIENCE_S)
        except queue.Empty:
            self._popen.kill()
            raise AssertionError("the server is not ready:\n" + "".join(self.kept)) from None

    def _read(self):
        for line in self._popen.stdout:
            self.kept = [*self.kept[-50:], line]
            if match := re.search(LIVE, line):
                self._found.put(match.groups())
            elif re.search(r"\bready$", line):
                self._found.put(())

    def is_alive(self):
        return self._popen.poll() is None

    def end(self):
        self._popen.terminate()
        code = self._popen.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self._popen.stdout.close()
        return code


def facts_of(pid):
    """Return (open descriptors, states of child processes, resident bytes, /dev/shm)."""
    states = []
    for one in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if one.name.isdigit():
                fields = (one / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid:
                    states.append(fields[0])
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return (
        len(os.listdir(f"/proc/{pid}/fd")),
        states,
        pages * os.sysconf("SC_PAGE_SIZE"),
        set(os.listdir("/dev/shm")),
    )


def asked(kind, client, model, **arrays):
    """Return the answer of `model` as an array."""
    result = client.infer(model, inputs_of(kind, arrays))
    return result.as_numpy("OUT")


def inputs_of(kind, arrays):
    inputs = []
    for name, array in arrays.items():
        datatype = "BYTES" if array.dtype == object else "INT32"
        inputs.append(kind.InferInput(name, array.shape, datatype))
        inputs[-1].set_data_from_numpy(array)
    return inputs


class Load:
    """Clients that ask the other models again and again, each with values of its own."""

    def __init__(self, server):
        self._http = f"127.0.0.1:{server.http_port}"
        self._grpc = f"127.0.0.1:{server.grpc_port}"
        self.right, self.wrong, self.lost = Counter(), Counter(), Counter()
        self.errors = []
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=one)
            for one in (
                ("in_server", tritonclient.http, 1, 7),
                ("in_worker", tritonclient.http, 3, 0),
                ("ensemble", tritonclient.grpc, 3, 21),
            )
        ]
        self._threads.append(threading.Thread(target=self._stream))

    def __enter__(self):
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        for one in self._threads:
            one.join(PATIENCE_S)

    def _values(self):
        chance = np.random.default_rng(threading.get_ident())
        for _ in itertools.takewhile(lambda _: not self._is_over.wait(PAUSE_S), itertools.count()):
            yield chance.integers(-1000, 1000, 16, np.int32)

    def _note(self, name, expected, got):
        counter = self.right if np.array_equal(got, expected) else self.wrong
        counter[name] += 1

    def _lose(self, name, error):
        self.lost[name] += 1
        self.errors.append(f"{name}: {error}")

    def _ask(self, name, kind, factor, addend):
        url = self._http if kind is tritonclient.http else self._grpc
        with contextlib.closing(kind.InferenceServerClient(url)) as client:
            for array in self._values():
                try:
                    self._note(name, factor * array + addend, asked(kind, client, name, IN=array))
                except Exception as error:  # noqa: BLE001  counted
                    self._lose(name, error)

    def _stream(self):
        name = "a stream to in_server"
        answers = queue.SimpleQueue()
        with contextlib.closing(tritonclient.grpc.InferenceServerClient(self._grpc)) as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            for array in self._values():
                try:
                    inputs = inputs_of(tritonclient.grpc, {"IN": array})
                    client.async_stream_infer("in_server", inputs)
                    result, error = answers.get(timeout=PATIENCE_S)
                except Exception as failed:  # noqa: BLE001  counted
                    result, error = None, failed
                if error is not None:
                    self._lose(name, error)
                else:
                    self._note(name, array + 7, result.as_numpy("OUT"))
            client.stop_stream()


class Victim:
    """The model that is ended. Each call has a client of its own."""

    def __init__(self, server):
        self._url = f"127.0.0.1:{server.grpc_port}"

    def ask(self, way="", value=0, model="victim"):
        """Return the answer, or the error's text."""
        array = np.full(4, value, np.int32)
        inputs = (
            {"IN": array} if model != "victim" else {"IN": array, "WAY": np.array([way], object)}
        )
        with contextlib.closing(tritonclient.grpc.InferenceServerClient(self._url)) as client:
            try:
                return asked(tritonclient.grpc, client, model, **inputs)
            except InferenceServerException as error:
                return error.message()

    def ask_beside(self, count):
        """Ask so many times side by side; return how many of the answers are wrong."""
        found = queue.SimpleQueue()

        def ask(value):
            found.put(is_right(self.ask(value=value), value + 1))

        threads = [threading.Thread(target=ask, args=(value,)) for value in range(count)]
        for one in threads:
            one.start()

        def wrong_count():
            for one in threads:
                one.join(PATIENCE_S)
            return count - sum(found.get() for _ in range(found.qsize()))

        return wrong_count


def is_right(answer, expected):
    return isinstance(answer, np.ndarray) and np.array_equal(answer, np.full(4, expected))


class Row:
    """What one way did: the error of the request, how long the victim was away, who was hit."""

    def __init__(self, way, error, away_s, innocent_count):
        self.way, self.error, self.away_s = way, error, away_s
        self.innocent_count = innocent_count

    def __str__(self):
        return f"{self.way:40} {self.away_s:5.2f} s {self.innocent_count:3}  {self.error[:90]}"


def end_by(victim, way):
    """Have the victim end in a way, while others ask it, too."""
    began_s = time.monotonic()
    errors = queue.SimpleQueue()
    ending = threading.Thread(target=lambda: errors.put(victim.ask(way)))
    ending.start()
    wrong_count = victim.ask_beside(INNOCENT_COUNT)
    ending.join(PATIENCE_S)
    error = errors.get(timeout=1)
    told_s = time.monotonic()
    answer = victim.ask(value=41)
    # An end may come a little after the request was answered: then one more is hit.
    away_s = time.monotonic() - (told_s if told_s - began_s > LIMIT_S else began_s)
    innocent_count = wrong_count() + (not is_right(answer, 42))
    text = error if isinstance(error, str) else f"no error, but {error}"
    return Row(way, text.replace("\n", " "), away_s, innocent_count)


def kill_hosted(victim, server):
    """Kill the ONNX model's worker again and again under load; return (asked, lost, wrong)."""
    is_over = threading.Event()
    counts = Counter()
    lock = threading.Lock()

    def ask(value):
        while not is_over.is_set():
            answer = victim.ask(value=value, model="hosted")
            word = "right" if is_right(answer, value + 7) else "lost"
            if isinstance(answer, np.ndarray) and word == "lost":
                word = "wrong"
            with lock:
                counts[word] += 1

    threads = [threading.Thread(target=ask, args=(value,)) for value in range(8)]
    for one in threads:
        one.start()
    for _ in range(KILL_COUNT):
        before = counts["right"]
        while counts["right"] < before + 20:
            time.sleep(0.001)
        os.kill(worker_of(server.pid, "hosted"), signal.SIGKILL)
    is_over.set()
    for one in threads:
        one.join(PATIENCE_S)
    return counts


def worker_of(pid, model):
    """Return the process that runs `model` for server `pid`."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        for one in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not one.name.isdigit():
                    continue
                words = (one / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                parent = int((one / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == pid and words[-1] == model.encode():
                    return int(one.name)
        time.sleep(0.001)
    msg = f"there is no worker of {model}"
    raise AssertionError(msg)


class Report:
    """What the drill found."""

    def __init__(self):
        self.rows, self.failures = [], []
        self.load = self.hosted = None
        self.before = self.after = None
        self.exit_code = None

    def __str__(self):
        load = self.load
        others = [
            f"  {name}: {load.right[name]} right, {load.wrong[name]} wrong, {load.lost[name]} lost"
            for name in sorted(load.right | load.wrong | load.lost)
        ]
        longest_s = max(row.away_s for row in self.rows)
        hosted = ", ".join(f"{self.hosted[word]} {word}" for word in ("right", "wrong", "lost"))
        count = len(self.rows) + len(self.failures)
        fds, states, size, _ = zip(self.before, self.after, strict=True)
        return "\n".join(
            [
                f"{'way':40} back in  hit  error",
                *map(str, self.rows),
                "These only fail their request:",
                *map(str, self.failures),
                f"{count} ways, the victim was back within {longest_s:.2f} s",
                "Other models meanwhile:",
                *others,
                *load.errors[:5],
                f"An ONNX model in a worker, killed {KILL_COUNT} times under 8 clients: {hosted}",
                f"Descriptors {fds[0]} -> {fds[1]}, child processes {''.join(states[0])} -> "
                f"{''.join(states[1])}, resident {size[0] >> 20} -> {size[1] >> 20} MiB",
            ]
        )


def settled(pid, before):
    """Return the facts of the server, once its descriptors and children are as many as before."""
    deadline_s = time.monotonic() + BACK_S
    while True:
        now = facts_of(pid)
        if (now[0] <= before[0] and len(now[1]) == len(before[1])) or time.monotonic() > deadline_s:
            return now
        time.sleep(0.001)


def run(root, ways=None):
    """Run the drill with a repository in the empty folder `root`; return the Report."""
    write_repository(root)
    report = Report()
    server = ServerProcess(root)
    try:
        victim = Victim(server)
        with Load(server) as load:  # its connections and threads are there before it is measured
            end_by(victim, "abort")
            while len(load.right) < MODEL_COUNT:
                time.sleep(0.001)
        report.before = settled(server.pid, facts_of(server.pid))
        with Load(server) as report.load:
            for way in ways or WAYS:
                row = end_by(victim, way)
                if row.away_s > BACK_S and not row.innocent_count:  # the machine may be busy
                    row = end_by(victim, way)
                report.rows.append(row)
            for way in FAILURES:
                report.failures.append(end_by(victim, way))
            report.hosted = kill_hosted(victim, server)
        report.after = settled(server.pid, report.before)
        assert server.is_alive(), "".join(server.kept)
    finally:
        report.exit_code = server.end()
    return report


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(run(Path(folder)))  # noqa: T201
