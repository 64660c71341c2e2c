import contextlib
import json
import os
import pty
import re
import signal
import socket
from pathlib import Path

import pytest
from patience import wait_until
from server_process import LIVE, ON_FREE_PORTS, Process

import inferd

pytestmark = pytest.mark.slow


@pytest.fixture
def start():
    """start(arguments...) starts a server process; what is left at the end is killed."""
    started = []

    def run(*arguments, **more):
        started.append(Process(*arguments, **more))
        return started[-1]

    yield run
    for each in started:
        each.process.kill()
        each.process.wait()
        each.process.stdout.close()


@pytest.fixture
def open_request(body):
    """open_request(port) sends a request's head, waits until it was read, and returns the socket.

    The server is then sure to be busy with it until the body comes.
    """
    opened = []

    def send(port):
        client = socket.create_connection(("127.0.0.1", port), timeout=30)
        opened.append(client)
        client.sendall(
            b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        )
        assert client.recv(1000).startswith(b"HTTP/1.1 100 ")
        return client

    yield send
    for client in opened:
        client.close()


def read_all(client):
    """Return everything until the server closes; a reset, of what it never accepted, is one way."""
    received = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(65536):
            received += piece
    return bytes(received)


def test_it_starts_says_what_it_serves_and_where_and_answers(start, repository, echo, ask, body):
    server = start(repository(m=echo()), *ON_FREE_PORTS)
    port = server.wait_ready()
    assert "m      1        READY\n" in server.said
    assert f"HTTP  http://127.0.0.1:{port}\n" in server.said
    assert ask(port, "/v2/models/m/infer", body)[1]["outputs"][0]["data"] == [7.0]
    assert ask(port, "/v2")[1]["version"] == inferd.__version__


def test_the_process_is_the_server_itself(start, repository, echo):
    server = start(repository(m=echo()), *ON_FREE_PORTS)
    server.wait_ready()
    pid = server.process.pid
    assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""


def test_ports_are_open_before_models_have_loaded(start, repository, echo, ask):
    server = start(repository(m=echo(creation_delay_sec=600)), *ON_FREE_PORTS)
    port = server.wait_live()
    assert ask(port, "/v2/health/live")[0] == 200
    assert ask(port, "/v2/health/ready")[0] == 400
    server.process.terminate()
    assert server.end() == 0
    assert "ended while models were loading" in server.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_request_in_flight_finish(
    start, repository, echo, open_request, body, number
):
    server = start(repository(m=echo()), *ON_FREE_PORTS)
    port = server.wait_ready()
    client = open_request(port)
    idle = socket.create_connection(("127.0.0.1", port), timeout=30)
    server.process.send_signal(number)
    assert read_all(idle) == b""  # closed: the server is on its way out
    idle.close()
    client.sendall(body)
    answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer.lower()
    assert server.end() == 0


def test_after_a_signal_new_connections_are_refused(start, repository, echo, open_request):
    server = start(repository(m=echo()), *ON_FREE_PORTS)
    port = server.wait_ready()
    client = open_request(port)
    idle = socket.create_connection(("127.0.0.1", port), timeout=30)
    server.process.terminate()
    assert read_all(idle) == b""  # closed: the server has stopped listening, too
    idle.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=30)
    client.close()
    assert server.end() == 0


def test_during_the_drain_delay_it_serves_but_is_not_ready(start, repository, echo, ask, body):
    delay = ["--drain-delay=600", "--exit-timeout-secs=700"]
    server = start(repository(m=echo()), *ON_FREE_PORTS, *delay)
    port = server.wait_ready()
    server.process.terminate()
    server.wait_for("SIGTERM: finishing")
    assert ask(port, "/v2/health/ready")[0] == 400
    assert ask(port, "/v2/health/live")[0] == 200
    assert ask(port, "/v2/models/m/infer", body)[0] == 200


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_it_at_once(start, repository, echo, open_request, number, code):
    server = start(repository(m=echo()), *ON_FREE_PORTS, "--exit-timeout-secs=600")
    client = open_request(server.wait_ready())
    server.process.terminate()
    server.wait_for("SIGTERM: finishing")
    server.process.send_signal(number)
    assert read_all(client) == b""
    assert server.end() == code


