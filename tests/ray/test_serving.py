"""Servers as replicas have them: what becomes of them when their actor, or their keeper, ends."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from running_fleet import is_alive, until

from inferd.ray.replica import ServingState
from inferd.ray.serving import ServingProcess, base_url, is_ready, ready_models

pytestmark = pytest.mark.slow

MODEL = 'backend: "identity" max_batch_size: 0 '
MODEL += 'input { name: "x" data_type: TYPE_INT32 dims: [ -1 ] } '
MODEL += 'output { name: "x" data_type: TYPE_INT32 dims: [ -1 ] } '

ACTOR = """
import sys
from pathlib import Path
from inferd.ray.serving import ServingProcess
one = ServingProcess([sys.argv[1]], [], {}, Path(sys.argv[2]), "127.0.0.1", "node")
while one.report().state.value != "ready":
    pass
print(one.report().pid, one.report().http_port, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def models(tmp_path):
    (tmp_path / "models/same/1").mkdir(parents=True)
    (tmp_path / "models/same/config.pbtxt").write_text(MODEL)
    return tmp_path / "models"


@pytest.fixture
def serve(tmp_path, models):
    """serve(*arguments) is a server, which is ended at the end."""
    started = []

    def begin(*arguments, paths=(str(models),), name=None):
        log = tmp_path / (name or f"{len(started)}.log")
        started.append(ServingProcess(paths, arguments, {}, log, "127.0.0.1", "node"))
        return started[-1]

    yield begin
    for one in started:
        one.kill()
        ended(one)


def ended(one):
    until(lambda: one.report().state is ServingState.ENDED)
    return one.report()


def ready(one):
    until(lambda: one.report().state is ServingState.READY)
    return one.report()


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_server_is_reported_with_its_ports_models_and_load(serve):
    one = serve()
    report = ready(one)
    assert report.host == "127.0.0.1"
    assert report.models == ("same",)
    assert is_ready(base_url(report))
    assert ready_models(base_url(report)) == ("same",)
    body = b'{"inputs": [{"name": "x", "datatype": "INT32", "shape": [1], "data": [7]}]}'
    with urllib.request.urlopen(f"{base_url(report)}/v2/models/same/infer", body) as answer:
        assert answer.status == 200
    until(lambda: one.report().load.request_count == 1)
    assert one.report().load.cpu_s > 0


def test_a_server_that_is_stopped_ends_as_it_is_wont(serve):
    one = serve()
    pid = ready(one).pid
    one.stop()
    assert ended(one).reason.startswith("the server has ended, exit code 0 (log: ")
    assert not is_alive(pid)


def test_what_an_earlier_server_wrote_to_the_same_log_is_not_taken_for_this_ones(serve):
    first = serve(name="same.log")
    port = ready(first).http_port
    first.stop()
    ended(first)
    assert ready(serve(name="same.log")).http_port != port


def test_a_server_that_is_killed_is_reported_so(serve):
    one = serve()
    os.kill(ready(one).pid, signal.SIGKILL)
    assert "SIGKILL" in ended(one).reason


def test_a_server_that_cannot_start_says_why(serve, tmp_path):
    (tmp_path / "empty").mkdir()
    one = serve("--http-max-connections=0", paths=[str(tmp_path / "empty")])
    assert "--http-max-connections" in ended(one).reason
    assert "exit code 2" in ended(one).reason


def test_models_that_a_node_lacks_are_named(serve, tmp_path):
    one = serve(paths=[str(tmp_path / "models"), str(tmp_path / "gone"), "s3://bucket/a"])
    assert one.report().state is ServingState.ENDED
    assert one.report().reason == f"node node has no {tmp_path / 'gone'}"


def test_a_server_whose_models_fail_is_not_ready_and_says_why(serve, models):
    (models / "same/config.pbtxt").write_text('backend: "nothing"')
    one = serve("--exit-on-error=false")
    until(lambda: "nothing" in one.report().reason)
    assert one.report().state is ServingState.LOADING


def test_a_server_with_tls_is_asked_over_it(serve, certificates):
    one = serve(
        "--http-use-ssl=true",
        f"--http-server-cert={certificates / 'server.pem'}",
        f"--http-server-key={certificates / 'server.key'}",
    )
    assert ready(one).is_tls


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_drains_when_its_actor_ends_in_any_way(models, tmp_path, number):
    log = tmp_path / "server.log"
    command = [sys.executable, "-c", ACTOR, str(models), str(log)]
    actor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pid = int(actor.stdout.readline().split()[0])
    keeper = parent_of(pid)
    # What Ray does with the children of an actor's process, before it ends that.
    assert actor.pid not in (keeper, parent_of(keeper))
    actor.send_signal(number)
    actor.wait()
    actor.stdin.close()
    actor.stdout.close()
    until(lambda: not is_alive(pid))
    assert "finishing what is in flight" in log.read_text()


def test_a_server_drains_when_its_keeper_is_killed(serve, tmp_path):
    one = serve()
    pid = ready(one).pid
    os.kill(parent_of(pid), signal.SIGKILL)
    until(lambda: not is_alive(pid))
    assert "its keeper has been killed" in ended(one).reason
    assert "finishing what is in flight" in (tmp_path / "0.log").read_text()
