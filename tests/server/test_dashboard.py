"""The dashboard of whole servers: where it is, what it changes, who may open it."""

import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
from running_fleet import running_fleet
from server_process import ON_FREE_PORTS, Process
from server_thread import server_in_thread

from inferd.config.server import ServerConfig
from inferd.server.dashboard import read_certificate
from inferd.ui import files

EXPLICIT = ["--model-control-mode=explicit", "--load-model=*"]
LINK = r"\(good once\): (http://127\.0\.0\.1:(\d+)/ui/)#token=(\S+)$"


@pytest.fixture
def config(repository, echo):
    """config(option=value) is the configuration of a server on ports the system chooses."""
    models = str(repository(m=echo()))

    def build(**more):
        given = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, "model_repository": (models,)}
        return ServerConfig(**(given | more))

    return build


class Browser:
    """A page of a server's, which sends `headers` with each request."""

    def __init__(self, port):
        self.port = port
        self.headers = {}

    def ask(self, path, body=None):
        """Return the status and the document; a body, which is sent as JSON, makes it a POST."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            text = None if body is None else json.dumps(body)
            method = "GET" if body is None else "POST"
            connection.request(method, f"/ui/{path}", text, self.headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def unlock(self, token):
        """Use a token, and return the status."""
        status, told = self.ask("unlock", {"token": token})
        if status == 200:
            self.headers["x-inferd-ui-session"] = told["session"]
        return status

    def act(self, act, **more):
        """Return the status of an act, and what was done, or why not."""
        status, told = self.ask("act", {"act": act, **more})
        [(kind, text)] = told.items()
        assert kind == ("done" if status == 200 else "error")
        return status, text


def index(ask, port):
    """Return the states of the models by name."""
    _, rows = ask(port, "/v2/repository/index", b"{}")
    return {row["name"]: row.get("state") for row in rows}


@pytest.fixture
def unlocked(repository, echo):
    """A server whose models may be changed, and a browser that opened its link."""
    server = Process(repository(m=echo()), *ON_FREE_PORTS, *EXPLICIT, "--ui=full")
    try:
        url, port, token = server.wait_for(LINK).groups()
        server.wait_for(rf"^Dashboard  {re.escape(url)}$")
        browser = Browser(int(port))
        assert browser.ask("about")[1]["unlock"] is True
        assert browser.act("unload", model="m")[0] == 401
        assert browser.unlock(token) == 200
        assert server.wait_for(LINK)[3] != token
        assert Browser(browser.port).unlock(token) == 401
        yield browser
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
        assert server.said.count("#token=") == 2
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()


def test_who_opens_the_link_may_change_models(unlocked, ask):
    assert unlocked.act("unload", model="m") == (200, "m is unloaded")
    assert index(ask, unlocked.port)["m"] != "READY"
    assert unlocked.act("load", model="m") == (200, "m is loaded")
    assert unlocked.act("reload", model="m") == (200, "m is loaded again")
    assert index(ask, unlocked.port) == {"m": "READY"}
    status, why = unlocked.act("load", model="nowhere")
    assert status == 500 and "nowhere" in why


def test_who_opens_the_link_may_change_what_is_logged_and_traced(unlocked, ask):
    port = unlocked.port
    done = unlocked.act("logging", settings={"log_verbose_level": 2})
    assert done == (200, "the log has the new settings")
    assert ask(port, "/v2/logging")[1]["log_verbose_level"] == 2
    assert unlocked.act("logging", settings={"log_verbose_level": "x"})[0] == 400
    done = unlocked.act("trace", model=None, settings={"trace_rate": "9"})
    assert done == (200, "requests are traced by the new settings")
    done = unlocked.act("trace", model="m", settings={"trace_rate": "5"})
    assert done == (200, "requests of m are traced by the new settings")
    assert ask(port, "/v2/models/m/trace/setting")[1]["trace_rate"] == "5"
    assert ask(port, "/v2/trace/setting")[1]["trace_rate"] == "9"
    assert unlocked.act("trace", model="nowhere", settings={"trace_rate": "5"})[0] == 400


def test_the_log_has_no_token(repository, echo, tmp_path):
    log = tmp_path / "log"
    arguments = [*ON_FREE_PORTS, "--ui=full", f"--log-file={log}", "--log-verbose=9"]
    server = Process(repository(m=echo()), *arguments, f"--access-log={tmp_path / 'access'}")
    try:
        _, port, token = server.wait_for(LINK).groups()
        server.wait_for("^Dashboard")
        browser = Browser(int(port))
        assert browser.unlock(token) == 200
        browser.act("logging", settings={})
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
        written = log.read_text() + (tmp_path / "access").read_text()
        assert "/ui/unlock" in written
        assert token not in written and browser.headers["x-inferd-ui-session"] not in written
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()


@pytest.mark.slow
def test_all_processes_of_a_server_take_a_token_together_once(repository, echo, ask):
    models = repository(m=echo())
    with running_fleet(models, *EXPLICIT, "--ui=full", workers=2) as (server, port):
        token = re.search(LINK, server.said, re.MULTILINE)[3]
        asked = [Browser(port) for _ in range(8)]  # connections go to the processes in turn
        assert sorted(browser.unlock(token) for browser in asked) == [200] + [401] * 7
        [browser] = [one for one in asked if one.headers]
        newer = server.wait_for(LINK)[3]
        assert newer != token
        for _ in range(4):  # whichever process is asked knows the session
            assert browser.act("unload", model="m")[0] == 200
            assert browser.act("load", model="m")[0] == 200
            assert index(ask, port) == {"m": "READY"}
        assert [Browser(port).unlock(token) for _ in range(4)] == [401] * 4
        assert Browser(port).unlock(newer) == 200
        assert server.wait_for(LINK)[3] not in (token, newer)


def test_a_drain_ends_the_streams_of_events(repository, echo):
    server = Process(repository(m=echo()), *ON_FREE_PORTS, "--exit-timeout-secs=30")
    try:
        port = server.wait_ready()
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(b"GET /ui/events?topics=overview HTTP/1.1\r\nHost: localhost\r\n\r\n")
            told = client.recv(65536)
            assert told.startswith(b"HTTP/1.1 200 OK\r\n")
            server.process.send_signal(signal.SIGTERM)
            while data := client.recv(65536):
                told += data
            assert told.endswith(b"\r\n0\r\n\r\n") and b'"state":"draining"' in told
        assert server.end() == 0
        assert "requests were cut" not in server.said
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()


def test_there_is_none_if_it_is_off(config, ask):
    with server_in_thread(config(ui="off")) as server:
        for path in ("/ui", "/ui/", "/ui/about", "/ui/events?topics=overview", "/ui/static/app.js"):
            status, answer = ask(server.http_port, path)
            assert (status, answer["error"].partition(":")[0]) == (404, "Not Found")


def test_it_is_on_the_rest_port_alone(config, ask):
    options = {"http_health_port": 0, "allow_sagemaker": True, "sagemaker_port": 0}
    with server_in_thread(config(**options)) as server:
        assert ask(server.http_port, "/ui/about")[0] == 200
        ports = [*server.cloud_ports.values(), server.metrics_port]
        assert len(ports) == 3
        for port in ports:
            assert ask(port, "/ui/about")[0] == 404


def test_it_is_on_a_unix_socket_too(config, tmp_path):
    path = tmp_path / "socket"
    with (
        server_in_thread(config(http_unix_socket=str(path))),
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.connect(str(path))
        client.sendall(b"GET /ui/about HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_the_names_of_the_certificate_are_the_servers(config, tmp_path):
    def certify(name):
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        output = ["-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=server"]
        names = ["-addext", f"subjectAltName=DNS:{name}"]
        command = ["openssl", "req", "-x509", *key, *output, *names]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    def status(port, name):
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
        try:
            connection.request("GET", "/ui/about", headers={"Host": name})
            return connection.getresponse().status
        finally:
            connection.close()

    certify("one.example.org")
    files = {"http_server_cert": f"{tmp_path}/cert.pem", "http_server_key": f"{tmp_path}/key.pem"}
    with server_in_thread(config(http_use_ssl=True, **files)) as server:
        assert status(server.http_port, "one.example.org") == 200
        assert status(server.http_port, "two.example.org") == 403
        certify("two.example.org")
        read_certificate(server._dashboard, files["http_server_cert"])
        assert status(server.http_port, "one.example.org") == 403
        assert status(server.http_port, "two.example.org") == 200


def test_hosts_can_be_named(config):
    with server_in_thread(config(ui_hosts=("one.example.org,*.example.net",))) as server:
        for name, wanted in (
            ("one.example.org", 200),
            ("a.example.net", 200),
            ("example.net", 403),
        ):
            browser = Browser(server.http_port)
            browser.headers["Host"] = name
            assert browser.ask("about")[0] == wanted


def test_the_page_of_the_package_is_served(config):
    with server_in_thread(config()) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        connection.request("GET", "/ui/")
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        page = Path(str(files.page_folder())) / "index.html"
        if page.exists():
            assert (answer.status, body) == (200, page.read_bytes())
        else:
            assert answer.status == 404