def test_requests_that_outlast_the_exit_timeout_are_cut(start, repository, echo, open_request):
    # Of a busy machine a quarter of this, which is left for ending, must not be gone in one breath.
    server = start(repository(m=echo()), *ON_FREE_PORTS, "--exit-timeout-secs=4")
    open_request(server.wait_ready())
    server.process.terminate()
    assert server.end() == 1
    assert "requests were cut" in server.said


@pytest.mark.parametrize("is_ended", [False, True])
def test_without_time_to_exit_a_server_cuts_what_is_in_flight(
    start, repository, echo, open_request, is_ended
):
    server = start(repository(m=echo()), *ON_FREE_PORTS, "--exit-timeout-secs=0")
    url = server.wait_ready()
    if is_ended:
        open_request(url)
    server.process.terminate()
    assert server.end() == (1 if is_ended else 0)
    assert ("requests were cut" in server.said) is is_ended


def test_a_blocked_event_loop_cannot_outlast_the_exit_timeout(start, repository, echo):
    script = (
        "import logging, sys, threading\n"
        "from inferd.cli.main import main\n"
        "def block(record):\n"
        "    if 'finishing' in record.getMessage():\n"
        "        threading.Event().wait()\n"
        "    return True\n"
        "logging.getLogger('inferd').addFilter(block)\n"
        "sys.exit(main(['serve', *sys.argv[1:]]))\n"
    )
    arguments = (repository(m=echo()), *ON_FREE_PORTS, "--exit-timeout-secs=4")
    server = start(*arguments, command=("-c", script))
    server.wait_ready()
    server.process.terminate()
    assert server.end() == 1
    assert "in block" in server.said  # where it hung


LIMITED = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {1})); "
LIMITED += "from inferd.cli.main import main; sys.exit(main(['serve', *sys.argv[1:]]))"


def test_it_may_open_as_many_files_as_it_may_have_connections(start, repository, echo):
    server = start(repository(m=echo()), *ON_FREE_PORTS, command=("-c", LIMITED.format(150, 5000)))
    server.wait_ready()
    limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    assert re.search(r"Max open files +5000 +5000", limits)
    assert "the system allows 5000 open files" in server.said


def test_enough_files_are_no_warning(start, repository, echo):
    command = ("-c", LIMITED.format(150, 5000))
    connections = ("--http-max-connections=100", "--grpc-max-connections=50")
    server = start(repository(m=echo()), *ON_FREE_PORTS, *connections, command=command)
    server.wait_ready()
    limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    assert re.search(r"Max open files +4150 +5000", limits)
    assert "open files" not in server.said


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_taken_port_is_one_clear_line(start, repository, echo, protocol):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = start(repository(m=echo()), *ON_FREE_PORTS, f"--{protocol}-port={port}")
        assert server.end() == 1
    [line] = server.said.splitlines()
    assert f"cannot listen on 127.0.0.1:{port} for " in line
    assert f"address already in use; choose another place with --{protocol}-port" in line


def test_an_address_that_does_not_exist_is_said(start, repository, echo):
    address = ["--http-address=there.is.no.such.host.invalid", "--http-port=0"]
    server = start(repository(m=echo()), *address)
    assert server.end() == 1
    assert "cannot listen on there.is.no.such.host.invalid:0 for HTTP" in server.said


def test_a_model_that_fails_leaves_the_others_serving(start, repository, echo, broken, ask, body):
    server = start(repository(m=echo(), bad=broken), *ON_FREE_PORTS)
    port = server.wait_live()
    server.wait_for("not ready: models failed")
    assert re.search(r"bad +1 +UNAVAILABLE +model 'bad' fails to load", server.said)
    assert ask(port, "/v2/models/m/infer", body)[0] == 200
    assert ask(port, "/v2/health/ready")[0] == 400


