"""What a server's next start knows of the crash of the one before."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import msgspec
import pytest
from onnx import TensorProto, helper

from inferd.config.server import ServerConfig
from inferd.observe.crash.history import WITHIN_S, Crash, History
from inferd.observe.crash.record import LastRun, MarkedRun
from inferd.server.crashes import Crashes, folder_of, forget_old, tell

NOW_S = 1_800_000_000.0
RUN = MarkedRun("m", "1", "req-1", False, 7)
OTHER = MarkedRun("other", "3", "", True, 8)
SEGV = "Fatal Python error: Segmentation fault\n\n"
THREAD_7 = (
    SEGV + "Thread 0x8 (most recent call first):\n\nCurrent thread 0x7 (most recent call first):"
)


def ended(*runs, is_stopping=False, is_same_boot=True):
    return LastRun(is_stopping, is_same_boot, NOW_S - 60, NOW_S, runs)


@pytest.mark.parametrize(
    ("last", "trace", "models", "kind", "said"),
    [
        (ended(RUN), "", [("m", "1")], "no signal", "model 'm' version 1 ran request 'req-1'"),
        (ended(RUN), SEGV, [("m", "1")], "Segmentation fault", "(Segmentation fault) while model"),
        (
            ended(RUN, OTHER),
            SEGV,
            [("m", "1"), ("other", "3")],
            "Segmentation",
            "version 3 was loa",
        ),
        (
            ended(RUN, OTHER),
            THREAD_7,
            [("m", "1")],
            "Segmentation fault",
            "while model 'm' version",
        ),
        (ended(OTHER), THREAD_7, [("other", "3")], "Segmentation fault", "version 3 was loaded"),
        (ended(), "", [], "no signal", "while no model ran"),
        (ended(*[RUN] * 20), "", [("m", "1")], "no signal", "and 12 more ran"),
    ],
)
def test_an_end_is_told_and_put_down_to_what_ran(caplog, last, trace, models, kind, said):
    crash = tell(last, trace)
    assert crash is not None
    assert crash.models == models
    assert crash.kind.startswith(kind)
    assert said in caplog.text
    assert "2027-01-15 08:00:00+00:00" in caplog.text


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (ended(RUN, is_stopping=True), "was asked to stop and did not do so in time"),
        (ended(RUN, is_same_boot=False), "the machine has restarted since"),
    ],
)
def test_an_end_for_another_reason_is_no_crash(caplog, last, said):
    assert tell(last, SEGV) is None
    assert said in caplog.text


def test_names_in_a_record_cannot_forge_the_log(caplog):
    tell(ended(RUN._replace(model="m\nERROR forged", ids="\x1b[2J")), "")
    assert "\nERROR forged" not in caplog.text
    assert "\x1b" not in caplog.text


# --- records of one server and of several ---


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "crashes"


@pytest.fixture
def opened(folder):
    """opened(...) begins the record of a process that ends at the end of the test."""
    made = []

    def begin(**options):
        made.append(Crashes())
        made[-1].open(ServerConfig(crash_record=str(folder), **options), {})
        return made[-1]

    yield begin
    for one in made:
        one.close()


def records(folder):
    return sorted(path.suffix for path in folder.iterdir())


def test_a_record_is_there_while_the_server_is(opened, folder):
    crashes = opened()
    assert records(folder) == [".record", ".trace"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    crashes.close()
    assert records(folder) == []


def test_servers_side_by_side_have_records_of_their_own(opened, folder, caplog):
    for _ in range(3):
        opened()
    opened(http_port=1234)
    assert records(folder).count(".record") == 4
    assert "the last process" not in caplog.text


def test_a_record_that_was_left_is_read_though_one_before_it_is_free(opened, folder, caplog):
    first, second = opened(), opened()
    first.close()
    fcntl.flock(second._descriptor, fcntl.LOCK_UN)  # as if it had crashed
    assert records(folder) == [".record", ".trace"]
    third = opened()
    assert "the last process ended at " in caplog.text
    assert third._paths == second._paths


def test_old_records_are_removed_unless_their_server_lives(opened, folder):
    opened(http_port=1)
    [mine] = folder.glob("*.record")
    for name in ("old.0.record", "old.0.trace", "new.0.record"):
        (folder / name).write_bytes(b"")
    for path in (mine, folder / "old.0.record"):
        os.utime(path, (1, 1))
    forget_old(folder, 1000.0)
    assert sorted(folder.iterdir()) == sorted(
        [mine, mine.with_suffix(".trace"), folder / "new.0.record"]
    )


def test_off_leaves_no_record(tmp_path):
    crashes = Crashes()
    crashes.open(ServerConfig(crash_record="off"), {"XDG_RUNTIME_DIR": str(tmp_path)})
    crashes.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [1, 5000, 430_080, 10_000_000])
def test_what_is_no_record_is_ignored_with_a_warning(opened, folder, caplog, size):
    opened().close()
    folder.mkdir(exist_ok=True)
    path = folder / f"{name_of(opened, folder)}.0.record"
    path.write_bytes(b"\xff" * size)
    opened()
    assert "the record of runs in" in caplog.text
    assert "is ignored: " in caplog.text


def name_of(opened, folder):
    crashes = opened()
    [path] = folder.glob("*.0.record")
    crashes.close()
    return path.name.removesuffix(".0.record")


@pytest.mark.parametrize("text", ["{", "[]", '{"crashes": 5}', "x" * 100_000])
def test_a_history_that_cannot_be_read_is_ignored_with_a_warning(opened, folder, caplog, text):
    (folder / f"{name_of(opened, folder)}.history").write_text(text)
    crashes = opened()
    assert crashes.isolated == frozenset()
    assert "the history of crashes in" in caplog.text


def test_a_history_isolates_unless_an_option_says_no(opened, folder):
    history = History()
    for at_s in (NOW_S, NOW_S + WITHIN_S - 1):
        history.add(Crash(at_s, "Aborted", [("m", "1")]))
    (folder / f"{name_of(opened, folder)}.history").write_bytes(msgspec.json.encode(history))
    crashes = opened()
    assert crashes.isolated == {("m", "1")}
    crashes.close()
    assert opened(isolate_crashed=False).isolated == frozenset()


def test_what_other_processes_isolate_later_is_told_once(opened, folder):
    first, second = opened(), opened()
    deaf = opened(isolate_crashed=False)
    assert first.newly_isolated() == frozenset()
    path = folder / f"{name_of(opened, folder)}.history"
    history = History()
    for number in range(4):
        history.add(Crash(NOW_S, "Aborted", [("m" if number < 2 else "n", "1")]))
        path.write_bytes(msgspec.json.encode(history)[: 10 if number == 2 else None])
        os.utime(path, ns=(number, number))
        found = [one.newly_isolated() for one in (first, first, deaf)]
        assert found[0] == {1: {("m", "1")}, 3: {("m", "1"), ("n", "1")}}.get(number, set())
        assert found[1:] == [set(), set()]
    assert opened().newly_isolated() == set()  # it knows them from the start
    assert second.newly_isolated() == {("m", "1"), ("n", "1")}


def test_a_link_in_place_of_a_record_is_not_followed(opened, folder, tmp_path, caplog):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (folder / f"{name_of(opened, folder)}.0.record").symlink_to(victim)
    opened()
    assert victim.read_text() == "mine"
    assert "there is no record of what runs" in caplog.text


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = folder_of(ServerConfig(), {})
    assert folder == tmp_path / f"inferd-{os.geteuid()}"
    folder.chmod(0o777)
    with pytest.raises(OSError, match="can be written by others"):
        folder_of(ServerConfig(), {})
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    assert folder_of(ServerConfig(), {"XDG_RUNTIME_DIR": str(runtime)}) == runtime / "inferd"


# --- real crashes of real servers ---

LIVE = r"is live at http://127\.0\.0\.1:(\d+) "


def write_model(root, name):
    """Write an ONNX model that takes long: three million rounds of a loop."""
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    count = helper.make_tensor("count", TensorProto.INT64, [], [300_000_000])
    go = helper.make_tensor("go", TensorProto.BOOL, [], [True])
    body = helper.make_graph(
        [
            helper.make_node("Add", ["before", "one"], ["after"]),
            helper.make_node("Identity", ["goes"], ["goes_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, ["n"]),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, ["n"]),
        ],
    )
    values = [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["n"]) for x in ("X", "Y")]
    loop = helper.make_node("Loop", ["count", "go", "X"], ["Y"], body=body)
    graph = helper.make_graph([loop], "g", values[:1], values[1:], [one, count, go])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (root / name / "1").mkdir(parents=True)
    (root / name / "1/model.onnx").write_bytes(model.SerializeToString())
    (root / name / "config.pbtxt").write_text("max_batch_size: 0\n")


class ServerProcess:
    """A server whose model never ends; `said` is what it has logged."""

    def __init__(self, root, folder):
        options = [f"--{one}-port=0" for one in ("http", "grpc")] + [f"--crash-record={folder}"]
        options += ["--http-address=127.0.0.1", "--allow-metrics=false"]
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "inferd", "serve", str(root), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said = ""
        for line in self._popen.stdout:
            self.said += line
            if match := re.search(LIVE, line):
                self.port = int(match[1])
            if line.endswith("ready\n"):
                return
        raise AssertionError(self.said)

    def run_then(self, number):
        """Begin a run of the model, and then end the process by a signal."""
        body = b'{"id": "the-one", "inputs": [{"name": "X", "datatype": "FP32", "shape": [1], '
        body += b'"data": [1]}]}'
        url = f"http://127.0.0.1:{self.port}/v2/models/m/infer"

        def ask():
            with pytest.raises(OSError):  # noqa: PT011  the connection ends
                urllib.request.urlopen(url, body, timeout=60)

        asking = threading.Thread(target=ask)
        asking.start()
        before = self._used_ticks()
        while self._used_ticks() < before + 5:  # the model computes
            time.sleep(0.001)
        self._popen.send_signal(number)
        asking.join()
        self.end()

    def _used_ticks(self):
        """Return the processor time that the process has used outside the kernel."""
        stat = Path(f"/proc/{self._popen.pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[11])

    def end(self, number=signal.SIGKILL):
        self._popen.send_signal(number)
        self.said += self._popen.stdout.read()
        self._popen.stdout.close()
        self._popen.wait()

    def index(self):
        url = f"http://127.0.0.1:{self.port}/v2/repository/index"
        with urllib.request.urlopen(url, b"", timeout=60) as answer:
            return answer.read().decode()


@pytest.mark.slow
def test_a_model_in_which_the_server_ended_twice_runs_in_a_worker(tmp_path):
    write_model(tmp_path / "models", "m")
    for _ in range(2):
        server = ServerProcess(tmp_path / "models", tmp_path / "crashes")
        assert "in a worker" not in server.said
        server.run_then(signal.SIGSEGV)
    server = ServerProcess(tmp_path / "models", tmp_path / "crashes")
    try:
        assert "(Segmentation fault) while model 'm' version 1 ran request 'the-one'" in server.said
        assert "model 'm' version 1: it runs in a worker, because the server crashed" in server.said
        assert "it runs in a worker, because the server crashed twice" in server.index()
    finally:
        server.end(signal.SIGTERM)
    assert records(tmp_path / "crashes") == [".history"]
