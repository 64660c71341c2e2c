"""Servers of several processes, whose processes end in every way, over real sockets."""

import base64
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import shared_memory
from pathlib import Path

import changes_under_load
import numpy as np
import pytest
from fleet_under_load import children_of, play
from running_fleet import is_alive, states_of, until
from server_process import ON_FREE_PORTS, Process

pytestmark = pytest.mark.slow

CONNECTIONS = 6
EXPLICIT = ["--model-control-mode=explicit", "--load-model=*"]


@pytest.fixture
def start():
    """start(arguments...) starts a server of two processes and returns it and its HTTP port."""
    started = []

    def run(*arguments, workers=2, ready=True):
        one = Process(*arguments, *ON_FREE_PORTS, f"--workers={workers}")
        started.append(one)
        return one, one.wait_ready() if ready else one.wait_live()

    yield run
    for each in started:
        left = children_of(each.process.pid) if each.process.poll() is None else []
        each.process.kill()
        each.process.wait()
        each.process.stdout.close()
        until(lambda left=left: not any(map(is_alive, left)))


def repository_of(root, name, config):
    """Add a model to a repository, its configuration last."""
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(config)


def inodes_of(pid):
    """Return those of the sockets that a process has open."""
    links = (os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir())
    return {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}


def tcp_sockets_of(pid):
    """Return the connections that a process has, over IPv4."""
    mine = inodes_of(pid)
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row for row in rows if row[9] in mine]


def sockets_of(pid):
    """Return the paths of the Unix sockets that a process has open."""
    mine = inodes_of(pid)
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return [row[7] for row in rows if len(row) > 7 and row[6] in mine and row[7][0] == "/"]


def everywhere(ask, port, path, body=None):
    """Return the distinct answers on several connections, which reach all processes."""
    answers = [ask(port, path, body) for _ in range(CONNECTIONS)]
    return [one for at, one in enumerate(answers) if one not in answers[:at]]


def replaced(server, pids):
    """Wait until the server has other processes than `pids`, as many, and all of them serve."""
    server.wait_for(r"has started, pid")
    return until(lambda: len(found := children_of(server.process.pid)) == len(pids) and found)


def trace_numbers(file):
    """Return the numbers of the traces in a file, which may be written at this moment."""
    try:
        return [one["id"] for one in json.loads(file.read_text()) if "model_name" in one]
    except ValueError:
        return []


def config_of(text):
    """The configuration of an identity, with `text` as a parameter that tells it from others."""
    return json.dumps(
        {
            "backend": "identity",
            "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
            "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
            "parameters": {"mark": {"string_value": text}},
        }
    )


def marks(ask, port):
    """Return the marks of model m as all processes have it."""
    return [
        answer["parameters"]["mark"]["string_value"]
        for _, answer in everywhere(ask, port, "/v2/models/m/config")
    ]


# --- one server in every answer ---


def test_connections_are_spread_evenly(start, repository, echo, ask):
    server, port = start(repository(m=echo()))
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(16)]
    for one in held:
        one.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in one.recv(1000)
    counts = [len(tcp_sockets_of(pid)) for pid in children_of(server.process.pid)]
    for one in held:
        one.close()
    assert counts == [8, 8]


def test_what_is_loaded_and_unloaded_is_so_in_all_processes(start, repository, echo, ask, body):
    _, port = start(repository(m=echo()), *EXPLICIT)
    assert ask(port, "/v2/repository/models/m/unload", b"")[0] == 200
    assert [status for status, _ in everywhere(ask, port, "/v2/models/m/ready")] == [400]
    assert ask(port, "/v2/repository/models/m/load", b"")[0] == 200
    assert len(everywhere(ask, port, "/v2/models/m/infer", body)) == 1
    for mark in ("a", "b", "c"):
        load = json.dumps({"parameters": {"config": config_of(mark)}})
        assert ask(port, "/v2/repository/models/m/load", load)[0] == 200
        assert marks(ask, port) == [mark]