def test_without_a_model_it_says_why_it_is_not_ready(start, repository, ask):
    models = repository()
    server = start(models, *ON_FREE_PORTS)
    port = server.wait_live()
    server.wait_for(f"not ready: no model was found in {models}; --allow-empty accepts that")
    assert ask(port, "/v2/health/ready")[0] == 400
    server.process.terminate()
    assert server.end() == 0
    accepting = start(models, *ON_FREE_PORTS, "--allow-empty")
    assert ask(accepting.wait_ready(), "/v2/health/ready")[0] == 200


def test_without_strict_readiness_a_failed_model_does_not_matter(
    start, repository, echo, broken, ask
):
    models = repository(m=echo(), bad=broken)
    server = start(models, *ON_FREE_PORTS, "--strict-readiness=false")
    assert ask(server.wait_ready(), "/v2/health/ready")[0] == 200


def test_exit_on_error_ends_with_the_reasons(start, repository, echo, broken):
    server = start("--exit-on-error", repository(m=echo(), bad=broken), *ON_FREE_PORTS)
    assert server.end() == 1
    assert re.search(r"bad +1 +UNAVAILABLE +model 'bad' fails to load", server.said)
    assert "ending, because --exit-on-error is set and these failed: bad 1\n" in server.said


def test_a_repository_that_is_not_there_ends_it(start, tmp_path):
    server = start(tmp_path / "nowhere", *ON_FREE_PORTS)
    assert server.end() == 1
    assert "nowhere" in server.said


def test_it_stays_up_without_its_repository_if_it_was_told_so(
    start, repository, echo, ask, tmp_path
):
    sound, missing = repository(m=echo()), tmp_path / "nowhere"
    server = start(sound, missing, *ON_FREE_PORTS, "--exit-on-error=false")
    port = server.wait_live()
    server.wait_for("staying up without models, neither live nor ready")
    assert "nowhere' does not exist: expected a model repository or a model" in server.said
    for path in ("/v2/health/live", "/v2/health/ready", "/api/health/live"):
        assert ask(port, path)[0] == 400
    server.process.terminate()
    assert server.end() == 0


def test_json_logs_leave_nothing_that_is_not_json(start, repository, echo, broken):
    models = repository(m=echo(), bad=broken)
    server = start(models, *ON_FREE_PORTS, "--log-format=json", "--exit-on-error")
    assert server.end() == 1
    lines = [json.loads(line) for line in server.said.splitlines()]
    rows = {line["model"]: line["state"] for line in lines if "model" in line}
    assert rows == {"m": "READY", "bad": "UNAVAILABLE"}


def test_in_a_container_it_says_that_it_binds_all_interfaces(start, repository, echo):
    environ = {"container": "docker", "INFERD_HTTP_PORT": "0", "INFERD_GRPC_PORT": "0"}
    server = start(repository(m=echo()), environ=environ)
    server.wait_for(r"is live at http://0\.0\.0\.0:\d+ and 0\.0\.0\.0:\d+")
    server.wait_for(
        "HTTP and gRPC bound to all interfaces, because this is a container; "
        "to change that: --http-address, --grpc-address"
    )


def test_an_address_that_was_chosen_is_not_said_to_be_the_default(start, repository, echo):
    environ = {"container": "docker"}
    flags = [flag for flag in ON_FREE_PORTS if not flag.startswith("--grpc-address")]
    server = start(repository(m=echo()), *flags, environ=environ)
    said = server.wait_for(r"(.*) bound to all interfaces.* to change that: (.*)")
    assert said[1].split()[-1] == "gRPC" and said[2] == "--grpc-address"


def test_sighup_opens_the_log_file_again(start, repository, echo, ask, tmp_path):
    log = tmp_path / "log"
    server = start(repository(m=echo()), *ON_FREE_PORTS, f"--log-file={log}")
    port = int(server.wait_for(r"HTTP  http://127\.0\.0\.1:(\d+)")[1])
    log.rename(tmp_path / "log.1")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: log.exists() and "opened again" in log.read_text())
    assert ask(port, "/v2/health/live")[0] == 200
    server.process.terminate()
    assert server.end() == 0
    assert "ended" in log.read_text()
    assert "ended" not in (tmp_path / "log.1").read_text()


def test_sighup_does_not_end_a_server_without_a_log_file(start, repository, echo, ask):
    server = start(repository(m=echo()), *ON_FREE_PORTS)
    port = server.wait_ready()
    server.process.send_signal(signal.SIGHUP)
    server.wait_for("the log was opened again")
    assert ask(port, "/v2/health/live")[0] == 200


def test_a_server_on_a_terminal_ends_with_it(start, repository, echo):
    terminal, of_server = pty.openpty()
    environ = os.environ | {"PYTHONUNBUFFERED": "1"}
    server = start(repository(m=echo()), *ON_FREE_PORTS, stderr=of_server, environ=environ)
    os.close(of_server)
    server.wait_for(r"^gRPC ")
    server.process.send_signal(signal.SIGHUP)
    assert server.end() == 0
    os.close(terminal)


def test_clients_change_the_log_and_move_it_where_they_may(start, repository, echo, ask, tmp_path):
    server = start(repository(m=echo()), *ON_FREE_PORTS, f"--log-directory={tmp_path}")
    port = server.wait_ready()
    assert ask(port, "/v2/logging", b'{"log_file": "../x"}')[0] == 400
    change = b'{"log_file": "clients.log", "log_format": "json", "log_verbose_level": 1}'
    assert ask(port, "/v2/logging", change)[1]["log_file"] == "clients.log"
    server.process.terminate()
    assert server.end() == 0
    lines = (tmp_path / "clients.log").read_text().splitlines()
    assert [json.loads(line)["message"] for line in lines][-1] == "ended"


def test_traces_are_in_their_file_when_the_server_has_ended(
    start, repository, echo, ask, body, tmp_path
):
    traces = ["level=TIMESTAMPS", "rate=1", f"triton,file={tmp_path}/t", "triton,log-frequency=2"]
    options = [f"--trace-config={each}" for each in traces]
    server = start(repository(m=echo()), *ON_FREE_PORTS, *options)
    port = server.wait_ready()
    for _ in range(3):
        assert ask(port, "/v2/models/m/infer", body)[0] == 200
    server.process.terminate()
    assert server.end() == 0
    found = [json.loads((tmp_path / f"t.{number}").read_text()) for number in range(2)]
    assert [sorted({one["id"] for one in each}) for each in found] == [[1, 2], [3]]


def test_a_collector_that_never_answers_neither_holds_requests_nor_the_end(
    start, repository, echo, ask, body
):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"
        traces = ["mode=opentelemetry", "level=TIMESTAMPS", "rate=1", f"opentelemetry,url={url}"]
        options = [f"--trace-config={each}" for each in traces]
        server = start(repository(m=echo()), *ON_FREE_PORTS, *options)
        port = server.wait_ready()
        for _ in range(20):
            assert ask(port, "/v2/models/m/infer", body)[0] == 200
        server.process.terminate()
        assert server.end() == 0
    assert "Traceback" not in server.said


def test_a_log_file_that_cannot_be_opened_ends_it(start, repository, echo, tmp_path):
    server = start(repository(m=echo()), *ON_FREE_PORTS, f"--log-file={tmp_path}/no/log")
    assert server.end() == 1
    assert "--log-file: cannot open" in server.said


def test_the_grpc_port_answers(start, repository, echo):
    grpc = pytest.importorskip("tritonclient.grpc")
    server = start(repository(m=echo()), *ON_FREE_PORTS)
    port = server.wait_for(LIVE)[2]
    server.wait_for(r"\bready$")
    with grpc.InferenceServerClient(f"127.0.0.1:{port}") as client:
        assert client.is_server_ready()