def test_what_sagemaker_has_loaded_all_processes_know(start, tmp_path, echo, ask, body):
    repository_of(tmp_path / "a1" / "model", "shoes", echo())
    folder = str(tmp_path / "a1" / "model")
    multi = ["--allow-sagemaker", "--sagemaker-multi-model", "--sagemaker-port=0"]
    server, _ = start(f"--model-repository={tmp_path}", *multi)
    pids = children_of(server.process.pid)
    port = int(re.search(r"SageMaker +http://127.0.0.1:(\d+)", server.said)[1])
    assert ask(port, "/models", json.dumps({"model_name": "m", "url": folder}))[0] == 200
    listed = (200, {"models": [{"modelName": "m", "modelUrl": folder}]})
    assert everywhere(ask, port, "/models") == [listed]
    assert len(everywhere(ask, port, "/models/m/invoke", body)) == 1
    # One that starts later knows it, too.
    os.kill(pids[0], signal.SIGKILL)
    assert replaced(server, pids)
    assert until(lambda: everywhere(ask, port, "/models") == [listed])
    assert ask(port, "/models", json.dumps({"model_name": "m", "url": folder}))[0] == 409


def test_a_load_that_fails_changes_nothing_anywhere(start, repository, echo, ask, body):
    _, port = start(repository(m=echo()), *EXPLICIT)
    broken = json.dumps({"backend": "faulty", "parameters": {"fault": {"string_value": "load"}}})
    load = json.dumps({"parameters": {"config": broken}})
    status, answer = ask(port, "/v2/repository/models/m/load", load)
    assert status == 400
    assert "fails to load" in answer["error"]
    assert [status for status, _ in everywhere(ask, port, "/v2/models/m/infer", body)] == [200]
    status, answer = ask(port, "/v2/repository/models/absent/load", b"")
    assert (status, "no such model" in answer["error"]) == (500, True)


def test_a_model_that_fails_in_its_owner_at_the_start_has_failed_everywhere(
    start, repository, echo, ask, body
):
    broken = """backend: "faulty"
        parameters { key: "fault" value: { string_value: "load" } }
        parameters { key: "inferd_placement" value: { string_value: "single" } }
        input [{ name: "INPUT0" data_type: TYPE_FP32 dims: 1 }]
        output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }]"""
    # Names have owners by their hashes: both processes have some of these.
    names = [f"b{number}" for number in range(4)]
    models = repository(m=echo(), **dict.fromkeys(names, broken))
    server, port = start(models, "--model-control-mode=explicit", "--load-model=*", ready=False)
    server.wait_for("not ready: models failed")

    def look():
        assert [status for status, _ in everywhere(ask, port, "/v2/health/ready")] == [400]
        [(status, rows)] = everywhere(ask, port, "/v2/repository/index", b"")
        assert [row["state"] for row in rows] == ["UNAVAILABLE"] * len(names) + ["READY"]
        for name in names:
            [(status, answer)] = everywhere(ask, port, f"/v2/models/{name}/infer", body)
            assert (status, "fails to load" in answer["error"]) == (404, True)
        assert [status for status, _ in everywhere(ask, port, "/v2/models/m/infer", body)] == [200]

    look()
    pids = children_of(server.process.pid)
    os.kill(pids[0], signal.SIGKILL)
    replaced(server, pids)
    until(lambda: states_of(server) == ["ready"] * 2)
    look()


SAYS_WHAT_A_FILE_SAYS = """
from pathlib import Path

class TritonPythonModel:
    def initialize(self, args):
        self.sick = Path(args["model_repository"], "sick")

    def is_ready(self):
        return not self.sick.exists()

    def execute(self, requests):
        raise ValueError
"""


def test_what_a_model_says_of_itself_is_said_by_all_processes(start, repository, ask):
    config = """backend: "python"
        input [{ name: "x" data_type: TYPE_FP32 dims: 1 }]
        output [{ name: "y" data_type: TYPE_FP32 dims: 1 }]"""
    # Each has one instance, in the process that its name's hash says.
    names = [f"p{number}" for number in range(4)]
    root = repository(**dict.fromkeys(names, config))
    for name in names:
        (root / name / "1").mkdir(exist_ok=True)
        (root / name / "1" / "model.py").write_text(SAYS_WHAT_A_FILE_SAYS)
    _, port = start(root)

    def said(path):
        return {status for status, _ in everywhere(ask, port, path)}

    for name in names:
        sick = root / name / "sick"
        sick.touch()
        assert said("/v2/health/ready") == {400}
        assert [said(f"/v2/models/{one}/ready") for one in names] == [
            {400 if one == name else 200} for one in names
        ]
        assert said(f"/v2/models/{name}/versions/1/ready") == {400}
        sick.unlink()
    assert said("/v2/health/ready") == {200}


def test_loads_that_come_at_the_same_time_end_the_same_everywhere(start, repository, echo, ask):
    _, port = start(repository(m=echo()), *EXPLICIT)

    def load(number):
        text = json.dumps({"parameters": {"config": config_of(str(number))}})
        return ask(port, "/v2/repository/models/m/load", text)[0]

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(load, range(16))) == {200}
    assert len(marks(ask, port)) == 1


def test_files_that_are_sent_reach_all_processes(start, repository, echo, ask):
    _, port = start(repository(m=echo()), *EXPLICIT)
    large = base64.b64encode(bytes(3 << 20)).decode()
    load = {"parameters": {"config": config_of("sent"), "file:1/weights": large}}
    assert ask(port, "/v2/repository/models/m/load", json.dumps(load))[0] == 200
    assert marks(ask, port) == ["sent"]


def test_shared_memory_is_registered_in_all_processes(start, repository, echo, ask):
    _, port = start(repository(m=echo()), "--allow-client-shm=true")
    memory = shared_memory.SharedMemory(create=True, size=64)
    try:
        np.frombuffer(memory.buf, np.float32)[0] = 7.5
        register = json.dumps({"key": memory.name, "offset": 0, "byte_size": 64})
        path = "/v2/systemsharedmemory/region/r"
        assert ask(port, f"{path}/register", register)[0] == 200
        assert ask(port, f"{path}/register", register)[0] == 400
        place = {"shared_memory_region": "r", "shared_memory_byte_size": 4}
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1], "parameters": place}
        infer = json.dumps({"inputs": [tensor]})
        [(status, answer)] = everywhere(ask, port, "/v2/models/m/infer", infer)
        assert (status, answer["outputs"][0]["data"]) == (200, [7.5])
        assert ask(port, "/v2/systemsharedmemory/unregister", b"")[0] == 200
        assert [one[0] for one in everywhere(ask, port, "/v2/models/m/infer", infer)] == [404]
        missing = json.dumps({"key": "/is-not-there", "byte_size": 4})
        assert ask(port, f"{path}/register", missing)[0] == 500
    finally:
        memory.close()
        memory.unlink()


def test_log_and_trace_settings_are_those_of_all_processes(start, repository, echo, ask):
    _, port = start(repository(m=echo()))
    assert ask(port, "/v2/logging", b'{"log_verbose_level":3}')[0] == 200
    assert ask(port, "/v2/trace/setting", b'{"trace_rate":"77"}')[0] == 200
    [(_, log)] = everywhere(ask, port, "/v2/logging")
    [(_, trace)] = everywhere(ask, port, "/v2/trace/setting")
    assert (log["log_verbose_level"], trace["trace_rate"]) == (3, "77")
    assert ask(port, "/v2/logging", b'{"log_format":"no such"}')[0] == 400


def test_the_supervisor_logs_as_clients_have_said(start, repository, echo, ask, tmp_path):
    server, port = start(repository(m=echo()), f"--log-directory={tmp_path}")
    change = json.dumps({"log_file": "all.log", "log_format": "json"})
    assert ask(port, "/v2/logging", change)[0] == 200
    pids = children_of(server.process.pid)
    os.kill(pids[0], signal.SIGKILL)

    def words_of(pid):
        lines = map(json.loads, (tmp_path / "all.log").read_text().splitlines())
        return "\n".join(line["message"] for line in lines if line["pid"] == pid)

    until(lambda: "process 0 of 2 has started" in words_of(server.process.pid))
    assert "process 0 ended: SIGKILL" in words_of(server.process.pid)
    until(lambda: states_of(server) == ["ready"] * 2)
    assert ask(port, "/v2/logging", json.dumps({"log_info": False}))[0] == 200
    server.process.terminate()
    assert server.end() == 0
    assert "finishing what is in flight" not in words_of(server.process.pid)


def test_what_changes_in_a_polled_repository_changes_in_all_processes(
    start, repository, echo, ask, body
):
    root = repository(m=echo())
    poll = ["--model-control-mode=poll", "--repository-poll-secs=1"]
    _, port = start(root, *poll)
    repository_of(root, "n", echo())

    def statuses():
        return {one[0] for one in everywhere(ask, port, "/v2/models/n/infer", body)}

    # Such a change has no answer that could come too early: one process is ahead of the other.
    until(lambda: statuses() == {200})
    shutil.rmtree(root / "n")
    until(lambda: statuses() == {404})
    assert statuses() == {404}


def test_after_a_load_no_process_answers_as_before():
    counts = changes_under_load.play(3, 20, 2000)
    assert counts["wrong"] == 0, counts.faults
    assert counts["failed_loads"] >= 2
    assert counts["answered"] > 1000


# --- processes that end ---


def test_a_process_whose_models_are_broken_by_now_does_not_serve(
    start, repository, echo, broken, ask, body
):
    root = repository(m=echo())
    server, port = start(root)
    (root / "m" / "config.pbtxt").write_text(broken)
    os.kill(children_of(server.process.pid)[0], signal.SIGKILL)
    server.wait_for(r"would not serve m as the others do")
    assert [one[0] for one in everywhere(ask, port, "/v2/models/m/infer", body)] == [200]
    (root / "m" / "config.pbtxt").write_text(echo())
    server.wait_for(r"has started, pid")
    until(lambda: len(children_of(server.process.pid)) == 2)


def test_a_process_that_finds_another_configuration_does_not_serve_until_all_have_it(
    start, repository, echo, ask
):
    root = repository(m=echo(mark="old"))
    server, port = start(root, *EXPLICIT)
    (root / "m" / "config.pbtxt").write_text(echo(mark="new"))
    os.kill(children_of(server.process.pid)[0], signal.SIGKILL)
    server.wait_for(r"would not serve m as the others do")
    assert marks(ask, port) == ["old"]
    assert ask(port, "/v2/repository/models/m/load", b"")[0] == 200
    assert marks(ask, port) == ["new"]
    server.wait_for(r"has started, pid")
    until(lambda: len(children_of(server.process.pid)) == 2)
    assert marks(ask, port) == ["new"]


@pytest.mark.parametrize("mode", ["none", "explicit", "poll"])
def test_processes_are_not_replaced_by_such_as_find_other_files(
    start, repository, echo, ask, body, mode
):
    root = repository(m=echo())
    (root / "m" / "1" / "weights").write_bytes(b"one")
    arguments = [f"--model-control-mode={mode}", "--repository-poll-secs=3600"]
    server, port = start(root, *arguments, *(EXPLICIT[1:] if mode == "explicit" else ()))
    pids = children_of(server.process.pid)
    (root / "m" / "1" / "weights").write_bytes(b"other")
    os.kill(server.process.pid, signal.SIGUSR2)
    server.wait_for(r"would not serve m as the others do")
    server.wait_for(r"no more processes are replaced: the new one did not start")
    assert children_of(server.process.pid) == pids
    assert [one[0] for one in everywhere(ask, port, "/v2/models/m/infer", body)] == [200]


def test_what_lies_where_the_server_was_started_is_not_imported(
    repository, echo, ask, body, tmp_path, monkeypatch
):
    (tmp_path / "msgspec.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    inferd = str(Path(sys.executable).with_name("inferd"))
    server = Process(
        "serve", repository(m=echo()), *ON_FREE_PORTS, "--workers=2", command=[], program=inferd
    )
    port = server.wait_ready()
    assert [one[0] for one in everywhere(ask, port, "/v2/models/m/infer", body)] == [200]
    server.process.terminate()
    assert server.end() == 0
    server.process.stdout.close()


def test_a_killed_process_is_started_again_and_makes_the_changes(start, repository, echo, ask):
    server, port = start(repository(m=echo()), *EXPLICIT)
    load = json.dumps({"parameters": {"config": config_of("later")}})
    assert ask(port, "/v2/repository/models/m/load", load)[0] == 200
    assert ask(port, "/v2/logging", b'{"log_verbose_level":3}')[0] == 200
    pids = children_of(server.process.pid)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        replaced(server, pids)
        until(lambda: marks(ask, port) == ["later"])
    [(_, log)] = everywhere(ask, port, "/v2/logging")
    assert log["log_verbose_level"] == 3


def test_traces_have_numbers_of_their_own_whichever_process_makes_them(
    start, repository, echo, ask, body, tmp_path
):
    file = tmp_path / "trace.json"
    trace = [f"--trace-config={one}" for one in ("level=TIMESTAMPS", "rate=1")]
    server, port = start(repository(m=echo()), f"--trace-config=triton,file={file}", *trace)
    for count in (CONNECTIONS, 2 * CONNECTIONS):
        assert [one[0] for one in everywhere(ask, port, "/v2/models/m/infer", body)] == [200]
        until(lambda count=count: file.exists() and len(trace_numbers(file)) == count)
        pids = children_of(server.process.pid)
        os.kill(pids[0], signal.SIGKILL)
        replaced(server, pids)
        until(lambda: states_of(server) == ["ready"] * 2)
    assert len(set(trace_numbers(file))) == count


def test_a_process_that_hangs_is_ended_and_the_others_go_on(start, repository, echo, ask, body):
    server, port = start(repository(m=echo()), "--workers-hang-secs=2")
    pids = children_of(server.process.pid)
    os.kill(pids[0], signal.SIGSTOP)
    server.wait_for("has been silent for")
    replaced(server, pids)
    until(lambda: [one[0] for one in everywhere(ask, port, "/v2/models/m/infer", body)] == [200])


def test_processes_end_with_the_supervisor(start, repository, echo):
    server, port = start(repository(m=echo()))
    pids = children_of(server.process.pid)
    folders = {Path(one).parent for one in sockets_of(pids[0]) if "/inferd-" in one}
    assert [folder.is_dir() for folder in folders] == [True]
    server.process.kill()
    until(lambda: not any(map(is_alive, pids)))
    assert [folder.exists() for folder in folders] == [False]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_process_that_somebody_else_stops_is_replaced(start, repository, echo, ask, body):
    server, port = start(repository(m=echo()))
    pids = children_of(server.process.pid)
    os.kill(pids[0], signal.SIGTERM)
    replaced(server, pids)
    assert [one[0] for one in everywhere(ask, port, "/v2/models/m/infer", body)] == [200]


def test_replacing_all_processes_loses_no_request():
    counts, _, log = play(2, "roll", 12.0, 6.0)
    assert (counts["wrong"], counts["lost"], counts["refused"]) == (0, 0, 0), counts.faults
    assert counts["answered"] > 1000
    assert "all processes have been replaced" in log


def test_killed_processes_cost_the_requests_in_them():
    counts, ends, _ = play(2, "kill", 12.0, 5.0)
    assert (counts["wrong"], counts["refused"]) == (0, 0), counts.faults
    assert counts["lost"] <= 16 * ends
    assert counts["answered"] > 1000


# --- the start, and the end ---


def test_processes_that_cannot_start_end_the_server(start, repository, echo, broken):
    server, _ = start(repository(m=echo(), n=broken), "--exit-on-error=true", ready=False)
    assert server.end() == 1
    assert "--exit-on-error is set" in server.said


def test_a_port_in_use_is_told(repository, echo):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Process(repository(m=echo()), *ON_FREE_PORTS, "--workers=2", f"--http-port={port}")
        assert server.end() == 1
    assert f"cannot listen on 127.0.0.1:{port} for HTTP: address already in use" in server.said
    server.process.stdout.close()


def test_more_processes_than_cores_serve(start, repository, echo, ask, body):
    server, port = start(repository(m=echo()), workers=5)
    assert len(children_of(server.process.pid)) == 5
    assert [one[0] for one in everywhere(ask, port, "/v2/models/m/infer", body)] == [200]
    server.process.terminate()
    assert server.end() == 0


# --- clients that behave badly ---


def test_idle_and_slow_clients_keep_nobody_out(start, repository, echo, ask, body):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 11_000), hard))
    held = []
    try:
        _, port = start(repository(m=echo()), "--http-max-connections=12000")
        count = min(10_000, min(hard, 11_000) - 500)
        held.extend(socket.create_connection(("127.0.0.1", port)) for _ in range(count))
        for one in held[::100]:
            one.send(b"P")
        assert [one[0] for one in everywhere(ask, port, "/v2/models/m/infer", body)] == [200]
    finally:
        for one in held:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_supervisor_without_open_files_goes_on_when_there_are_some(
    start, repository, echo, ask, body
):
    server, port = start(repository(m=echo()))
    pid = server.process.pid
    free = min(set(range(1000)) - set(map(int, os.listdir(f"/proc/{pid}/fd"))))
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, hard))
    answers = []
    asking = threading.Thread(
        target=lambda: answers.append(ask(port, "/v2/models/m/infer", body)[0])
    )
    asking.start()
    server.wait_for("no connection can be accepted now")
    assert answers == []
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    asking.join()
    assert answers == [200]


def test_a_supervisor_that_cannot_start_processes_tries_again(start, repository, echo, ask, body):
    server, port = start(repository(m=echo()))
    pid = server.process.pid
    pids = children_of(pid)
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, hard))
    os.kill(pids[0], signal.SIGKILL)
    server.wait_for("could not be started: Too many open files")
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    replaced(server, pids)
    assert [one[0] for one in everywhere(ask, port, "/v2/models/m/infer", body)] == [200]


def test_a_keep_alive_connection_goes_on_in_one_process(start, repository, echo, body):
    _, port = start(repository(m=echo()))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for _ in range(50):
        connection.request("POST", "/v2/models/m/infer", body)
        assert connection.getresponse().read()
    connection.close()
